"""What to say and do: tools, documents, forms, a bigger model, and the protocol of a language model. No audio, no sockets."""

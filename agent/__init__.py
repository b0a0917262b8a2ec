"""What to say and do: tools, documents, forms, a bigger model, the protocol of language models. No audio or sockets."""

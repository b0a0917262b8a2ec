"""The language model: tokens in, committed text and drafts out. No audio, no sockets."""

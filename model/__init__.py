"""The language model: tokens in, committed text and drafts out. Knows no sound and no sockets."""

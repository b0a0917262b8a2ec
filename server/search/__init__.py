"""Search for clients that keep their own texts: embeddings of texts, and rankings of passages."""

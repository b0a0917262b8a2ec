"""A bigger language model on another server: asked the hard questions, with the local model as the fallback."""

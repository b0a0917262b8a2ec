"""Decoding: decides which tokens are committed and which remain drafts, and builds the input of each step."""

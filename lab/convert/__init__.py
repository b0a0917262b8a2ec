"""Conversion: trains an adapter with which an autoregressive model drafts several tokens at once."""

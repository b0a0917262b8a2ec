"""Decoding rules: pure functions of logits, which say what to commit and what stays a draft."""

"""Dictation: spoken words as their speaker would have written them."""

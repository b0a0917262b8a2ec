"""Teaches an autoregressive checkpoint to draft several tokens at once: its own texts, the training, the proof."""

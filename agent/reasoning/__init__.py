"""Reasoning effort: an answer is worked out several times, and what most of the samples say is taken."""

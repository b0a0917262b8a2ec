"""The engine: one thread that runs the forward passes of all conversations."""

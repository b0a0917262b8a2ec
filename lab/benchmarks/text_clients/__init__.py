"""The text API through clients that others wrote, each in an environment of its own."""

"""The text API: chat completions, responses and what programs expect beside them."""

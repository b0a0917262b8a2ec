"""What is said to a language model, in types that `model` and `agent` share. Imports nothing of ours."""

"""What is said to a language model and what it reports, in types that `model` and `agent` share. Imports nothing of
ours."""

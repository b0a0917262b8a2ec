"""Benchmarks of the language model."""

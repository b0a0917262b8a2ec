"""Benchmarks and checks that take longer than the test suite; each is a command."""

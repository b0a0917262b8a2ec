"""Observability: the turn log."""

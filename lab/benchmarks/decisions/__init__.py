"""Measures typed decisions: how long they take, and how many are right."""

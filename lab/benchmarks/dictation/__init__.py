"""Dictations, and how well they are cleaned up."""

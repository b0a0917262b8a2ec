"""Ending classifiers that are shipped with the package."""

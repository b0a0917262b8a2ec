"""Adapters that are shipped with the package."""

"""Drafting adapters bundled with the package."""

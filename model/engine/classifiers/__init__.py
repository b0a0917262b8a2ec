"""Turn-completion classifiers bundled with the package."""

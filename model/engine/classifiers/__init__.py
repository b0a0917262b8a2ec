"""Turn-completion classifiers bundled with the package, and request classifiers in `requests`."""

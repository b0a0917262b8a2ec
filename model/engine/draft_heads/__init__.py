"""Draft heads bundled with the package."""

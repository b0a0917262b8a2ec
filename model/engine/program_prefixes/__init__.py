"""Trained prefixes of prompts for programs, bundled with the package."""

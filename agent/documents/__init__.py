"""The operator's own documents: read, indexed, searched, and put into prompts as data."""

"""Texts of other people that try to make the assistant do or say what its user has not asked for."""

"""The phone simulator: carriers as they behave, for tests, for the report, and for who has no carrier's account."""

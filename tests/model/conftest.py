"""Removes Hypothesis's deadline: the first call of a kernel may take a second on a busy machine."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

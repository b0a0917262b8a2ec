"""The consoles that all commands print to."""

from __future__ import annotations

from rich.console import Console

stdout, stderr = Console(), Console(stderr=True)


def say(text: str, style: str | None = None, end: str = "\n") -> None:
    """Print a text as it is: in one line, without markup and colours for numbers and paths."""
    stdout.print(text, style=style, end=end, markup=False, highlight=False, soft_wrap=True)

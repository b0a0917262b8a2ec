"""The consoles that all commands print to. Errors that the user can fix are one sentence there, without traceback."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from model.checkpoint.gguf import BadModelFile
from model.hub.transfer import ModelUnavailable

stdout, stderr = Console(), Console(stderr=True)


def say(text: str, style: str | None = None, end: str = "\n") -> None:
    """Print a text as it is: in one line, without markup and colours for numbers and paths."""
    stdout.print(text, style=style, end=end, markup=False, highlight=False, soft_wrap=True)


class UserError(Exception):
    """An error that the user can fix; the message says how."""


@contextmanager
def user_errors() -> Iterator[None]:
    """Print expected errors and exit with 1. With `REJOINDER_TRACEBACK` set, raise them with their traceback."""
    try:
        yield
    except (UserError, ModelUnavailable, BadModelFile, ValueError, OSError, sqlite3.Error) as error:
        locked = f"a file in use cannot be changed now ({error}): try again"
        reason = locked if isinstance(error, sqlite3.Error) else error
        stderr.print(f"rejoinder: {reason}", style="red", soft_wrap=True, markup=False, highlight=False)
        if os.environ.get("REJOINDER_TRACEBACK"):
            raise
        raise typer.Exit(1) from None

"""What a person can put right is said in a sentence, without a traceback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from model.gguf_file import BadModelFile
from model.store import ModelUnavailable


class UserError(Exception):
    """Something that the person at the command line can put right; the message says how."""


@contextmanager
def sentences() -> Iterator[None]:
    """Say expected errors and exit with 1. `REJOINDER_TRACEBACK` shows where they come from."""
    try:
        yield
    except (UserError, ModelUnavailable, BadModelFile, ValueError, OSError) as error:
        Console(stderr=True).print(f"rejoinder: {error}", style="red", soft_wrap=True, markup=False, highlight=False)
        if os.environ.get("REJOINDER_TRACEBACK"):
            raise
        raise typer.Exit(1) from None

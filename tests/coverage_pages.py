"""Pages that say what the server covers of a protocol: a test makes each, and writes it if it is asked to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def table(head: str, rows: Iterable[tuple[str, str, str]]) -> str:
    """A table of names, whether each is supported, and a note; without repetitions."""
    lines = [f"| {head} | | |", "|---|---|---|"]
    lines += [f"| `{name}` | {supported} | {note} |" for name, supported, note in dict.fromkeys(rows)]
    return "\n".join(lines)


def check_page(path: Path, made: str) -> None:
    """Check that a page is what has been made now. `REJOINDER_WRITE_DOCS=1` writes it."""
    if os.environ.get("REJOINDER_WRITE_DOCS"):
        path.write_text(made)
    assert path.read_text() == made, "run this test with REJOINDER_WRITE_DOCS=1, and look at what has changed"

"""The page: its own files, and no others of their folder, which is a Python package."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from starlette.staticfiles import StaticFiles

_SUFFIXES = frozenset(("", ".css", ".html", ".js", ".json", ".png", ".svg"))
"""Of the files that the wheel has (`pyproject.toml`), and none: it may be the folder, whose index is looked up next."""


class PageFiles(StaticFiles):
    """Serves the page's files."""

    def __init__(self) -> None:
        super().__init__(directory=str(files("web")), html=True)

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """See `StaticFiles`."""
        return super().lookup_path(path) if Path(path).suffix in _SUFFIXES else ("", None)

"""The documents that a server answers from: opened once, searched by all conversations."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from agent.documents.embedding import Embedder
from agent.documents.index import DocumentIndex
from agent.documents.library import DOCUMENTS_FILE, Library
from agent.storage import data_folder

ALL = "all"
"""Stands for every folder of the library."""


class SharedDocuments(DocumentIndex):
    """Folders of the library, with the model that searches them. Searches run on `executor`.

    Args:
        names: of folders, or their paths; `all` for all of them.
        data: the data folder; None for the user's own.
        model: folder of the embedding model.

    Raises:
        ValueError: the library has no such folder.
        OSError: the library cannot be used.
    """

    def __init__(self, names: Sequence[str], data: Path | None, model: Path) -> None:
        library = Library((data or data_folder()) / DOCUMENTS_FILE)
        try:
            folders = library.folders() if ALL in names else [library.find(name) for name in names]
            self.names = tuple(dict.fromkeys(folder.name for folder in folders))
            super().__init__(library, self.names, Embedder(model))
        except BaseException:
            library.close()
            raise
        self.executor: Executor = ThreadPoolExecutor(1, thread_name_prefix="documents")

    def close(self) -> None:
        """Stop searching."""
        self.executor.shutdown()
        self._library.close()

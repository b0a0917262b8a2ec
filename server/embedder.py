"""The embedding model of the text API: loaded when it is first needed, on a thread that gives way to speech."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model.hub.catalog import MINILM
from model.hub.store import ModelStore

if TYPE_CHECKING:  # it brings onnxruntime
    from agent.documents.embedding import Embedded, Embedder

_CHUNK = 32
"""Texts that are embedded at a time: half a second of passages."""

_NICENESS = 10
"""Recognition and synthesis run at 0."""


class SharedEmbedder:
    """Embeds the texts of requests, one request after another.

    Args:
        locate: finds the folder of the model. Raises ModelUnavailable.

    Attributes:
        name: of the model.
    """

    name = MINILM.name

    def __init__(self, locate: Callable[[], Path] = lambda: ModelStore().locate(MINILM.name)) -> None:
        self._locate = locate
        self._embedder: Embedder | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="embeddings", initializer=_lower_priority)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """The vectors of some texts, at least one. A few are embedded at a time, so that others wait less. Raises
        ModelUnavailable."""
        from agent.documents.embedding import Embedded

        loop, parts = asyncio.get_running_loop(), list[Embedded]()
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            parts.append(await loop.run_in_executor(self._executor, self._embed, chunk))
        return Embedded(np.concatenate([part.vectors for part in parts]), sum(part.tokens for part in parts))

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(cancel_futures=True)

    def _embed(self, texts: Sequence[str]) -> Embedded:
        if self._embedder is None:
            from agent.documents.embedding import Embedder

            self._embedder = Embedder(self._locate())
        return self._embedder.embed(texts)


def _lower_priority() -> None:
    """On Linux a thread has a priority of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)

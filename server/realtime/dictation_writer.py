"""Cleans up what is dictated in a transcription session, turn by turn, and sends it to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.background_tasks import BackgroundTasks
from agent.dictation.cleaner import DictationCleaner, corrects_what_precedes
from server.realtime.events import ServerEvent, server_event

_MAX_JOINED_CHARACTERS = 400
"""Turns that correct each other are rewritten together up to this length, so that this stays quick."""


class DictationWriter:
    """The clean text of one session, in the order of its turns.

    Args:
        send: sends an event to the client.
    """

    def __init__(self, cleaner: Callable[[], DictationCleaner], send: Callable[[ServerEvent], None]) -> None:
        self._cleaner, self._send = cleaner, send
        self._tasks, self._turn = BackgroundTasks(), asyncio.Lock()
        self._item_ids, self._raw = list[str](), ""

    def prepare(self) -> None:
        """Read the instructions before the first turn has ended."""
        self._cleaner().prepare()

    def add(self, item_id: str, raw: str) -> None:
        """A turn has been transcribed. If it corrects the one before it, both are rewritten together."""
        if not raw:
            return
        joined = f"{self._raw} {raw}"
        if self._raw and corrects_what_precedes(raw) and len(joined) <= _MAX_JOINED_CHARACTERS:
            self._item_ids, self._raw = [*self._item_ids, item_id], joined
        else:
            self._item_ids, self._raw = [item_id], raw
        self._tasks.spawn(self._clean(self._item_ids, self._raw))

    async def close(self) -> None:
        """The session has ended."""
        await self._tasks.close()

    async def _clean(self, item_ids: list[str], raw: str) -> None:
        async with self._turn:
            clean = await self._cleaner().clean(raw)
        self._send(
            server_event(
                "rejoinder.clean", item_ids=item_ids, text=clean.text, raw=raw, objection=clean.objection or None
            )
        )

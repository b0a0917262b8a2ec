"""Calls that go on after their replica has died.

A carrier's document ends with a redirect, which the carrier follows when the stream has ended. While the shared
records hold the call's conversation, its replica has died: the carrier is sent to another one, which continues it.
Otherwise the call is over, and the document hangs up.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from server.realtime.conversation import RealtimeConversation
from server.realtime.session_record import SessionRecord
from server.shared_store import RecordStore, StoreUnavailable

_log = logging.getLogger("rejoinder.phone")

CALL_PARAMETER = "rejoinder_call"
"""The stream's parameter that names the call, in letters and digits, which all carriers pass on."""

_INTERVAL_S = 0.5
"""How often a call's record is brought up to date."""

_KEEP_S = 60.0
"""How long a carrier may take to come back."""

_REFRESH_S = 5.0

_ID_BYTES, _MAX_ID_CHARACTERS = 16, 64


class ContinuedCalls:
    """The records of the calls that carriers can bring back. Without records, no call continues.

    Args:
        store: the shared records; None for none.
    """

    def __init__(self, store: RecordStore | None) -> None:
        self._store = store

    @property
    def possible(self) -> bool:
        """Whether calls continue."""
        return self._store is not None

    @staticmethod
    def new_id() -> str:
        """Names a call. Nobody can guess it."""
        return secrets.token_hex(_ID_BYTES)

    async def may_continue(self, call: str) -> bool:
        """Whether a call has lost its replica."""
        return await self._read(call) is not None

    async def take(self, call: str) -> SessionRecord | None:
        """The record of a call that continues here; None if it begins."""
        record = await self._read(call)
        if record is not None:
            await self.forget(call)
        return record

    async def keep(self, call: str, conversation: RealtimeConversation) -> None:
        """Keep the record of a call up to date. Runs until cancelled."""
        store, written, written_at = self._store, None, 0.0
        clock = asyncio.get_running_loop().time
        while store is not None:
            record = conversation.record("")
            if record != written or clock() > written_at + _REFRESH_S:
                written, written_at = record, clock()
                try:
                    await asyncio.to_thread(store.put, _key(call), record.encode(), _KEEP_S)
                except StoreUnavailable as error:
                    _log.warning("%s; a call whose replica dies meanwhile is lost", error)
            await asyncio.sleep(_INTERVAL_S)

    async def forget(self, call: str) -> None:
        """The call is over."""
        if self._store is not None:
            try:
                await asyncio.to_thread(self._store.delete, _key(call))
            except StoreUnavailable as error:
                _log.warning("%s; the carrier may come back to a call that is over", error)

    async def _read(self, call: str) -> SessionRecord | None:
        if self._store is None or not call.isalnum() or len(call) > _MAX_ID_CHARACTERS:
            return None
        try:
            encoded = await asyncio.to_thread(self._store.get, _key(call))
        except StoreUnavailable:
            return None
        return None if encoded is None else SessionRecord.decode(encoded)


def _key(call: str) -> str:
    return f"call/{call}"

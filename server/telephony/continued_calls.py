"""Calls that go on after their replica has died.

A carrier's document ends with a redirect, which the carrier follows when the stream has ended. While the shared
records hold the call's conversation, its replica has died: the carrier is sent to another one, which continues it.
Otherwise the call is over, and the document hangs up.
"""

from __future__ import annotations

import asyncio
import secrets

from server.access.admission import Slot
from server.realtime.conversation import RealtimeConversation
from server.realtime.session_record import SessionRecord
from server.shared_store import SharedRecords

_PREFIX = "call/"
"""Of the names of records."""

CALL_PARAMETER = "rejoinder_call"
"""The stream's parameter that names the call, in letters and digits, which all carriers pass on."""

_INTERVAL_S = 0.5
"""How often a call's record is brought up to date."""

_KEEP_S = 60.0
"""How long a carrier may take to come back."""

_REFRESH_S = 5.0

_ID_BYTES, _MAX_ID_CHARACTERS = 16, 64


class ContinuedCalls:
    """The records of the calls that carriers can bring back.

    Attributes:
        possible: whether calls continue: not without records.
    """

    def __init__(self, records: SharedRecords) -> None:
        self._records, self.possible = records, records.exist

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

    async def keep(self, call: str, conversation: RealtimeConversation, slot: Slot) -> None:
        """Keep the record of a call up to date. Runs until cancelled."""
        written, written_at = None, 0.0
        clock = asyncio.get_running_loop().time
        while self.possible:
            record = conversation.record(slot.meter.key, slot.caller)
            if record != written or clock() > written_at + _REFRESH_S:
                written, written_at = record, clock()
                await self._write(call, record.encode())
            await asyncio.sleep(_INTERVAL_S)

    async def forget(self, call: str) -> None:
        """The call is over."""
        await self._records.call(lambda store: store.delete(_key(call)))

    async def _write(self, call: str, encoded: bytes) -> None:
        await self._records.call(lambda store: store.put(_key(call), encoded, _KEEP_S))

    async def _read(self, call: str) -> SessionRecord | None:
        if not call.isalnum() or len(call) > _MAX_ID_CHARACTERS:
            return None
        encoded = await self._records.call(lambda store: store.get(_key(call)))
        return None if encoded is None else SessionRecord.decode(encoded)


def _key(call: str) -> str:
    return f"{_PREFIX}{call}"

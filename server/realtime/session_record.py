"""The record of a session: what another replica needs to continue it when its own has died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from server.realtime.session_config import SessionConfig
from voice.history import FunctionCall, FunctionCallOutput, HistoryItem, Item


@dataclass(frozen=True)
class SessionRecord:
    """A session as its client knows it.

    Attributes:
        key: name of the client's API key.
        session_id: as on the wire.
        items: of the conversation, with how much of each was heard.
        caller: the number of a phone call, as the carrier reports it.
    """

    key: str
    session_id: str
    config: SessionConfig
    items: list[Item | FunctionCall | FunctionCallOutput]
    caller: str = ""

    def encode(self) -> bytes:
        """As JSON."""
        return _ADAPTER.dump_json(self)

    @classmethod
    def decode(cls, encoded: bytes) -> SessionRecord | None:
        """The record; None if another version of the server wrote it, and this one cannot read it."""
        try:
            return _ADAPTER.validate_json(encoded)
        except ValidationError:
            return None


_ADAPTER = TypeAdapter(SessionRecord)


def items_as_heard(items: Sequence[HistoryItem], heard_ms: Mapping[str, float]) -> list[HistoryItem]:
    """The items as they are when the connection breaks now: responses end where the user stopped hearing them, and
    calls that were not complete were never made.

    Args:
        heard_ms: how much was heard of the messages that are being played, by item id.
    """
    kept: list[HistoryItem] = []
    for item in items:
        if isinstance(item, Item):
            kept.append(replace(item, complete=True, heard_ms=heard_ms.get(item.id, item.heard_ms)))
        elif item.complete:
            kept.append(item)
    return kept

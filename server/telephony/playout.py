"""Playout of the assistant's audio: cuts it into chunks, sends them slightly ahead of playback on an absolute clock,
and tracks how much the caller has heard. Pure: every method takes the time, in seconds of one clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

MARK_INTERVAL_MS = 100
"""Audio between two marks. An interruption truncates the history at the last mark played, so about a word too early."""

END_MARK_SUFFIX = ".end"
"""Suffix of the mark after an item's last chunk. Our phone simulator recognizes the end of a response by it."""

_MAX_CARRIER_DELAY_S = 0.5
"""Maximum delay of the carrier's playback relative to our clock: its own buffer and the round trip."""

_ROUNDING_S = 1e-6

_MAX_PENDING_MARKS = 4096
"""Marks that may be pending. A carrier that never returns any is not waited for."""


@dataclass
class _Item:
    """One stretch of speech: a response or an announcement."""

    id: str
    waiting: bytearray
    ended: bool = False
    sent_ms: float = 0.0
    heard_ms: float = 0.0
    marked_ms: float = 0.0


@dataclass(frozen=True)
class Chunk:
    """Audio to send now, and the mark to send after it."""

    data: bytes
    mark: str | None


@dataclass(frozen=True)
class Truncation:
    """An item that was interrupted after `heard_ms`."""

    item_id: str
    heard_ms: int


class Playout:
    """Sends one call's audio to the caller.

    Args:
        bytes_per_ms: of the audio.
        silence: a byte of silence, for padding an item's last chunk.
        chunk_ms: length of every chunk.
        send_ahead_ms: how much audio may be sent before it is played.
        returns_marks: whether the carrier returns marks; if not, playback is assumed to follow the clock.
    """

    def __init__(
        self, bytes_per_ms: int, silence: int, *, chunk_ms: int, send_ahead_ms: int, returns_marks: bool
    ) -> None:
        self._bytes_per_ms, self._silence = bytes_per_ms, silence
        self._chunk_bytes, self._chunk_ms, self._send_ahead_s = chunk_ms * bytes_per_ms, chunk_ms, send_ahead_ms / 1000
        self._returns_marks, self._mark_returned = returns_marks, False
        self._items: deque[_Item] = deque()
        self._sent: deque[_Item] = deque()
        self._pending_marks: dict[str, tuple[_Item, float]] = {}
        self._generation = self._mark_count = 0
        self._sent_until = float("-inf")
        self._paused = False

    def add(self, item_id: str, data: bytes) -> None:
        """Append audio of an item to the queue."""
        if not self._items or self._items[-1].id != item_id:
            self.end_item()
            self._items.append(_Item(item_id, bytearray()))
        self._items[-1].waiting += data

    def end_item(self) -> None:
        """The newest item is complete."""
        if self._items:
            self._items[-1].ended = True

    def pause(self, paused: bool) -> None:
        """Pause while the carrier's buffer is full, continue once it has room again."""
        self._paused = paused

    def due(self, now: float) -> Iterator[Chunk]:
        """Every chunk that should be sent by now."""
        chunk_s = self._chunk_ms / 1000
        while (
            not self._paused
            and self._ready()
            and max(self._sent_until, now) + chunk_s <= now + self._send_ahead_s + _ROUNDING_S
        ):
            item = self._items[0]
            data = bytes(item.waiting[: self._chunk_bytes])
            del item.waiting[: self._chunk_bytes]
            if not item.sent_ms:
                self._sent.append(item)
                if not self._returns_marks and len(self._sent) > 2:
                    self._sent.popleft()  # heard long ago: less than two items are sent ahead
            item.sent_ms += len(data) / self._bytes_per_ms
            self._sent_until = max(self._sent_until, now) + chunk_s
            last = item.ended and not item.waiting
            yield Chunk(data.ljust(self._chunk_bytes, bytes([self._silence])), self._next_mark(item, last=last))
            self._drop_sent_items()

    def mark_played(self, mark: str) -> None:
        """The carrier returned a mark. A mark returned by a clear belongs to an older generation and is ignored."""
        pending = self._pending_marks.pop(mark, None)
        if pending is None:
            return
        self._mark_returned = True
        item, ms = pending
        item.heard_ms = max(item.heard_ms, ms)
        while self._sent and self._sent[0] is not item:
            self._sent.popleft()
        self._drop_if_heard(item)

    def clear(self, now: float) -> list[Truncation]:
        """Stop speaking: drop the queue; the caller of this method tells the carrier to drop its buffer. Returns the
        items that were not heard to their end, in the order in which they were spoken."""
        if not self._mark_returned:
            self._estimate_heard_by_clock(now)
        interrupted = [*self._sent, *(item for item in self._items if not item.sent_ms)]
        truncations = [Truncation(item.id, int(item.heard_ms)) for item in interrupted if not self._fully_heard(item)]
        self._items.clear()
        self._sent.clear()
        self._pending_marks.clear()
        self._generation += 1
        self._sent_until, self._paused = float("-inf"), False
        return truncations

    def busy(self, now: float) -> bool:
        """Whether any audio is queued or still playing. The carrier may play later than the clock says; while marks are
        missing, it is assumed to."""
        self._drop_sent_items()
        return bool(self._items) or now < self._sent_until + (_MAX_CARRIER_DELAY_S if self._pending_marks else 0.0)

    def finished(self, item_id: str, now: float) -> bool:
        """Whether an item was heard to its end, as far as is known."""
        return not any(item.id == item_id for item in self._items) and now >= self._sent_until

    def _ready(self) -> bool:
        if not self._items:
            return False
        item = self._items[0]
        return len(item.waiting) >= self._chunk_bytes or (item.ended and bool(item.waiting))

    def _drop_sent_items(self) -> None:
        while self._items and self._items[0].ended and not self._items[0].waiting:
            self._items.popleft()

    def _next_mark(self, item: _Item, *, last: bool) -> str | None:
        if not self._returns_marks or (item.sent_ms - item.marked_ms < MARK_INTERVAL_MS and not last):
            return None
        item.marked_ms = item.sent_ms
        self._mark_count += 1
        name = f"{self._generation}.{self._mark_count}{END_MARK_SUFFIX if last else ''}"
        self._pending_marks[name] = (item, item.sent_ms)
        if len(self._pending_marks) > _MAX_PENDING_MARKS:
            self._pending_marks.pop(next(iter(self._pending_marks)))
        return name

    def _drop_if_heard(self, item: _Item) -> None:
        if self._fully_heard(item) and self._sent and self._sent[0] is item:
            self._sent.popleft()

    def _fully_heard(self, item: _Item) -> bool:
        return item.ended and not item.waiting and item.heard_ms >= item.sent_ms

    def _estimate_heard_by_clock(self, now: float) -> None:
        """Without marks, audio scheduled before now counts as heard."""
        unheard = max(0.0, self._sent_until - now) * 1000
        for item in reversed(self._sent):
            item.heard_ms = max(0.0, item.sent_ms - unheard)
            unheard = max(0.0, unheard - item.sent_ms)

"""What the caller is to hear: cut into pieces, sent a little ahead of its playing on an absolute clock, and followed to
the caller's ear. Pure: every call says what time it is, in seconds of one clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

MARK_MS = 100
"""Sound between two marks: an interruption cuts the history at the last that was played, so about a word too early."""

END = ".end"
"""How the mark behind an item's last piece ends; our phone simulator knows by it that an answer is complete."""

_LATE_S = 0.5
"""The most that a carrier's playing is behind our clock: its own buffer and the way there and back."""

_ROUNDING_S = 1e-6

_MOST_MARKS = 4096
"""Marks that may wait; a carrier that never returns any is not waited for."""


@dataclass
class _Item:
    """One stretch of speech: an answer, a greeting."""

    id: str
    waiting: bytearray
    ended: bool = False
    sent_ms: float = 0.0
    heard_ms: float = 0.0
    marked_ms: float = 0.0


@dataclass(frozen=True)
class Piece:
    """Sound to send now, and the mark to send behind it."""

    data: bytes
    mark: str | None


@dataclass(frozen=True)
class Cut:
    """An item that was broken off after `heard_ms`."""

    item_id: str
    heard_ms: int


class Playout:
    """The way of one call's answers to the caller.

    Args:
        bytes_per_ms: of the sound.
        silence: a byte of silence, for filling up an item's last piece.
        piece_ms: length of every piece.
        ahead_ms: how much may be sent before it is played.
        marks: whether the carrier returns marks; if not, the clock is believed.
    """

    def __init__(self, bytes_per_ms: int, silence: int, *, piece_ms: int, ahead_ms: int, marks: bool) -> None:
        self._bytes_per_ms, self._silence = bytes_per_ms, silence
        self._size, self._piece_ms, self._ahead = piece_ms * bytes_per_ms, piece_ms, ahead_ms / 1000
        self._marks, self._marks_return = marks, False
        self._items: deque[_Item] = deque()
        self._sent: deque[_Item] = deque()
        self._pending: dict[str, tuple[_Item, float]] = {}
        self._generation = self._named = 0
        self._until = float("-inf")
        self._held = False

    def add(self, item_id: str, data: bytes) -> None:
        """More sound of an item, behind all that waits."""
        if not self._items or self._items[-1].id != item_id:
            self.end()
            self._items.append(_Item(item_id, bytearray()))
        self._items[-1].waiting += data

    def end(self) -> None:
        """The newest item is complete."""
        if self._items:
            self._items[-1].ended = True

    def hold(self, full: bool) -> None:
        """The carrier's buffer is full, or has room again."""
        self._held = full

    def due(self, now: float) -> Iterator[Piece]:
        """Everything that is to be sent by now."""
        piece_s = self._piece_ms / 1000
        while not self._held and self._ready() and max(self._until, now) + piece_s <= now + self._ahead + _ROUNDING_S:
            item = self._items[0]
            data = bytes(item.waiting[: self._size])
            del item.waiting[: self._size]
            if not item.sent_ms:
                self._sent.append(item)
                if not self._marks and len(self._sent) > 2:
                    self._sent.popleft()  # heard long ago: less than two items are sent ahead
            item.sent_ms += len(data) / self._bytes_per_ms
            self._until = max(self._until, now) + piece_s
            last = item.ended and not item.waiting
            yield Piece(data.ljust(self._size, bytes([self._silence])), self._mark(item, last=last))
            self._drop_done()

    def played(self, mark: str) -> None:
        """A mark came back. One that a clear returned belongs to an older generation and says nothing."""
        known = self._pending.pop(mark, None)
        if known is None:
            return
        self._marks_return = True
        item, ms = known
        item.heard_ms = max(item.heard_ms, ms)
        while self._sent and self._sent[0] is not item:
            self._sent.popleft()
        self._forget_heard(item)

    def clear(self, now: float) -> list[Cut]:
        """Fall silent: what waits is dropped, and the carrier is to drop what it has. Returns the items that were not
        heard to their end, in the order of speaking."""
        if not self._marks_return:
            self._believe_the_clock(now)
        broken = [*self._sent, *(item for item in self._items if not item.sent_ms)]
        cuts = [Cut(item.id, int(item.heard_ms)) for item in broken if not self._whole(item)]
        self._items.clear()
        self._sent.clear()
        self._pending.clear()
        self._generation += 1
        self._until, self._held = float("-inf"), False
        return cuts

    def busy(self, now: float) -> bool:
        """Whether anything is waiting or still to be heard: a carrier may be later than the clock says, and as long as
        marks are missing it is believed to be."""
        self._drop_done()
        return bool(self._items) or now < self._until + (_LATE_S if self._pending else 0.0)

    def finished(self, item_id: str, now: float) -> bool:
        """Whether an item was heard to its end, as far as is known."""
        return not any(item.id == item_id for item in self._items) and now >= self._until

    def _ready(self) -> bool:
        if not self._items:
            return False
        item = self._items[0]
        return len(item.waiting) >= self._size or (item.ended and bool(item.waiting))

    def _drop_done(self) -> None:
        while self._items and self._items[0].ended and not self._items[0].waiting:
            self._items.popleft()

    def _mark(self, item: _Item, *, last: bool) -> str | None:
        if not self._marks or (item.sent_ms - item.marked_ms < MARK_MS and not last):
            return None
        item.marked_ms = item.sent_ms
        self._named += 1
        name = f"{self._generation}.{self._named}{END if last else ''}"
        self._pending[name] = (item, item.sent_ms)
        if len(self._pending) > _MOST_MARKS:
            self._pending.pop(next(iter(self._pending)))
        return name

    def _forget_heard(self, item: _Item) -> None:
        if self._whole(item) and self._sent and self._sent[0] is item:
            self._sent.popleft()

    def _whole(self, item: _Item) -> bool:
        return item.ended and not item.waiting and item.heard_ms >= item.sent_ms

    def _believe_the_clock(self, now: float) -> None:
        """Without marks, what lies before now on the clock was heard."""
        unheard = max(0.0, self._until - now) * 1000
        for item in reversed(self._sent):
            item.heard_ms = max(0.0, item.sent_ms - unheard)
            unheard = max(0.0, unheard - item.sent_ms)

"""The conversation so far, holding of each answer only the words that reached the user's ear."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from voice.brain import Message

Role = Literal["system", "user", "assistant"]


class UnknownItem(LookupError):
    """No item of the conversation has this id."""


@dataclass(frozen=True)
class Span:
    """A stretch of an answer's text and the stretch of its audio that speaks it."""

    text: str
    start_ms: float
    end_ms: float

    def heard_until(self, heard_ms: float) -> str:
        """The words of it that were heard to their end, evenly spread over its audio."""
        if heard_ms >= self.end_ms:
            return self.text
        if heard_ms <= self.start_ms:
            return ""
        letters = len(self.text) * (heard_ms - self.start_ms) / (self.end_ms - self.start_ms)
        cut = self.text.rfind(" ", 0, int(letters) + 1)
        return self.text[: max(cut, 0)]


@dataclass
class Item:
    """One message of the conversation.

    Attributes:
        text: everything that was said or written.
        spoken: for what was spoken, either way: it is audio on the wire.
        spans: for an answer, which audio speaks which text.
        heard_ms: how much of the audio was played; None when all of it was.
        complete: whether the message was finished.
    """

    id: str
    role: Role
    text: str = ""
    spoken: bool = True
    spans: list[Span] = field(default_factory=list)
    heard_ms: float | None = None
    complete: bool = False

    @property
    def audio_ms(self) -> float:
        """Length of the answer's audio."""
        return self.spans[-1].end_ms if self.spans else 0.0

    @property
    def heard(self) -> str:
        """The text that reached the user: the words of a clause count as evenly spread over its audio, and a word
        counts once it was heard to its end."""
        if self.heard_ms is None:
            return self.text
        return "".join(span.heard_until(self.heard_ms) for span in self.spans)


class History:
    """The items of one conversation, in order."""

    def __init__(self) -> None:
        self._items: list[Item] = []

    @property
    def items(self) -> tuple[Item, ...]:
        """All items."""
        return tuple(self._items)

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Put `item` at the end, behind the item `after`, or first where that is `root`. Returns the id of the item
        in front of it.

        Raises:
            UnknownItem: there is no item `after`.
            ValueError: the id is taken.
        """
        if any(known.id == item.id for known in self._items):
            raise ValueError(f"an item with the id {item.id!r} is in the conversation already: choose another id")
        at = len(self._items) if after is None else 0 if after == "root" else self._index(after) + 1
        self._items.insert(at, item)
        return self._items[at - 1].id if at else None

    def get(self, item_id: str) -> Item:
        """The item with this id. Raises UnknownItem."""
        return self._items[self._index(item_id)]

    def delete(self, item_id: str) -> None:
        """Take an item out. Raises UnknownItem."""
        del self._items[self._index(item_id)]

    def truncate(self, item_id: str, heard_ms: float) -> None:
        """Keep of an answer what was heard in its first `heard_ms`.

        Raises:
            UnknownItem: no such item.
            ValueError: not an answer, or shorter than that.
        """
        item = self.get(item_id)
        if item.role != "assistant" or not item.spoken:
            raise ValueError(
                f"item {item_id!r} is no spoken answer: only the audio of an assistant's message can be truncated"
            )
        if heard_ms > item.audio_ms:
            raise ValueError(f"item {item_id!r} has {item.audio_ms:.0f} ms of audio, less than {heard_ms:.0f} ms")
        item.heard_ms = heard_ms

    def messages(self, instructions: str) -> list[Message]:
        """What the language model is to know: the instructions, and what both sides said and heard."""
        said = [Message(item.role, item.heard.strip()) for item in self._items]
        return [Message("system", instructions), *(message for message in said if message.content)]

    def _index(self, item_id: str) -> int:
        for at, item in enumerate(self._items):
            if item.id == item_id:
                return at
        raise UnknownItem(f"the conversation has no item {item_id!r}")

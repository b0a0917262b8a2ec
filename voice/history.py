"""The conversation so far. Of each response it passes on only the words that the user heard."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Literal

from agent.capture.commands import SILENCE
from agent.tools.protocol import PENDING_OUTPUT
from chat.types import Message, ToolCall
from voice.continued_turns import UNHEARD_MS, is_continuation, joined
from voice.speech_times import first_words

Role = Literal["system", "user", "assistant"]

_OBJECT_BYTES = 512
"""An item or a span without its text."""

_WORD_BYTES = 36
"""The end of one word, in a tuple."""


class UnknownItem(LookupError):
    """No item of the conversation has this id."""


class NotSpoken(ValueError):
    """An item has no audio that the user could have heard."""


@dataclass(frozen=True)
class Span:
    """A stretch of a response's text, and the stretch of its audio that speaks it.

    Attributes:
        word_ends_ms: when each word that `str.split` finds has been spoken, from the span's start; empty if unknown.
    """

    text: str
    start_ms: float
    end_ms: float
    word_ends_ms: tuple[int, ...] = ()

    def text_heard_by(self, heard_ms: float) -> str:
        """The words of the span that were heard completely by `heard_ms`; if their times are not known, at an even
        speaking rate."""
        if heard_ms >= self.end_ms:
            return self.text
        if heard_ms <= self.start_ms:
            return ""
        if self.word_ends_ms:
            return first_words(self.text, bisect_right(self.word_ends_ms, heard_ms - self.start_ms))
        characters = len(self.text) * (heard_ms - self.start_ms) / (self.end_ms - self.start_ms)
        cut = self.text.rfind(" ", 0, int(characters) + 1)
        return self.text[: max(cut, 0)]


@dataclass
class Item:
    """One message of the conversation.

    Attributes:
        text: the whole text, spoken or written.
        spoken: whether it was spoken, by either side: it is audio on the wire.
        spans: for a response, which audio speaks which text.
        heard_ms: how much of the audio was played; None if all of it was.
        complete: whether the message is finished.
        note: what the language model reads of a message without text.
        goes_on: whether the user began to say it so soon after the turn before that it belongs to that one, unless they
            have heard something in between.
    """

    id: str
    role: Role
    text: str = ""
    spoken: bool = True
    spans: list[Span] = field(default_factory=list)
    heard_ms: float | None = None
    complete: bool = False
    note: str = ""
    goes_on: bool = False

    @property
    def is_turn(self) -> bool:
        """Whether it is what the user said."""
        return self.role == "user" and self.spoken and bool(self.text)

    @property
    def audio_ms(self) -> float:
        """Length of the response's audio."""
        return self.spans[-1].end_ms if self.spans else 0.0

    @property
    def heard_text(self) -> str:
        """The text that the user heard. A word counts once it was heard completely."""
        if self.heard_ms is None:
            return self.text
        return "".join(span.text_heard_by(self.heard_ms) for span in self.spans)


@dataclass
class FunctionCall:
    """A call that a response made.

    Attributes:
        call_id: names the call in its output.
        arguments: JSON text of an object, once `complete`.
        complete: whether the call was made; otherwise it is being generated, or was cancelled before it was complete.
    """

    id: str
    call_id: str
    name: str
    arguments: str = ""
    complete: bool = False

    @property
    def text(self) -> str:
        """What counts towards the size of the conversation."""
        return self.arguments


@dataclass
class FunctionCallOutput:
    """What a called function returned."""

    id: str
    call_id: str
    text: str
    complete: bool = True


HistoryItem = Item | FunctionCall | FunctionCallOutput


def item_bytes(item: HistoryItem) -> int:
    """Bytes of memory that an item takes, about."""
    spans = item.spans if isinstance(item, Item) else ()
    return sum((_span_bytes(span) for span in spans), _OBJECT_BYTES + getsizeof(item.text))


def _span_bytes(span: Span) -> int:
    return _OBJECT_BYTES + getsizeof(span.text) + _WORD_BYTES * len(span.word_ends_ms)


class History:
    """The items of one conversation, in order.

    Args:
        max_bytes: of memory. The oldest items are forgotten if all take more when another is added. None for no limit.
    """

    def __init__(self, items: Iterable[HistoryItem] = (), max_bytes: int | None = None) -> None:
        self._items, self._max_bytes = list(items), max_bytes

    @property
    def items(self) -> tuple[HistoryItem, ...]:
        """All items."""
        return tuple(self._items)

    def add(self, item: HistoryItem, after: str | None = None) -> str | None:
        """Add `item` at the end, after the item `after`, or first if that is `root`. Returns the previous item's id.

        Raises:
            UnknownItem: there is no item `after`.
            ValueError: the id is taken.
        """
        if any(other.id == item.id for other in self._items):
            raise ValueError(f"the conversation already has an item with the id {item.id!r}: choose another id")
        index = len(self._items) if after is None else 0 if after == "root" else self._index(after) + 1
        self._items.insert(index, item)
        previous = self._items[index - 1].id if index else None
        if self._max_bytes is not None:
            over = self.size - self._max_bytes
            while over > 0:
                over -= item_bytes(self._items.pop(0))
        return previous

    @property
    def size(self) -> int:
        """Bytes of memory that the items take."""
        return sum(map(item_bytes, self._items))

    def get(self, item_id: str) -> HistoryItem:
        """The item with this id. Raises UnknownItem."""
        return self._items[self._index(item_id)]

    def delete(self, item_id: str) -> None:
        """Remove an item. Raises UnknownItem."""
        del self._items[self._index(item_id)]

    def truncate(self, item_id: str, heard_ms: float) -> None:
        """Keep only what the user heard in the first `heard_ms` of a response's audio.

        Raises:
            UnknownItem: there is no such item.
            NotSpoken: it is no spoken response.
            ValueError: it is shorter than `heard_ms`.
        """
        item = self.get(item_id)
        if not isinstance(item, Item) or item.role != "assistant" or not item.spoken:
            raise NotSpoken(
                f"item {item_id!r} is not a spoken response: only the audio of an assistant message can be truncated"
            )
        if heard_ms > item.audio_ms:
            raise ValueError(f"item {item_id!r} has {item.audio_ms:.0f} ms of audio, less than {heard_ms:.0f} ms")
        item.heard_ms = heard_ms

    @property
    def assistant_has_spoken(self) -> bool:
        """Whether it has audio of the assistant."""
        return any(isinstance(item, Item) and item.audio_ms > 0 for item in self._items)

    def messages(self, instructions: str, saying: Sequence[Item] = ()) -> list[Message]:
        """The prompt for the language model: the instructions, what each side said and the user heard, and the function
        calls with their outputs.

        Args:
            saying: a turn that the user has not ended.
        """
        return [Message("system", instructions), *_messages([*self._items, *saying])]

    def _index(self, item_id: str) -> int:
        for index, item in enumerate(self._items):
            if item.id == item_id:
                return index
        raise UnknownItem(f"the conversation has no item {item_id!r}")


def _messages(items: Sequence[HistoryItem]) -> Iterable[Message]:
    """One message for each item, but an assistant message takes up the calls that follow it, and a turn what the user
    said when they went on. Every complete call has an output: where a message follows before its function has returned,
    that it is still running."""
    messages: list[Message] = []
    calls: dict[str, bool] = {}  # call id → whether it has an output yet
    turn: int | None = None  # the message of a turn after which the user has heard nothing to react to

    def add_pending_outputs() -> None:
        for call_id in [call_id for call_id, answered in calls.items() if not answered]:
            messages.append(Message("tool", PENDING_OUTPUT, tool_call_id=call_id))
            calls[call_id] = True

    for item in items:
        match item:
            case FunctionCall() if item.complete and item.call_id not in calls:
                calls[item.call_id], turn = False, None
                call = ToolCall(item.call_id, item.name, item.arguments)
                if not messages or messages[-1].role != "assistant":
                    messages.append(Message("assistant", ""))
                last = messages[-1]
                messages[-1] = Message("assistant", last.content, (*last.tool_calls, call))
            case FunctionCallOutput() if item.call_id in calls:
                calls[item.call_id], turn = True, None
                messages.append(Message("tool", item.text, tool_call_id=item.call_id))
            case Item() if text := item.heard_text.strip() or item.note:
                add_pending_outputs()
                if turn is not None and item.goes_on and is_continuation(text):
                    messages[turn:] = [Message("user", joined(messages[turn].content, text))]
                    continue
                messages.append(Message(item.role, text))
                if item.is_turn:
                    turn = len(messages) - 1
                elif item.heard_ms is None or item.heard_ms >= UNHEARD_MS:
                    turn = None
    add_pending_outputs()
    return messages


def silent_turn(seconds: float) -> Item:
    """A turn of the user in which they said nothing."""
    note = f"{SILENCE}{seconds:.0f} seconds.)"
    return Item(new_id("item"), "user", complete=True, note=note)


def new_id(kind: str) -> str:
    """An id in the Realtime protocol's form: `kind_` and 20 hexadecimal digits."""
    return f"{kind}_{uuid.uuid4().hex[:20]}"

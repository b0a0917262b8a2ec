"""What is dropped of a conversation that outgrows the context: its oldest messages, never its instructions or the
newest message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chat.types import Message, Truncation

_RETENTION_RATIO = 0.5
"""Half of the messages are dropped at once, so that this does not happen again at the next turn."""

_MOST_CHARACTERS_PER_TOKEN = 16
"""Prose and code have fewer. Of a longer conversation, messages are dropped before it is encoded."""


def num_instructions(messages: Sequence[Message]) -> int:
    """How many messages at the beginning are instructions, which are never dropped."""
    return next((n for n, message in enumerate(messages) if message.role != "system"), len(messages))


def num_droppable(messages: list[Message]) -> int:
    """How many messages may be dropped: all but the instructions and the newest."""
    return max(0, len(messages) - num_instructions(messages) - 1)


def without_oldest(messages: list[Message], count: int) -> list[Message]:
    """The conversation without the `count` oldest messages that follow its instructions."""
    start = num_instructions(messages)
    return messages[:start] + messages[start + count :]


def num_characters(messages: list[Message]) -> int:
    """Length of all messages."""
    return sum(len(message.content) for message in messages)


def num_dropped_unread(messages: list[Message], count: int, context: int) -> int:
    """How many of the oldest messages to drop, at least `count`, of a conversation that is far too long for so many
    tokens, and not worth encoding."""
    dropped = count
    while (
        dropped < num_droppable(messages)
        and num_characters(without_oldest(messages, dropped)) > context * _MOST_CHARACTERS_PER_TOKEN
    ):
        dropped += 1
    return dropped if dropped == count else _until_user(messages, dropped)


def num_to_drop(messages: list[Message], count: int, ratio: float | None) -> int:
    """How many of the oldest messages to drop if the conversation does not fit without `count` of them.

    Args:
        ratio: share of the others that remains, 0 to 1; None for half.
    """
    droppable = num_droppable(messages) - count
    more = max(1, droppable - int(droppable * (_RETENTION_RATIO if ratio is None else ratio)))
    return _until_user(messages, count + more)


def _until_user(messages: list[Message], count: int) -> int:
    """`count`, or as many more as let the user speak first: many templates refuse an assistant's message or an output
    there. `count` itself if the user says nothing more."""
    rest = messages[num_instructions(messages) :]
    return next((n for n in range(count, len(rest)) if rest[n].role == "user"), count)


@dataclass(frozen=True)
class Dropped:
    """What was dropped from one prompt, and is to stay dropped from the next, so that the cache can be reused.

    Attributes:
        messages: in their order.
        first_kept: the message after them; None if nothing was dropped.
        truncation: what they were dropped for.
    """

    messages: Sequence[Message] = ()
    first_kept: Message | None = None
    truncation: Truncation | None = None

    @staticmethod
    def oldest(messages: list[Message], count: int, truncation: Truncation) -> Dropped:
        """The `count` oldest messages that follow the instructions of a conversation."""
        rest = messages[num_instructions(messages) :]
        return Dropped(rest[:count], rest[count], truncation) if count else Dropped()

    def count(self, messages: list[Message], truncation: Truncation) -> int:
        """How many of the messages that follow the instructions stay dropped: those before `first_kept`, of which some
        may have been deleted. None of another conversation, or for another truncation."""
        if truncation != self.truncation:
            return 0
        rest = messages[num_instructions(messages) :]
        for count in range(min(len(self.messages), num_droppable(messages)), 0, -1):
            if rest[count] == self.first_kept and all(one in self.messages for one in rest[:count]):
                return count
        return 0

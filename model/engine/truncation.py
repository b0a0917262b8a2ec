"""What is dropped of a conversation that outgrows the context: its oldest messages, never its instructions or the
newest message."""

from __future__ import annotations

from collections.abc import Sequence

from chat.types import Message


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

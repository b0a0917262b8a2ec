"""Verbosity: how long a response is, by an instruction to the model. `medium` is its own length.

Nothing is cut off: a limit of tokens would end in the middle of a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

from chat.types import Message
from server.chat_completions.schema import Verbosity

_INSTRUCTIONS: dict[Verbosity, str] = {
    "low": "Answer in one short sentence, without explanations.",
    "high": "Answer at length: explain each point in several sentences, with reasons and examples.",
}


def with_verbosity(messages: Sequence[Message], verbosity: Verbosity | None) -> Sequence[Message]:
    """The conversation with an instruction about the length of the next response."""
    if verbosity is None or verbosity not in _INSTRUCTIONS:
        return messages
    instruction, newest = _INSTRUCTIONS[verbosity], messages[-1]
    if newest.role == "user":  # small models follow what they have read last
        return [*messages[:-1], Message("user", f"{newest.content}\n\n{instruction}")]
    first = messages[0]
    if first.role == "system":
        return [Message("system", f"{first.content}\n\n{instruction}"), *messages[1:]]
    return [Message("system", instruction), *messages]

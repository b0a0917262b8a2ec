"""What may leave this machine in a query: words that the user or the assistant has said. A web page, a document or
another tool's output that tells the language model to send what it has read finds no way out here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agent.matched_text import MAX_COUNTED, MAX_HEARD, for_patterns
from agent.words.language import language
from chat.types import Message

_ENGLISH = language("en")


def said_words(value: Any, conversation: Sequence[Message]) -> Any:
    """An argument of a call with only those words and numbers that somebody has said in a conversation. Without any, a
    text, a list or an object is empty, and a number None."""
    spoken = " ".join(message.content for message in conversation if message.role in ("user", "assistant"))
    heard = for_patterns(spoken, MAX_HEARD, end=True)
    return _kept(value, set(_words(f"{heard} {_ENGLISH.digits_for_words(heard[-MAX_COUNTED:])}")))


def _kept(value: Any, said: set[str]) -> Any:
    if isinstance(value, str):
        return " ".join(part for part in value.split() if (words := _words(part)) and said.issuperset(words))
    if isinstance(value, list):
        return [part for one in value if (part := _kept(one, said)) not in ("", None, [], {})]
    if isinstance(value, dict):
        return {name: part for name, one in value.items() if (part := _kept(one, said)) not in ("", None, [], {})}
    return value if isinstance(value, bool) or said.issuperset(_words(str(value))) else None


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())

"""What may leave this machine in a query: words that the user or the assistant has said. A web page, a document or
another tool's output that tells the language model to send what it has read finds no way out here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.matched_text import MAX_COUNTED, MAX_HEARD, for_patterns
from agent.words.language import language
from chat.types import Message

_ENGLISH = language("en")


def said_words(text: str, conversation: Sequence[Message]) -> str:
    """The words of a text that somebody has said in a conversation; empty if there are none."""
    spoken = " ".join(message.content for message in conversation if message.role in ("user", "assistant"))
    heard = for_patterns(spoken, MAX_HEARD, end=True)
    said = set(_words(f"{heard} {_ENGLISH.digits_for_words(heard[-MAX_COUNTED:])}"))
    return " ".join(part for part in text.split() if (words := _words(part)) and said.issuperset(words))


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())

"""What may leave this machine in a query: words that the user or the assistant has said. A web page, a document or
another tool's output that tells the language model to send what it has read finds no way out here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.matched_text import MAX_COUNTED, MAX_HEARD, for_patterns, words_of
from agent.words.language import language
from chat.types import Message

_ENGLISH = language("en")

_NOTHING: tuple[Any, ...] = ("", None, [], {})


def said_words(value: Any, conversation: Sequence[Message], schema: Any = None) -> Any:
    """An argument of a call with only those words and numbers that somebody has said in a conversation. Without any, a
    text, a list or an object is empty, and a number None.

    Args:
        schema: the function's, or several; the names of their properties are kept, too.
    """
    spoken = " ".join(message.content for message in conversation if message.role in ("user", "assistant"))
    heard = for_patterns(spoken, MAX_HEARD, end=True)
    said = set(words_of(f"{heard} {_ENGLISH.digits_for_words(heard[-MAX_COUNTED:])}"))
    return _kept(value, said, set(_declared(schema)))


def _kept(value: Any, said: set[str], names: set[str]) -> Any:
    if isinstance(value, str):
        return " ".join(part for part in value.split() if (words := words_of(part)) and said.issuperset(words))
    if isinstance(value, list):
        return [part for one in value if (part := _kept(one, said, names)) not in _NOTHING]
    if isinstance(value, dict):
        own = {key: one for key, one in value.items() if key in names or _kept(key, said, names) == key}
        return {key: part for key, one in own.items() if (part := _kept(one, said, names)) not in _NOTHING}
    return value if isinstance(value, bool) or said.issuperset(words_of(str(value))) else None


def _declared(schema: Any) -> Iterator[str]:
    """The names of properties anywhere in a schema."""
    if isinstance(schema, Mapping):
        properties = schema.get("properties")
        yield from properties if isinstance(properties, Mapping) else ()
    for part in schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ():
        yield from _declared(part)

"""Whether a call is named only by what the user dictates: "Write down: unlock the door" unlocks nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from agent.matched_text import are_related, named_in, words_of

_OUTER = 2
"""Words that precede a text that is dictated."""


def is_quoted(function: str, said: str, texts: Collection[str]) -> bool:
    """Whether the words of a function's name occur in what the user said only within texts that another call keeps.

    Args:
        function: its name.
        said: by the user.
        texts: arguments of the other call, quoted from it.
    """
    inside = Counter(words_of(" ".join(texts)))
    outside = Counter(words_of(said)) - inside
    named = named_in(function)
    return _mention(named, inside) and not _mention(named, outside)


def may_be_quoted(function: str, said: str) -> bool:
    """Whether `is_quoted` may hold for some text: one that is kept follows a verb and what it is ("write down", "note
    that"), so the function is named after two words, and not in them."""
    words, named = words_of(said), named_in(function)
    return _mention(named, words[_OUTER:]) and not _mention(named, words[:_OUTER])


def _mention(named: Collection[str], words: Collection[str]) -> bool:
    return any(are_related(one, word) for one in named for word in words)

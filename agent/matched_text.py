"""Text from outside as regular expressions get it: runs of white space are one space, and it has a maximum length.

Only patterns read this text; the language model reads all of it. tests/test_patterns.py times every pattern at these
lengths."""

from __future__ import annotations

import re

MAX_SAID = 600
"""Characters of what a user says or types: 100 words, or 40 seconds of speech. Nobody asks for a timer or a sum in more
of them. Of a longer text patterns see the beginning and the end, where people ask for something. A pattern that tries
every pair of positions takes 5 to 15 ms for this length."""

MAX_HEARD = 50_000
"""Characters of a conversation in which an argument is looked for: more than the context of the bundled models. The
patterns over it take linear time."""

MAX_COUNTED = 5000
"""Characters in which numbers in words are looked for."""

MAX_DESCRIPTION = 4000
"""Characters of a tool's description, which clients and MCP servers write."""

MAX_VALUE = 320
"""Characters of an argument that may be an e-mail address (254 at most) or a number."""

MAX_BLOCK = 4000
"""Characters of a paragraph of a document, and of a result from the web."""

MAX_ERROR = 500
"""Characters of an error that another server reports."""

MAX_LOG_MESSAGE = 4000
"""Characters of a message in the log. The middle of a longer one is left out."""

_LEAST_RELATED = 4
"""Characters that related words share."""

_OMISSION = " … "


def for_patterns(text: str, limit: int = MAX_SAID, *, end: bool = False) -> str:
    """The text, normalized and cut to a length: of a longer one, its beginning and its end remain.

    Args:
        limit: one of the lengths above, in characters.
        end: only the end remains, where the last words count.
    """
    text = " ".join(_cut(text, 4 * limit, end).split())  # not all of a very long text is worth normalizing
    return _cut(text, limit, end)


def words_of(text: str) -> list[str]:
    """The words and numbers of a text in lower case, without punctuation."""
    return re.findall(r"[^\W_]+", text.lower())


def named_in(function: str) -> list[str]:
    """The words of a function's name: `unlockDoor`, `unlock_door`."""
    return words_of(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", function))


def are_related(one: str, other: str) -> bool:
    """Whether two words are one, or one continues the other: "unlock", "unlocked"."""
    shorter, longer = sorted((one, other), key=len)
    return one == other or (len(shorter) >= _LEAST_RELATED and longer.startswith(shorter))


def is_cut(text: str) -> bool:
    """Whether a result of `for_patterns` is not the whole text, or just as long as it may be."""
    return len(text) >= MAX_SAID


def _cut(text: str, limit: int, end: bool) -> str:
    if len(text) <= limit:
        return text
    if end:
        return text[-limit:]
    half = (limit - len(_OMISSION)) // 2
    return text[: limit - len(_OMISSION) - half] + _OMISSION + text[-half:]

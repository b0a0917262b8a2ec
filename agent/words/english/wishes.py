"""How the user wants to be answered: not at all ("Stop.", "Never mind."), or at length ("Tell me a story.")."""

from __future__ import annotations

import re

_DISMISSALS = frozenset(
    {
        "stop", "stop it", "stop that", "stop talking", "stop now", "stop there", "stop right there", "never mind",
        "nevermind", "never mind that", "never mind then", "forget it", "forget that", "forget about it",
        "forget about that", "forget i asked", "forget i said anything", "be quiet", "quiet", "hush", "shush",
        "shut up", "enough", "that's enough", "that is enough", "enough of that", "drop it", "leave it", "skip it",
        "it doesn't matter", "doesn't matter", "it's nothing", "nothing",
    }
)  # fmt: skip
_COURTESY = frozenset(
    "oh okay ok well um uh please actually sorry no just alright right hey thanks thank you now yeah".split()
)
_MAX_WORDS = 8

_LENGTH = re.compile(
    r"\b(?:stor(?:y|ies)|tales?|poems?|songs?|rap|lyrics|limericks?|speech|essay|recite|alphabet|detail(?:s|ed)?|"
    r"at length|in full|(?:long|longer|full|complete) (?:answer|version|explanation|list)|list (?:all|of)|"
    r"(?:everything|all) (?:about|there is|you know|of them)|step by step|letter by letter|count (?:to|from|down|up)|"
    r"(?:tell|say) me more|elaborate|whole thing)\b",
    re.IGNORECASE,
)


def is_dismissal(text: str) -> bool:
    """See `agent.words.language.Language`."""
    kept = (character if character.isalnum() or character in "'’" else " " for character in text.lower())
    words = "".join(kept).replace("’", "'").split()
    if len(words) > _MAX_WORDS:
        return False
    begin, end = 0, len(words)
    for _ in words:
        if " ".join(words[begin:end]) in _DISMISSALS:
            return True
        if begin < end and words[begin] in _COURTESY:
            begin += 1
        elif begin < end and words[end - 1] in _COURTESY:
            end -= 1
    return " ".join(words[begin:end]) in _DISMISSALS


def wants_length(text: str) -> bool:
    """See `agent.words.language.Language`."""
    return _LENGTH.search(text) is not None

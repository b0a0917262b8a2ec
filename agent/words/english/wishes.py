"""How the user wants to be answered: not at all ("Stop."), again ("Pardon?"), in another manner ("Speak up!"), or at
length ("Tell me a story.")."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.words.language import Manner

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
_REPETITIONS = frozenset(
    {
        "say that again", "say it again", "say again", "repeat that", "repeat it", "repeat", "repeat yourself",
        "repeat what you said", "what did you say", "what did you just say", "what was that", "what was that again",
        "what was that you said", "what was that you just said", "pardon", "pardon me", "come again",
        "sorry what", "i didn't catch that", "i didn't hear that", "i didn't hear you", "i didn't get that",
        "i missed that", "say that one more time", "once more", "one more time", "say that once more",
        "run that by me again",
    }
)  # fmt: skip
_REQUESTS_TO_REPEAT = frozenset(
    {
        "say that again", "say it again", "repeat that", "repeat it", "what did you say", "what did you just say",
        "say that one more time", "say that once more", "i didn't catch that", "i didn't hear that",
        "i didn't hear you",
    }
)  # fmt: skip
"""Those that mean the assistant also after another sentence: "I was at the door. Can you say that again?" """
_REPETITIONS_ALONE = frozenset({"what", "huh", "again"})
_EXCLAMATIONS = frozenset("oh um uh sorry please".split())
_REQUEST = frozenset("can could would will you".split())
_MAX_WORDS = 8
_MAX_REASON = 12
"""Words with which users say why they wish something."""

_REASONS = frozenset(
    "i i'm i'll i've i'd my we we're there the someone somebody hold hang wait whoa hey yes ouch".split()
)
"""First words of reasons, which are neither questions nor tasks."""

_COMPARATIVES: dict[str, Manner] = {
    "slower": "slower", "more slowly": "slower", "faster": "faster", "more quickly": "faster", "louder": "louder",
    "more loudly": "louder", "quieter": "quieter", "more quietly": "quieter", "more softly": "quieter",
}  # fmt: skip
_ADVERBS: dict[str, Manner] = {
    "slowly": "slower", "quicker": "faster", "quietly": "quieter", "softly": "quieter", "softer": "quieter",
    "loudly": "louder", "normally": "normal", "at normal speed": "normal", "in your normal voice": "normal",
}  # fmt: skip
_COMMANDS: dict[str, Manner] = {
    "slow down": "slower", "slow it down": "slower", "not so fast": "slower", "not so quick": "slower",
    "not so quickly": "slower", "don't speak so fast": "slower", "don't talk so fast": "slower",
    "speed up": "faster", "not so slow": "faster", "not so slowly": "faster", "speak up": "louder",
    "raise your voice": "louder", "not so quiet": "louder", "not so quietly": "louder", "lower your voice": "quieter",
    "keep your voice down": "quieter", "not so loud": "quieter", "not so loudly": "quieter",
}  # fmt: skip
_TOO: dict[str, Manner] = {
    "fast": "slower", "quickly": "slower", "quick": "slower", "slow": "faster", "slowly": "faster", "loud": "quieter",
    "loudly": "quieter", "quiet": "louder", "quietly": "louder", "softly": "louder",
}  # fmt: skip
_SPEAK = ("speak", "talk", "say it", "say that", "repeat that", "repeat it", "say that again", "say it again",
          "repeat", "again", "once more", "say that once more", "speak again")  # fmt: skip
_YOU_ARE = ("you're", "you are", "you were", "you're speaking", "you're talking", "you are speaking", "you speak",
            "you are talking", "you talk", "you're going", "that was")  # fmt: skip
_MANNERS: dict[str, Manner] = {
    **_COMMANDS,
    **{
        f"{before} {how}".strip(): manner
        for how, manner in _COMPARATIVES.items()
        for before in ("", "go", "be", *_SPEAK)
    },
    **{f"{speak} {how}": manner for how, manner in _ADVERBS.items() for speak in _SPEAK},
    **{f"{who} too {how}".strip(): manner for how, manner in _TOO.items() for who in ("", *_YOU_ARE)},
}
"""All sentences that only wish for another manner of speaking, without degrees and courtesies."""

_DEGREES = frozenset("a bit little lot much even slightly tiny somewhat way far still".split())
_REPEATING = frozenset("say repeat again once".split())

_LONG = frozenset(
    "story stories tale tales poem poems song songs rap lyrics limerick limericks speech essay recite alphabet detail "
    "details detailed elaborate".split()
)
_AT_LENGTH = (
    "at length", "in full", "long answer", "longer answer", "full answer", "full version", "complete list", "full list",
    "long explanation", "list all", "everything about", "all about", "all of them", "everything you know",
    "step by step", "letter by letter", "count to", "count from", "count down", "count up", "tell me more", "say more",
    "whole thing",
)  # fmt: skip


def is_dismissal(text: str) -> bool:
    """See `agent.words.language.Language`."""
    return _is_one_of(_DISMISSALS, text, _COURTESY)


def asks_to_repeat(text: str) -> bool:
    """See `agent.words.language.Language`."""
    if wanted_manner(text) is not None:
        return not _REPEATING.isdisjoint(_words(text))
    if _is_one_of(_REPETITIONS_ALONE, text, _EXCLAMATIONS):
        return True
    if _is_one_of(_REPETITIONS, text, _COURTESY, before=_COURTESY | _REQUEST):
        return True
    *others, (last, _) = _parts(text)
    wish = _is_one_of(_REQUESTS_TO_REPEAT, last, _COURTESY, before=_COURTESY | _REQUEST)
    return wish and _are_reasons(others)


def _is_one_of(
    sentences: frozenset[str], text: str, courtesy: frozenset[str], before: frozenset[str] = frozenset()
) -> bool:
    """Whether a text is one of these sentences, but for polite words around it, or those `before` it."""
    words = _words(text)
    if len(words) > _MAX_WORDS:
        return False
    is_polite, begins = [word in courtesy for word in words], [word in (before or courtesy) for word in words]
    return any(
        " ".join(words[begin:end]) in sentences
        for begin in range(len(words))
        for end in range(begin + 1, len(words) + 1)
        if all(begins[:begin]) and all(is_polite[end:])
    )


def wanted_manner(text: str) -> Manner | None:
    """See `agent.words.language.Language`."""
    if manner := _manner(text):
        return manner
    parts = _parts(text)
    if _are_reasons(parts[1:]) and (manner := _manner(parts[0][0])):
        return manner
    return _manner(parts[-1][0]) if _are_reasons(parts[:-1]) else None


def _manner(text: str) -> Manner | None:
    words = [word for word in _words(text) if word == "you" or word not in _COURTESY | {"and", "but"}]
    if words[1:2] == ["you"] and words[0] in _REQUEST:
        del words[:2]
    return _MANNERS.get(" ".join(word for word in words if word not in _DEGREES))


def wants_length(text: str) -> bool:
    """See `agent.words.language.Language`."""
    words = _words(text)
    return not _LONG.isdisjoint(words) or any(f" {phrase} " in f" {' '.join(words)} " for phrase in _AT_LENGTH)


def _parts(text: str) -> list[tuple[str, str]]:
    """The parts of a text, each with the mark that ends it; at least one."""
    parts = re.findall(r"([^.,;!?]*)([.,;!?]?)", text)
    return [(part, mark) for part, mark in parts if _words(part)] or [("", "")]


def _are_reasons(parts: Sequence[tuple[str, str]]) -> bool:
    """Whether these parts only say why the user wishes something, in statements."""
    words = [word for word in _words(" ".join(part for part, _ in parts)) if word not in _COURTESY | {"pardon"}]
    if not words:
        return bool(parts)
    return len(words) <= _MAX_REASON and words[0] in _REASONS and all(mark != "?" for _, mark in parts)


def _words(text: str) -> list[str]:
    kept = (character if character.isalnum() or character in "'’" else " " for character in text.lower())
    return "".join(kept).replace("’", "'").split()

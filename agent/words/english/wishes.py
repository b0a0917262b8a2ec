"""How the user wants to be answered: not at all ("Stop."), again ("Pardon?"), in another manner ("Speak up!"), or at
length ("Tell me a story.")."""

from __future__ import annotations

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
_AFTER_OTHERS = _REPETITIONS - {"what was that", "what was that again", "repeat", "once more", "one more time"}
"""The last sentence after others: "I was at the door. Can you say that again?" """
_REPETITIONS_ALONE = frozenset({"what", "huh", "again"})
_EXCLAMATIONS = frozenset("oh um uh sorry please".split())
_REQUEST = frozenset("can could would will you".split())
_MAX_WORDS = 8
_MAX_OTHER_WORDS = 12
"""Of what users say before or after such a sentence, usually why they say it."""

_MANNERS: dict[str, Manner] = {
    "slower": "slower", "slowly": "slower", "slow down": "slower", "not so fast": "slower", "not so quick": "slower",
    "not so quickly": "slower",
    "faster": "faster", "quicker": "faster", "more quickly": "faster", "speed up": "faster", "not so slow": "faster",
    "not so slowly": "faster", "louder": "louder", "more loudly": "louder", "speak up": "louder",
    "not so quietly": "louder", "not so quiet": "louder", "quieter": "quieter", "quietly": "quieter",
    "more quietly": "quieter", "softer": "quieter", "more softly": "quieter", "not so loud": "quieter",
    "not so loudly": "quieter", "lower your voice": "quieter", "raise your voice": "louder",
    "keep your voice down": "quieter", "normally": "normal", "normal": "normal", "at normal speed": "normal",
    "in your normal voice": "normal",
}  # fmt: skip
_TOO: dict[str, Manner] = {
    "fast": "slower", "quickly": "slower", "quick": "slower", "slow": "faster", "slowly": "faster", "loud": "quieter",
    "loudly": "quieter", "quiet": "louder", "quietly": "louder", "soft": "louder", "softly": "louder",
}  # fmt: skip
_DEGREES = frozenset("a bit little lot much even more slightly tiny somewhat way far".split())
_SPEAKING = ("speak", "talk", "say it", "say that", "repeat that", "repeat it", "go", "be", "say that again",
             "say it again", "again", "once more", "say that once more", "repeat", "speak again")  # fmt: skip
_REPEATING = frozenset("say repeat again once".split())
_YOU_ARE = ("you're", "you are", "you're speaking", "you're talking", "you are speaking", "you are talking",
            "you speak", "you talk", "that's", "that is", "that was", "it's", "")  # fmt: skip

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
    manner = wanted_manner(text)
    if manner is not None:
        return manner in ("slower", "louder") or not _REPEATING.isdisjoint(_words(text))
    *others, last = _parts(text, ".!?")
    if 0 < len(_words(" ".join(others))) <= _MAX_OTHER_WORDS:
        return _is_one_of(_AFTER_OTHERS, last, _COURTESY, before=_COURTESY | _REQUEST)
    alone = _is_one_of(_REPETITIONS_ALONE, text, _EXCLAMATIONS)
    return alone or _is_one_of(_REPETITIONS, text, _COURTESY, before=_COURTESY | _REQUEST)


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
    manner = _manner(text)
    first, *others = _parts(text, ".,;!?")
    if manner is None and len(_words(first)) > 1 and len(_words(" ".join(others))) <= _MAX_OTHER_WORDS:
        manner = _manner(first) if " too " not in f" {first.lower()}" else None
    return manner


def _manner(text: str) -> Manner | None:
    words = [word for word in _words(text) if word == "you" or word not in _COURTESY | {"and", "but"}]
    if words[1:2] == ["you"] and words[0] in _REQUEST:
        del words[:2]
    if len(words) > _MAX_WORDS:
        return None
    for begin in range(len(words)):
        how = " ".join(words[begin:])
        before = " ".join(word for word in words[:begin] if word not in _DEGREES)
        if how in _MANNERS and before in ("", *_SPEAKING):
            return _MANNERS[how]
        if words[begin] == "too" and " ".join(words[begin + 1 :]) in _TOO and before in _YOU_ARE:
            return _TOO[" ".join(words[begin + 1 :])]
    return None


def wants_length(text: str) -> bool:
    """See `agent.words.language.Language`."""
    words = _words(text)
    return not _LONG.isdisjoint(words) or any(f" {phrase} " in f" {' '.join(words)} " for phrase in _AT_LENGTH)


def _parts(text: str, ends: str) -> list[str]:
    """The parts of a text between these marks, at least one."""
    for end in ends:
        text = text.replace(end, "\n")
    return [part for part in text.split("\n") if part.strip()] or [""]


def _words(text: str) -> list[str]:
    kept = (character if character.isalnum() or character in "'’" else " " for character in text.lower())
    return "".join(kept).replace("’", "'").split()

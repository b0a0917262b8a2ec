"""What a dictation will probably be once it is cleaned up. The language model's tokens are drafted from it, so it
decides how soon the text is ready, never what it says.

A draft goes on where the text has left words of it out, so a word too many costs less here than one that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent.words.english.number_words import cardinal, ordinal

_ORDINALS = tuple((ordinal(n), f"{ordinal(n)}ly", cardinal(n), str(n)) for n in range(1, 7))

COUNTED = ("number", "step", "point", "item")
"""Words before "one" and "two" where these number an item."""

_NEXT = frozenset("then next finally lastly last".split())
"""Words that begin an item after the first one."""

_NO_PAUSE_AFTER = frozenset(
    "a an the this my your our to of in on at for with and or but we'll i'll i we".split()
)  # fmt: skip
"""Words after which a comma is left of a hesitation."""

HESITATIONS = frozenset("um uh er erm uhm hm hmm".split())
"""Sounds that are no words."""

SENTENCE_ENDS = (".", "?", "!")

_REPEATED = 4
"""Words that a speaker repeats at once, at most: "Can we, can we meet"."""


def expected_text(said: str) -> str:
    """The text without "you know" and immediate repetitions, and with its enumeration as a list."""
    words = [word.rstrip(",") if plain_word(word) in _NO_PAUSE_AFTER else word for word in said.split()]
    words = _without_repetitions([word for word in _without_asides(words) if word])
    return _capital(_numbered(words) or _bulleted(words) or " ".join(words))


def _without_asides(words: Sequence[str]) -> list[str]:
    kept, place = list[str](), 0
    while place < len(words):
        is_aside = [plain_word(word) for word in words[place : place + 2]] == ["you", "know"]
        if is_aside and (words[place + 1].endswith(",") or (kept and kept[-1].endswith(","))):
            if kept:
                kept[-1] = kept[-1].rstrip(",") + ("." if words[place + 1].endswith(SENTENCE_ENDS) else "")
            place += 2
        else:
            kept.append(words[place])
            place += 1
    return kept


def _without_repetitions(words: Sequence[str]) -> list[str]:
    kept, place = list(words), 0
    while place < len(kept):
        longest = min(_REPEATED, (len(kept) - place) // 2)
        length = next((n for n in range(longest, 0, -1) if _is_repeated(kept[place : place + 2 * n])), 0)
        if length:
            if kept[place][0].isupper():
                kept[place + length] = _capital(kept[place + length])
            del kept[place : place + length]
        else:
            place += 1
    return kept


def _is_repeated(words: Sequence[str]) -> bool:
    """Whether the second half repeats the first one. "555 555" and "It was fine. It was" are meant."""
    middle, plain = len(words) // 2, [plain_word(word) for word in words]
    if plain[:middle] != plain[middle:] or any(word.endswith(SENTENCE_ENDS) for word in words[:middle]):
        return False
    return all(word.isascii() and word and not word.isdigit() for word in plain)


def _numbered(words: Sequence[str]) -> str:
    """The list of "first … second …" or "number one … number two …"; empty if there is none."""
    markers = list(_markers(words))
    if len(markers) < 2:
        return ""
    ends = [place for place, _ in markers[1:]] + [len(words)]
    items = [" ".join(words[place + n : end]).rstrip(" ,;") for (place, n), end in zip(markers, ends, strict=True)]
    if not all(items):
        return ""
    ended = [one if one.endswith(SENTENCE_ENDS) else f"{one}." for one in map(_capital, items)]
    return _list(words[: markers[0][0]], [f"{number}. {one}" for number, one in enumerate(ended, 1)])


def _markers(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where the words begin that number an item, and how many these are."""
    count = 0
    for place, word in enumerate(words):
        follows_pause = place == 0 or words[place - 1][-1] in ",.:;?!"
        if not follows_pause or count == len(_ORDINALS):
            continue
        joint = 1 if plain_word(word) == "and" else 0
        if length := _marker_length(words[place + joint : place + joint + 2], count):
            yield place, joint + length
            count += 1


def _marker_length(words: Sequence[str], count: int) -> int:
    """How many of these two words number an item, after `count` other ones; 0 if they do not."""
    first, second = (plain_word(word) for word in [*words, "", ""][:2])
    ordinal, adverb, *numbers = _ORDINALS[count]
    pairs = [(ordinal, "one"), (ordinal, "item"), *((counted, number) for counted in COUNTED for number in numbers)]
    if (first, second) in pairs or (count and (first, second) in (("after", "that"), ("next", "item"))):
        return 2
    is_alone = first in (ordinal, adverb) or (count and first in _NEXT)
    return 1 if is_alone or (first in numbers and words[0].endswith((",", ":"))) else 0


def _bulleted(words: Sequence[str]) -> str:
    """The list of what follows a colon, between commas; empty if there is none."""
    colon = next((place for place, word in enumerate(words) if word.endswith(":")), len(words))
    items = [item.removeprefix("and ") for item in " ".join(words[colon + 1 :]).split(", ") if item != "and"]
    if len(items) < 2 or not all(items) or any(word.endswith(SENTENCE_ENDS) for word in words[colon + 1 : -1]):
        return ""
    return _list(words[: colon + 1], [f"- {_capital(item.rstrip('.'))}" for item in items])


def _list(lead: Sequence[str], lines: Sequence[str]) -> str:
    before = " ".join(lead)
    if before and not before.endswith(("?", "!")):
        before = f"{before.rstrip(' ,.:;')}:"
    return "\n".join([before, *lines] if before else lines)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def plain_word(word: str) -> str:
    """A word in lower case, without punctuation."""
    return "".join(character for character in word.lower() if character.isalnum() or character == "'")

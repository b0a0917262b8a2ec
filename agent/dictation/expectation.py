"""What a dictation will probably be once it is cleaned up. The language model's tokens are drafted from it, so it
decides how soon the text is ready, never what it says."""

from __future__ import annotations

from collections.abc import Sequence

_ORDINALS = tuple(
    zip(
        "first second third fourth fifth sixth".split(),
        "firstly secondly thirdly fourthly fifthly sixthly".split(),
        "one two three four five six".split(),
        "123456",
        strict=True,
    )
)
_COUNTED = ("number", "step", "point", "item")
"""Words before "one" and "two" where these number an item."""

_NEXT = frozenset("then next finally lastly last".split())
"""Begin an item after the first one, as "after that" does."""

_NO_PAUSE_AFTER = frozenset("a an the this my your our to of in on at for with and or but we'll i'll i we".split())
"""Words after which a comma is left of a hesitation."""

_REPEATED = 4
"""Words that a speaker repeats at once, at most: "Can we, can we meet"."""


def expected_text(said: str) -> str:
    """The text without "you know" and immediate repetitions, and with its enumeration as a list."""
    words = [word.rstrip(",") if _plain(word) in _NO_PAUSE_AFTER else word for word in said.split()]
    words = _without_repetitions(_without_asides(words))
    return _capital(_numbered(words) or _bulleted(words) or " ".join(words))


def _without_asides(words: Sequence[str]) -> list[str]:
    kept, rest = list[str](), list(words)
    while rest:
        is_aside = [_plain(word) for word in rest[:2]] == ["you", "know"]
        if is_aside and (not kept or kept[-1].endswith(",") or rest[1].endswith(",")):
            if kept:
                kept[-1] = kept[-1].rstrip(",") + ("." if rest[1][-1] in ".?!" else "")
            del rest[:2]
        else:
            kept.append(rest.pop(0))
    return kept


def _without_repetitions(words: Sequence[str]) -> list[str]:
    kept, place = list(words), 0
    while place < len(kept):
        plain = [_plain(word) for word in kept[place : place + 2 * _REPEATED]]
        length = next((n for n in range(_REPEATED, 0, -1) if plain[:n] == plain[n : 2 * n]), 0)
        if length:
            if kept[place][0].isupper():
                kept[place + length] = _capital(kept[place + length])
            del kept[place : place + length]
        else:
            place += 1
    return kept


def _numbered(words: Sequence[str]) -> str:
    """The list of "first … second …" or "number one … number two …"; empty if there is none."""
    starts = list[tuple[int, int]]()
    """Where an item's number begins, and where the item does."""
    for place in range(len(words)):
        follows_pause = place == 0 or words[place - 1][-1] in ",.:;?!"
        if follows_pause and (length := _marker_length(words[place : place + 3], len(starts))):
            starts.append((place, place + length))
    if len(starts) < 2:
        return ""
    ends = [begins for begins, _ in starts[1:]] + [len(words)]
    items = [" ".join(words[begins:end]).rstrip(" ,;") for (_, begins), end in zip(starts, ends, strict=True)]
    lines = [f"{number}. {_capital(item)}{'' if item[-1:] in '.?!' else '.'}" for number, item in enumerate(items, 1)]
    return _list(words[: starts[0][0]], lines)


def _marker_length(words: Sequence[str], count: int) -> int:
    """How many of these words number an item, after `count` other ones; 0 if they do not."""
    if count == len(_ORDINALS):
        return 0
    joint = int(_plain(words[0]) == "and")
    first, second = [*map(_plain, words[joint:]), "", ""][:2]
    ordinal, adverb, *numbers = _ORDINALS[count]
    if (first in _COUNTED and second in numbers) or (first == ordinal and second in ("one", "item")):
        return joint + 2
    if first in (ordinal, adverb) or (first in numbers and words[joint].endswith((",", ":"))):
        return joint + 1
    if count and (first in _NEXT or (first, second) == ("after", "that")):
        return joint + (2 if second in ("that", "item") else 1)
    return 0


def _bulleted(words: Sequence[str]) -> str:
    """The list of what follows a colon, between commas; empty if there is none."""
    colon = next((place for place, word in enumerate(words) if word.endswith(":")), len(words))
    items = [item.removeprefix("and ") for item in " ".join(words[colon + 1 :]).split(", ") if item != "and"]
    if len(items) < 2:
        return ""
    return _list(words[: colon + 1], [f"- {_capital(item.rstrip('.'))}" for item in items])


def _list(lead: Sequence[str], lines: Sequence[str]) -> str:
    return "\n".join([f"{' '.join(lead).rstrip(' ,.:;')}:", *lines] if lead else lines)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _plain(word: str) -> str:
    return "".join(character for character in word.lower() if character.isalnum() or character == "'")

"""Letters as people spell them: single letters, the radiotelephony alphabet, and "B as in Bravo". English."""

from __future__ import annotations

import re

from agent.words.language import language

_ENGLISH = language("en")

RADIO_ALPHABET = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyz",
        "Alpha Bravo Charlie Delta Echo Foxtrot Golf Hotel India Juliet Kilo Lima Mike November Oscar Papa Quebec "
        "Romeo Sierra Tango Uniform Victor Whiskey X-ray Yankee Zulu".split(),
        strict=True,
    )
)
"""The ICAO radiotelephony alphabet, which is read back where single letters were misheard."""

_RADIO_WORDS = {word.lower(): letter for letter, word in RADIO_ALPHABET.items()} | {
    "alfa": "a", "juliett": "j", "whisky": "w", "xray": "x", "x-ray": "x",
}  # fmt: skip

_LETTER_NAMES = {
    "ay": "a", "bee": "b", "be": "b", "cee": "c", "see": "c", "sea": "c", "dee": "d", "ee": "e", "ef": "f", "eff": "f",
    "gee": "g", "aitch": "h", "haitch": "h", "eye": "i", "jay": "j", "kay": "k", "el": "l", "ell": "l", "em": "m",
    "en": "n", "oh": "o", "owe": "o", "pee": "p", "pea": "p", "cue": "q", "queue": "q", "ar": "r", "are": "r",
    "ess": "s", "tee": "t", "tea": "t", "you": "u", "vee": "v", "ex": "x", "why": "y", "wye": "y", "zee": "z",
    "zed": "z",
}  # fmt: skip
"""How a recognizer may write a letter. Some are words as well, so they count only among other letters."""

_REPEATS = {"double": 2, "triple": 3}
_SILENT = frozenset("capital uppercase lowercase letter small the and then comma".split())
_AS_IN = re.compile(
    r"\b(?P<letter>[^\W\d_]{1,5})[,.]? (?P<by>(?:as|is|like|has) in|as for|as|for|like)(?: an?| the)? "
    r"(?P<word>[^\W\d_]{2,})"
)
_SYMBOLS = {"hyphen": "-", "dash": "-", "apostrophe": "'", "space": " "}


def spelled_letters(text: str, *, alone: bool = False) -> str:
    """The letters, and digits, that a text spells: "S, M as in Mike, double T" is `smtt`. In "M as in Nancy" the word
    counts: a recognizer mishears letters more often than words. Empty if the text spells nothing.

    Args:
        alone: one letter is enough; otherwise it takes two, or one with its word.
    """
    plain = text.lower().replace("’", "'")
    plain = re.sub(r"\b(?:upper|lower) case\b", " ", plain)
    plain = re.sub(r"\bdouble[ -](?:u|you)\b", "w", plain)
    plain = re.sub(r"\bx[ -]ray\b", "xray", plain)
    by_word = [match for match in _AS_IN.finditer(plain) if _is_spelled(match["letter"]) or _is_misheard(match)]
    for match in reversed(by_word):
        plain = f"{plain[: match.start()]} {match['word'][0]} {plain[match.end() :]}"
    found = re.findall(r"[^\W_]+(?:'[^\W\d_]+)*|'", plain)
    words = [token for token in found if not _may_be_spelled(token)]
    letters = [token for token in found if len(token) == 1 and token.isalpha()]
    if words and not by_word and len([letter for letter in letters if letter not in "ai"]) < 2:
        return ""  # a sentence: "I see a man"
    with_names = not words and (len(letters) > 0 or alone)
    out, count, i = "", 0, 0
    while i < len(found):
        times = 1
        if found[i] in _REPEATS and i + 1 < len(found):
            times, i = _REPEATS[found[i]], i + 1
        character = _character(found[i], with_names=with_names, inside=count > 0 or with_names)
        if character:
            out, count = out + character * times, count + 1
        i += 1
    return out if count >= 2 or (count and (alone or by_word)) else ""


def _is_misheard(match: re.Match[str]) -> bool:
    """Whether this is "B as in Bravo" with another word for the letter ("and as in November")."""
    return match["by"] == "as in" or (match["by"].endswith(" in") and match["word"] in _RADIO_WORDS)


def _may_be_spelled(token: str) -> bool:
    """Whether a token may be part of a spelling."""
    known = token in _SILENT or token in _REPEATS or token in _SYMBOLS or _is_spelled(token)
    return known or bool(_ENGLISH.spoken_digits(token))


def _is_spelled(token: str) -> bool:
    return len(token) == 1 or token in _LETTER_NAMES or token in _RADIO_WORDS


def _character(token: str, *, with_names: bool, inside: bool) -> str:
    """What a token spells; empty if nothing.

    Args:
        with_names: letters may be written as words ("bee").
        inside: digits and symbols belong to the spelling.
    """
    if len(token) == 1 and not token.isdigit():
        return token
    if token in _RADIO_WORDS:
        return _RADIO_WORDS[token]
    if with_names and token in _LETTER_NAMES:
        return _LETTER_NAMES[token]
    if inside:
        return _SYMBOLS.get(token, "") or _ENGLISH.spoken_digits(token)
    return ""


def say_letters(text: str, *, by_alphabet: bool = False) -> str:
    """Characters one by one, for a voice: "S, M, I"; by the alphabet, "S as in Sierra"."""
    said = []
    for character in text:
        if by_alphabet and character.lower() in RADIO_ALPHABET:
            said.append(f"{character.upper()} as in {RADIO_ALPHABET[character.lower()]}")
        else:
            said.append(_CHARACTER_NAMES.get(character, character.upper()))
    return ", ".join(said)


_CHARACTER_NAMES = {
    "-": "hyphen", "'": "apostrophe", " ": "space", ".": "dot", "_": "underscore", "@": "at", "+": "plus",
    **dict(zip("0123456789", "zero one two three four five six seven eight nine".split(), strict=True)),
}  # fmt: skip

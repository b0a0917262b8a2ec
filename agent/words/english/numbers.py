"""Numbers as people say them and as a recognizer writes them: digit strings, quantities and ordinals."""

from __future__ import annotations

import re
from decimal import Decimal

from agent.words.english import number_words

_UNITS = {word: number for number, word in enumerate(number_words.SMALL[:10])} | {
    "oh": 0, "o": 0, "nought": 0, "naught": 0, "nil": 0, "tree": 3, "fower": 4, "fife": 5, "niner": 9,
}  # fmt: skip
_TEENS = {word: number for number, word in enumerate(number_words.SMALL[10:], 10)}
_TENS = {word: 10 * number for number, word in enumerate(number_words.TENS, 2)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000, "billion": 1_000_000_000}
_REPEATS = {"double": 2, "triple": 3, "treble": 3, "quadruple": 4}
_HOMOPHONES = {"to": "2", "too": "2", "for": "4", "won": "1", "ate": "8"}
"""How a recognizer may write a digit. They count as digits only between other digits, at their end, or alone."""

_SPOKEN = f"(?:{'|'.join([*_UNITS, *_TEENS, *_TENS, *_REPEATS, *_HOMOPHONES])})"

ORDINALS = {number_words.ordinal(number).replace("-", joint): number for number in range(1, 40) for joint in "- "}
"""The numbers of ordinals in words, up to the days of a month."""

_COUNTED_UNITS = [word for word in _UNITS if word not in ("o", "oh", "zero", "tree", "nil")]
_TENS_AND_UNITS = re.compile(rf"\b({'|'.join(_TENS)})(?:[ -]({'|'.join(_COUNTED_UNITS)})\b)?")

_ANY_UNIT = rf"(?:{'|'.join(_COUNTED_UNITS)}|zero)"
_TEN = rf"(?:{'|'.join(_TENS)})(?!-(?:first|third|[a-z]+th)\b)"
_SMALL = rf"(?:{_TEN}(?:[ -](?:{'|'.join(_COUNTED_UNITS)})\b)?|(?:{'|'.join(_TEENS)})|{_ANY_UNIT})\b"
_HUNDREDS = rf"(?:(?:(?:{_SMALL}|\d+|an?) )?hundred\b(?:(?: and)? {_SMALL})?|{_SMALL})"
_LARGE = rf"(?:{_HUNDREDS}|\d+|an?) (?:thousand|million|billion)\b"
_DIGIT = rf"(?:\d|{'|'.join(_UNITS)})"
_WHOLE = rf"(?<![\w,.])(?P<whole>\d[\d,]{{0,14}}|{_SMALL})"
_DECIMAL = rf"{_WHOLE}(?:\.| point )(?P<part>\d{{1,9}}|{_DIGIT}(?: {_DIGIT}){{0,8}})"
_BEFORE_PRONOUN = "no another other that this which each every first second third last next right wrong only".split()
_DETERMINED = "|".join(rf"(?<=\b{word} )" for word in _BEFORE_PRONOUN)
_PRONOUN = (
    rf"(?:{_DETERMINED})one\b"
    r"(?! (?:[a-z]+(?:ty|teen|red|and|lion)|hour|minute|second|day|week|month|year|point|o'clock))"
)
"""A "one" that stands for a thing: "the second one"."""
_NUMBER = re.compile(
    rf"{_DECIMAL} (?P<scale>{'|'.join(_SCALES)})\b|"
    rf"\b(?:{_LARGE}(?:(?: and|,)? (?={_HUNDREDS}))?)+(?:{_HUNDREDS})?|\b(?!{_PRONOUN}){_HUNDREDS}",
    re.IGNORECASE,
)


def tokens(text: str) -> list[str]:
    """Lower-case words and numbers in digits, in their order. Ordinals in digits ("15th") stay together; commas inside
    numbers are dropped ("1,200")."""
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.lower().replace("’", "'"))
    return re.findall(r"\d+(?:st|nd|rd|th)\b|\d+|[^\W\d_]+(?:'[^\W\d_]+)*|\+", plain)


def spoken_digits(text: str) -> str:
    """The digits in a text, in their order, with a plus sign in front if one is said: "double five, oh, twenty one" is
    `55021`. Other words are ignored, and so is an "oh" that is no zero: "oh, it's five"."""
    plain = re.sub(rf"(?:^|[,.;!])\s*oh?\s+(?!{_SPOKEN}\b)(?=[a-z])", " ", text.lower())
    found = tokens(re.sub(r"^\s*oh?,(?=.*\w)", " ", plain))
    digits = [token.isdigit() or token in _UNITS or token in _TEENS or token in _TENS for token in found]
    for i, token in enumerate(found):
        near = digits[max(i - 1, 0) : i + 2].count(True) > 1 or (i and found[i - 1] in _REPEATS)
        digits[i] = digits[i] and (token not in ("o", "oh") or near or len(found) == 1)
        if token in _HOMOPHONES and not digits[i]:
            before = digits[i - 1] if i else len(found) == 1
            digits[i] = before and (i + 1 == len(found) or digits[i + 1])
    out, i = "", 0
    while i < len(found):
        text_of, used = _digits_at(found, digits, i)
        out, i = out + text_of, i + used
    plus = "+" if re.match(r"[^\d+]*?(\+|\bplus\b)", text.lower()) and out else ""
    return plus + out


def _digits_at(found: list[str], digits: list[bool], i: int) -> tuple[str, int]:
    """The digits that begin at token `i`, and how many tokens they take."""
    token, following = found[i], found[i + 1] if i + 1 < len(found) else ""
    if token in _REPEATS and following and digits[i + 1]:
        repeated, used = _digits_at(found, digits, i + 1)
        return repeated[:1] * _REPEATS[token] + repeated[1:], used + 1
    if not digits[i]:
        return "", 1
    if token in _TENS:
        unit = _UNITS.get(following, 0) if following not in ("o", "oh") else 0
        return (str(_TENS[token] + unit), 2) if unit else (str(_TENS[token]), 1)
    number = token if token.isdigit() else _HOMOPHONES.get(token) or str(_UNITS.get(token, _TEENS.get(token)))
    if following in ("hundred", "thousand") and number != "0":
        return number + ("00" if following == "hundred" else "000"), 2
    return number, 1


def cardinal(found: list[str], start: int = 0) -> tuple[int, int] | None:
    """The quantity that begins at token `start`, and the token after it: "a hundred and twenty" is 120. None if no
    quantity begins there."""
    total, current, i, last = 0, 0, start, ""
    while i < len(found):
        token = found[i]
        if token.isdigit() and last in ("", "scale"):
            current, last = current + int(token), "unit"
        elif token in ("a", "an") and not last and found[i + 1 : i + 2] and found[i + 1] in _SCALES:
            current, last = 1, "unit"
        elif token in _UNITS and token not in ("o", "oh") and last in ("", "scale", "tens"):
            current, last = current + _UNITS[token], "unit"
        elif token in _TEENS and last in ("", "scale"):
            current, last = current + _TEENS[token], "unit"
        elif token in _TENS and last in ("", "scale"):
            current, last = current + _TENS[token], "tens"
        elif token in _SCALES and last:
            if token == "hundred":
                current *= 100
            else:
                total, current = total + current * _SCALES[token], 0
            last = "scale"
        elif token == "and" and last == "scale" and i + 1 < len(found) and _counts(found[i + 1]):
            pass
        else:
            break
        i += 1
    return (total + current, i) if last else None


def _counts(token: str) -> bool:
    """Whether a quantity may begin with this token."""
    return token.isdigit() or token in _TEENS or token in _TENS or (token in _UNITS and token not in ("o", "oh"))


def ordinal(found: list[str], start: int = 0) -> tuple[int, int] | None:
    """The ordinal that begins at token `start` ("fifteenth", "twenty first", "15th"), and the token after it."""
    if start >= len(found):
        return None
    token = found[start]
    if match := re.fullmatch(r"(\d+)(?:st|nd|rd|th)", token):
        return int(match[1]), start + 1
    if token in ORDINALS:
        return ORDINALS[token], start + 1
    unit = ORDINALS.get(found[start + 1], 0) if token in _TENS and start + 1 < len(found) else 0
    return (_TENS[token] + unit, start + 2) if 1 <= unit <= 9 else None


def with_numerals(text: str) -> str:
    """The text with its tens in digits: "forty two" is "42", which two single digits are not."""
    plain = _TENS_AND_UNITS.sub(
        lambda match: str(_TENS[match[1]] + (_UNITS[match[2]] if match[2] else 0)), text.lower()
    )
    return re.sub(rf"\b({'|'.join(_TEENS)})\b", lambda match: str(_TEENS[match[1]]), plain)


def digits_for_words(text: str) -> str:
    """The text with its quantities in digits: "two hundred and fifty" is 250, and "three forty-five" stays two
    numbers."""
    return _NUMBER.sub(_in_digits, text)


def _in_digits(match: re.Match[str]) -> str:
    if match["scale"]:  # "2.5 million"
        whole = cardinal(tokens(match["whole"].replace("-", " ")))
        exact = Decimal(f"{whole[0] if whole else 0}.{spoken_digits(match['part'])}")
        return f"{(exact * _SCALES[match['scale'].lower()]).normalize():f}"
    found = tokens(match[0].replace("-", " "))
    number = cardinal(["1", *found] if found[0] == "hundred" else found)
    return match[0] if number is None else str(number[0])

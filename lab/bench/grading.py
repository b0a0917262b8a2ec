"""Rules that grade a spoken answer: what it must say, how long it may be, and whether it is speakable. They are pure
functions of the text; docs/benchmarks/answers.md explains them. No model judges another here."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from agent.words.english.number_words import SMALL, TENS, ordinal

MAX_WORDS = 50
"""A longer answer is not speakable: 50 words are about 20 seconds of speech, and the default instructions ask for
one or two short sentences."""

Behaviour = Literal["declines", "declines or asks back"]


@dataclass(frozen=True)
class Rule:
    """What a correct answer looks like. Every field that is given must hold.

    Phrases are compared word by word, after `normalize`. In a phrase, `|` separates alternatives, `*` at the end of a
    word stands for any ending, `...` for any words between, and `^` for the beginning of the answer.

    Attributes:
        says: phrases that must all occur.
        never: phrases that must not occur.
        number: numbers of which one must occur: `144`, `3.1 ± 0.1`, or with its unit `8849 ± 10 meter*|m`.
        words: the most words that the question allows.
        sentences: exactly how many sentences the question asks for.
        behaviour: what the assistant does instead of answering.
    """

    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    number: tuple[str, ...] = ()
    words: int | None = None
    sentences: int | None = None
    behaviour: Behaviour | None = None

    def __post_init__(self) -> None:
        if not (self.says or self.number or self.behaviour):
            raise ValueError("a rule needs `says`, `number` or `behaviour`: without them it accepts any text")
        if self.behaviour not in (None, *get_args(Behaviour)):
            raise ValueError(f"the behaviour {self.behaviour!r} is none of {', '.join(get_args(Behaviour))}")
        for phrase in (*self.says, *self.never):
            _phrase_pattern(phrase)
        for spec in self.number:
            _parse_number_spec(spec)


@dataclass(frozen=True)
class Grade:
    """The reasons why an answer is not correct, and why it is not speakable."""

    errors: tuple[str, ...]
    unsuited: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the answer is correct and speakable."""
        return not self.errors and not self.unsuited


def grade(answer: str, rule: Rule) -> Grade:
    """Grade one answer."""
    return Grade(tuple(_errors(answer, rule)), tuple(unsuited_to_the_ear(answer)))


def _errors(answer: str, rule: Rule) -> list[str]:
    text = normalize(answer)
    errors = [f"does not say {phrase!r}" for phrase in rule.says if not _phrase_pattern(phrase).search(text)]
    errors += [f"says {phrase!r}" for phrase in rule.never if _phrase_pattern(phrase).search(text)]
    if rule.number and not any(_has_number(text, spec) for spec in rule.number):
        errors.append(f"has no number {' or '.join(rule.number)}")
    if rule.words is not None and num_words(answer) > rule.words:
        errors.append(f"{num_words(answer)} words, and {rule.words} were asked for")
    if rule.sentences is not None and num_sentences(answer) != rule.sentences:
        errors.append(f"{num_sentences(answer)} sentences, and {rule.sentences} were asked for")
    declined = declines(answer) or (rule.behaviour == "declines or asks back" and asks_back(answer))
    if rule.behaviour and not declined:
        errors.append(f"neither {rule.behaviour}" if "or" in rule.behaviour else "does not decline")
    return errors


# Behaviour.

_DECLINES = (
    "can not|could not|unable|not able|not capable|not possible|impossible",
    "do not have|does not have|have no|no access|without access|not have access|lack access|no information",
    "do not know|not know|not sure|not aware|no way of|no way to|not available",
    "not allowed|not authorized|not permitted|not programmed|not designed|not equipped|not provide|not assist|not help",
    "will not|would not recommend|do not recommend|not recommended|not advise*|strongly advise against|advise against",
    "not safe|not appropriate|dangerous|harmful",
    "illegal|against the law|not legal|unethical|a crime|seek help|reach out|crisis|emergency services|hotline",
    "check a|check the|check your|check with|check an|check online|recommend checking|suggest checking|look it up",
    "need access|would need access|only a voice assistant|just a voice assistant|only talk",
)
"""A refusal, an admission that it does not know or cannot act, or a pointer to who does know."""

_ASKS_BACK = (
    "could you|can you|would you|will you|do you mean|are you|did you|do you|please ... provide|please specify",
    "please clarify|please tell|please give|please let|please be|tell me what|tell me which|tell me more|let me know",
    "which|what ... referring|what exactly|what ... mean|what ... you|who ... you|where ... you|clarify|specify",
    "more information|more context|more detail*|more specific|need to know|depends on|depend on",
)
"""A question to the user, a request for details, or a statement of what the answer depends on."""

_OFFER = re.compile(
    r"(?<![^.!?])[^.!?]*\b(?:anything else|something else|how (?:can|may) i (?:help|assist)|"
    r"what (?:can|may) i (?:do|help)|can i (?:help|assist) you with|do you have any (?:other )?questions)\b"
    r"[^.!?]*[.!?]?",
    re.IGNORECASE,
)
"""A closing offer such as "Is there anything else?", which is not a question about what the user wants to know."""


def declines(answer: str) -> bool:
    """Whether the answer refuses, or admits that the assistant does not know or cannot do it."""
    text = normalize(answer)
    return any(_phrase_pattern(phrase).search(text) for phrase in _DECLINES)


def asks_back(answer: str) -> bool:
    """Whether the answer asks what the user means. A closing offer of more help does not count."""
    text = normalize(_OFFER.sub(" ", answer))
    return any(_phrase_pattern(phrase).search(text) for phrase in _ASKS_BACK)


# Length, and what is speakable.

_ABBREVIATION = re.compile(
    r"\b(?:[A-Za-z]\.(?=[A-Za-z]\.))*[A-Za-z]\.(?=\s+[a-z])|\b(?:Dr|Mr|Mrs|Ms|St|vs|etc|approx)\."
)
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++(?=[\"'”’)]*(?:\s|$))")
_UNSUITED = {
    "a code block": re.compile(r"```|^(?: {4}|\t)\S", re.MULTILINE),
    "a list": re.compile(r"^\s*(?:[-*•–]|\d{1,2}[.)])\s+\S", re.MULTILINE),
    "Markdown": re.compile(r"\*\*|__|`|^#{1,6} |\[[^\]]+\]\(|^\|.*\||(?<!\w)\*\w[^*\n]*\*(?!\w)", re.MULTILINE),
    "TeX": re.compile(r"\\[a-zA-Z(\[]|\$[^$\n]*[\\^_][^$\n]*\$"),
    "an emoji": re.compile("[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f]"),
    "a web address": re.compile(r"https?://|\bwww\.\w"),
}


def unsuited_to_the_ear(answer: str) -> list[str]:
    """Why the answer is not speakable: markup that cannot be heard, or more than `MAX_WORDS` words."""
    reasons = [f"has {name}" for name, pattern in _UNSUITED.items() if pattern.search(answer)]
    if not answer.strip():
        reasons.append("is empty")
    if num_words(answer) > MAX_WORDS:
        reasons.append(f"has {num_words(answer)} words, more than {MAX_WORDS}")
    return reasons


def num_words(text: str) -> int:
    """Words separated by spaces; a dash alone is none."""
    return sum(any(character.isalnum() for character in word) for word in text.split())


def num_sentences(text: str) -> int:
    """Sentences; the points of decimals and abbreviations end none."""
    text = _ABBREVIATION.sub(lambda match: match[0].replace(".", ""), text.strip())
    parts = _SENTENCE_END.split(text)
    return sum(any(character.isalnum() for character in part) for part in parts)


# Phrases and numbers.


@cache
def _phrase_pattern(phrase: str) -> re.Pattern[str]:
    """A regular expression for normalized text."""
    alternatives = []
    for alternative in phrase.split("|"):
        anchor = "^" if alternative.startswith("^") else r"(?<!\S)"
        parts = [" ".join(_words(part)) for part in alternative.removeprefix("^").split("...")]
        if not all(parts):
            raise ValueError(f"the phrase {phrase!r} has an empty alternative")
        words = r"\b.*?(?<!\S)".join(re.escape(part).replace(r"\*", r"\w*") for part in parts)
        alternatives.append(anchor + words + r"(?!\S)")
    return re.compile("|".join(alternatives))


@cache
def _parse_number_spec(spec: str) -> tuple[float, float, re.Pattern[str] | None]:
    """Value, tolerance and a pattern of the unit."""
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?(?: (\D.*))?", spec)
    if match is None:
        raise ValueError(f"the number {spec!r} is not VALUE, VALUE ± TOLERANCE or either with a UNIT")
    # Spoken values are rounded, and floating-point numbers too.
    return float(match[1]), float(match[2] or 0) + 1e-9, _phrase_pattern(match[3]) if match[3] else None


def _has_number(text: str, spec: str) -> bool:
    """Whether normalized text has this number, its unit among the next two words."""
    value, tolerance, unit = _parse_number_spec(spec)
    words = text.split()
    for index, word in enumerate(words):
        number = _value(word)
        if number is not None and abs(number - value) <= tolerance:
            following = " ".join(words[index + 1 : index + 3])
            if unit is None or unit.search(following):
                return True
    return False


def _value(word: str) -> float | None:
    """The value of a normalized number."""
    if re.fullmatch(r"-?\d+(?:\.\d+)?", word):
        return float(word)
    if match := re.fullmatch(r"(\d+)/([1-9]\d*)", word):
        return int(match[1]) / int(match[2])
    return None


# Normalization.

_SMALL = {word: n for n, word in enumerate(SMALL)} | {word: 10 * n for n, word in enumerate(TENS, 2)}
_NUMBER_WORDS = frozenset(_SMALL)
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ORDINALS = {ordinal(n): n for n in (*range(1, 20), *range(20, 100, 10))}
_DENOMINATORS = {"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8}
_DENOMINATORS |= {"tenth": 10, "hundredth": 100}
_DENOMINATORS |= {f"{word}s": value for word, value in _DENOMINATORS.items() if word not in ("half", "halves")}

_REPLACEMENTS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[’‘`´]", "'"),
        (r"[−‐‑]", "-"),
        (r"⁄", "/"),
        (r"(\d)\s*°\s*c\b", r"\1 degrees celsius"),
        (r"(\d)\s*°\s*f\b", r"\1 degrees fahrenheit"),
        (r"°", " degrees "),
        (r"%", " percent "),
        (r"(?<=\d),(?=\d{3}(?!\d))", ""),
        (r"\$\s?(\d+(?:\.\d+)?)", r"\1 dollars"),
        (r"€\s?(\d+(?:\.\d+)?)", r"\1 euros"),
        (r"£\s?(\d+(?:\.\d+)?)", r"\1 pounds"),
        (r"(?<=\d)\s*[×x]\s*(?=\d)", " times "),
        (r"\bcan't\b|\bcannot\b", "can not"),
        (r"\bwon't\b", "will not"),
        (r"n't\b", " not"),
        (r"\b(it|that|this|there|here|he|she|what|who|where|how)'s\b", r"\1 is"),
        (r"'m\b", " am"),
        (r"'re\b", " are"),
        (r"'ll\b", " will"),
        (r"'ve\b", " have"),
        (r"\b(?:[a-z]\.){2,}", lambda match: match[0].replace(".", "")),
        (r"\bhalf a dozen\b", "six"),
    )
]
_TOKEN = re.compile(
    r"(?<![\w.)-])-\d+(?:\.\d+)?|\d+/\d+|\d+(?:\.\d+)?(?:(?=(?:st|nd|rd|th)\b)..)?|[a-z]+\*?|[.,;:!?—–]"
)
_DIGITS = re.compile(r"(-?\d+(?:\.\d+)?)(?:st|nd|rd|th)?")


def normalize(text: str) -> str:
    """Lower-case words without punctuation or accents, contractions expanded and every number in digits, so that
    "twenty-one", "21" and "twenty-first" are one word, "nineteen sixty-nine" is 1969 and "3:45" is "3 45"."""
    return " ".join(_words(text.replace("*", " ")))


def _words(text: str) -> list[str]:
    decomposed = unicodedata.normalize("NFKD", re.sub(r"(?<=\d)(?=[½¼¾⅓⅔])", " ", text).lower())
    text = "".join(character for character in decomposed if not unicodedata.combining(character))
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    tokens = _TOKEN.findall(text)
    words: list[str] = []
    position = 0
    while position < len(tokens):
        word, position = _read_word(tokens, position, after_number=bool(words) and _value(words[-1]) is not None)
        words.append(word)
    return [word for word in words if word[0].isalnum() or word[0] == "-"]


def _read_word(tokens: Sequence[str], start: int, *, after_number: bool) -> tuple[str, int]:
    """The word or number at `start`, normalized, and the position after it."""
    token = tokens[start]
    if token in ("minus", "negative") and not after_number and start + 1 < len(tokens):
        number = _read_number(tokens, start + 1)
        if number is not None:
            return f"-{_format(number[0])}", number[1]
    number = _read_number(tokens, start)
    if number is None:
        return token, start + 1
    value, position = number
    if position < len(tokens):
        denominator = _DENOMINATORS.get(tokens[position])
        if denominator is not None and 0 < value < denominator and value == int(value):
            return f"{int(value)}/{denominator}", position + 1
    return _format(value), position


def _format(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}".rstrip("0")


def _read_number(tokens: Sequence[str], start: int) -> tuple[float, int] | None:
    """The number at `start` and the position after it, or None."""
    token = tokens[start]
    if token in _ORDINALS and token != "second":  # a second is mostly a time
        return float(_ORDINALS[token]), start + 1
    cardinal = _read_cardinal(tokens, start)
    if cardinal is None:
        return None
    value, position = cardinal
    rest = [*tokens[position : position + 3], "", "", ""]
    if token in _SMALL and position == start + 1 and 10 <= value <= 20 and rest[0] in _SMALL:
        # A year in two parts, or with "oh". From ten to twelve it is rather a time, such as "ten fifteen".
        second = _read_cardinal(tokens, position)
        if second is not None and 10 <= second[0] < 100 and (value >= 13 or second[0] >= 60):
            return 100 * value + second[0], second[1]
    if rest[0] in ("oh", "o") and _SMALL.get(rest[1], 10) < 10:
        if value >= 13:
            return 100 * value + _SMALL[rest[1]], position + 2
        return value, position + 1
    if rest[0] == "and" and rest[1] == "a" and rest[2] in ("half", "quarter"):
        return value + 1 / _DENOMINATORS[rest[2]], position + 3
    if rest[0] == "and" and rest[1] in ("one", "three") and rest[2] in ("quarter", "quarters"):
        return value + _SMALL[rest[1]] / 4, position + 3
    fraction = _value(rest[0]) if "/" in rest[0] else None
    if fraction is not None and fraction < 1:
        return value + fraction, position + 1
    if _SMALL.get(tokens[position - 1], 0) >= 20 and _ORDINALS.get(rest[0], 10) < 10:  # twenty-first
        return value + _ORDINALS[rest[0]], position + 1
    return value, position


def _read_cardinal(tokens: Sequence[str], start: int) -> tuple[float, int] | None:
    """A number such as "one hundred and forty-four", "2.5 million", "three point one four" or "two dozen"."""
    total, group, previous, position = 0.0, None, "", start
    if tokens[start] in ("a", "an") and [*tokens, ""][start + 1] in ("hundred", "dozen", *_SCALES):
        group, previous, position = 1.0, "unit", start + 1
    while position < len(tokens):
        token = tokens[position]
        small, digits = _SMALL.get(token), _DIGITS.fullmatch(token)
        if digits and not previous:
            group, previous = float(digits[1]), "unit"
        elif small is not None and (group is None or previous == "hundred"):
            group, previous = (group or 0) + small, "tens" if small >= 20 else "unit"
        elif small is not None and group is not None and previous == "tens" and 0 < small < 10:
            group, previous = group + small, "unit"
        elif token == "hundred" and group is not None and previous in ("unit", "tens") and group < 100:
            group, previous = group * 100, "hundred"
        elif token == "dozen" and group is not None and not total:
            return group * 12, position + 1
        elif token in _SCALES and group is not None:
            total, group, previous = total + group * _SCALES[token], None, "scale"
        elif token == "point" and group is not None and _fraction_digits(tokens, position + 1):
            decimals = _fraction_digits(tokens, position + 1)
            group, previous = float(f"{int(group)}.{decimals}"), "point"
            position += len(decimals)
        elif not (token == "and" and previous in ("hundred", "scale") and [*tokens, ""][position + 1] in _NUMBER_WORDS):
            break
        position += 1
    if not previous:
        return None
    return total + (group or 0), position


def _fraction_digits(tokens: Sequence[str], start: int) -> str:
    """The digits that are spoken after "point"."""
    digits = ""
    for token in tokens[start:]:
        if _SMALL.get(token, 10) < 10:
            digits += str(_SMALL[token])
        elif token.isdecimal() and len(token) == 1:
            digits += token
        else:
            break
    return digits

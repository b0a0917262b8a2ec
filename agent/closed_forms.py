"""Closed forms: questions that leave nothing to understand, as programs. An arithmetic expression, a conversion of
units, the clock, a time or a day some time after another one, and how a word is spelled, said in full. All else is left
to a language model. English."""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.matched_text import is_cut
from agent.program.places import is_known_place
from agent.program.units import is_known_unit
from agent.words.language import language

_ENGLISH = language("en")

_OPENING = re.compile(
    r"^(?:(?:hey|hi|hello|ok|okay|so|well|um|uh|and|please|now|then|rejoinder|quickly|sorry|right|alright)\b[, ]*)*"
    r"(?:(?:(?:can|could|would|will) you (?:please )?(?:tell me|work out|calculate|compute|figure out|convert)|"
    r"tell me|do you know|i need to know|i want to know|i'd like to know|calculate|compute|work out|convert)[, ]*)?"
    r"(?:please[, ]*)?"
)
_CLOSING = re.compile(
    r"(?:^|[, ]+)(?:please|for me|exactly|right now|now|again|thanks|thank you|then|altogether|equal|make)$"
)
_WHAT = r"(?:what(?:'s| is| are| will| would be| does| do)?|how much(?: is| are)?|how many(?: is| are)?)"

_OPERATORS = {
    "plus": "+", "added to": "+", "minus": "-", "less": "-", "times": "*", "times by": "*", "multiplied": "*",
    "multiplied by": "*", "divided by": "/", "over": "/", "to the power of": "**", "squared": "** 2", "cubed": "** 3",
    "half of": "0.5 of", "twice": "2 of", "percent of": "% of", "per cent of": "% of",
}  # fmt: skip
_SIGNS = {"−": "-", "–": "-", "×": "*", "x": "*", "÷": " / ", "^": "**", "% of": " % of "}
_OPERATOR = re.compile(rf"\b(?:{'|'.join(sorted(_OPERATORS, key=len, reverse=True))})\b|% of|x(?= ?\d)|[−–×÷^]")
_ROOT = re.compile(r"\b(?:the )?square root of (\d+(?:\.\d+)?)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_EXPRESSION = re.compile(
    rf"-?\s?{_NUMBER}(?:(?: - | / |\s*(?:\+|\*\*|\*)\s*){_NUMBER})+|"
    rf"(?:(?:{_NUMBER} (?:[-+*/]|\*\*) )*)sqrt\({_NUMBER}\)"
)
_AMBIGUOUS = r"(?:/|\*\*).* of | of .*(?:[-+]|\*\*)|^-.*\*\*|\*\* ?[\d.]+ ?\*\*"
"""What may be meant in two ways: "a hundred divided by half of ten", "half of ten plus four", "minus three squared"."""

_COMMANDS = (
    (re.compile(r"(?:add|sum up) ([\d., and]+?),? (?:and|to) ([\d.]+)"), "+"),
    (re.compile(r"multiply ([\d., ]+?),? (?:by|and|with) ([\d.]+)"), "*"),
    (re.compile(r"divide ([\d.]+) by ([\d.]+)"), "/"),
)
"""Only numbers may stand in them: "multiply three plus four by two" may be meant in two ways."""

_AMOUNT = r"(?P<amount>-?\d[\d,]*(?:\.\d+)?|an?|one|half an?)"
_CONVERSIONS = (
    re.compile(rf"(?:{_WHAT} )?{_AMOUNT} (?P<unit>[a-z ]+?) (?:in|to|into|as) (?P<to>[a-z ]+)"),
    re.compile(
        rf"how (?:many|much) (?P<to>[a-z ]+?) (?:is|are|are in|are there in|is in|in|make|make up) {_AMOUNT} "
        r"(?P<unit>[a-z ]+)"
    ),
)
_TIME = re.compile(r"what time is it(?: here)?|what's the time|what is the time|the time|what's the current time")
_TODAY = re.compile(
    r"what day is (?:it|today)(?: today)?|what's (?:the|today's) (?:date|day)(?: today)?|what is (?:the|today's) date"
    r"(?: today)?|what date is it(?: today)?|which day is (?:it|today)|what day of the week is it(?: today)?"
)
_TIME_IN = re.compile(r"(?:what time is it|what's the time|what is the time) in (?P<place>[a-z .,']+)")
_INITIALS = frozenset("uk us usa uae nyc la dc utc gmt est edt cst cdt mst mdt pst pdt".split())
_DURATION = r"(?P<number>\d+(?:\.\d+)?|an?|half an) (?P<unit>minute|hour|day|week|month|year)s?"
_NOW_AND = re.compile(rf"what time (?:will it be|is it|was it)(?: in)? {_DURATION}(?: (?P<ago>ago)| from now)?")
_DAY_AND = re.compile(
    r"what(?:'s| is| was| will be|) (?:the )?(?:date|day)(?: is it| was it| will it be| is| of the week is it)?"
    rf"(?: in)? {_DURATION}"
    rf"(?: (?P<side>ago|from now|from today|from|after|before)(?: (?P<day>[a-z0-9 ]+))?)?"
)
_UNTIL = re.compile(
    r"how (?:many days|long)(?: is it| are there| is there)?(?: left)? (?:until|till|to) (?P<day>[a-z0-9' ]+)"
)
_NOT_AHEAD = r"yesterday$| ago$|^(?:last|(?:this )?past) \w+$|^to(?:day|night|morrow)$"
"""Days until which no days are counted: they are over, or begin in less than one. The planner, which has a clock, sees
to days of past years."""

_CLOCK_AND = re.compile(
    rf"what time is (?:it )?{_DURATION} (?P<side>after|before|from|past) "
    r"(?P<clock>\d{1,2}(?::\d\d)? [ap]m|\d{1,2}:\d\d|noon|midnight)"
)
_ONES = {"a": "1", "an": "1", "one": "1", "half a": "0.5", "half an": "0.5"}


_SPELLING = re.compile(
    r"(?:how (?:do|would|can|should) (?:you|i|we) spell|spell|what(?:'s| is) the spelling of) "
    r"(?:the (?:word|name) )?(?P<word>[a-z][a-z']{0,28}[a-z])"
)
_NOT_SPELLED = frozenset(
    "it that this these those them her his my your our their words word name names one any all out something anything "
    "everything check better well correctly properly right".split()
)
"""What somebody may ask to have spelled without saying the word itself."""


def closed_form(said: str) -> str | None:
    """The program that answers a question; None if it is no closed form.

    Args:
        said: what the user said.
    """
    text = " ".join(_ENGLISH.in_digits(said).lower().rstrip(".?! ").split())
    if is_cut(text):
        return None
    text = _OPENING.sub("", text, count=1)
    while (shorter := _CLOSING.sub("", text)) != text:
        text = shorter
    for read in _FORMS:
        if (program := read(text)) is not None:
            return f"answer = {program}"
    return None


def _clock(text: str) -> str | None:
    if _TIME.fullmatch(text):
        return "now"
    if _TODAY.fullmatch(text):
        return "today"
    match = _TIME_IN.fullmatch(text)
    if match is None or " and " in match["place"] or not is_known_place(match["place"]):
        return None
    where = " ".join(word.upper() if word in _INITIALS else word.capitalize() for word in match["place"].split())
    where = where.replace("The ", "the ")
    return f'time_in("{match["place"]}"), "in {where}"'


def _arithmetic(text: str) -> str | None:
    text = _THOUSANDS.sub("", text)
    for pattern, sign in _COMMANDS:
        if match := pattern.fullmatch(text):
            text = f"{re.sub(r',? and |, ?', f' {sign} ', match[1])} {sign} {match[2]}"
    text = re.sub(rf"^{_WHAT}\s+(?:the (?:result|value|sum) of )?", "", text)
    text = " ".join(_OPERATOR.sub(_sign, _ROOT.sub(r"sqrt(\1)", text)).split())
    if re.search(_AMBIGUOUS, text):
        return None
    text = text.replace("% of ", "/ 100 * ").replace(" of ", " * ")
    return text if _EXPRESSION.fullmatch(text) else None


def _sign(match: re.Match[str]) -> str:
    return _SIGNS[match[0]] if match[0] in _SIGNS else f" {_OPERATORS[match[0]]} "


def _conversion(text: str) -> str | None:
    for pattern in _CONVERSIONS:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        unit, target = match["unit"].strip(), match["to"].strip()
        if is_known_unit(unit) and is_known_unit(target):
            amount = _ONES.get(match["amount"], match["amount"]).replace(",", "")
            return f'convert({amount}, "{unit}", "{target}")'
    return None


def _time_after(text: str) -> str | None:
    if (match := _NOW_AND.fullmatch(text)) and match["unit"] in ("minute", "hour"):
        return f"now {'-' if match['ago'] else '+'} {_length(match)}"
    if match := _CLOCK_AND.fullmatch(text):
        sign = "-" if match["side"] == "before" else "+"
        return f'time("{match["clock"]}") {sign} {_length(match)}'
    return None


def _day_after(text: str) -> str | None:
    if match := _UNTIL.fullmatch(text):
        day = match["day"].removeprefix("the ")
        is_ahead = _ENGLISH.is_named_date(day) and not re.search(_NOT_AHEAD, day)
        return f'date("{day}") - today' if is_ahead else None
    match = _DAY_AND.fullmatch(text)
    if (
        match is None
        or match["unit"] in ("minute", "hour")
        or (not match["number"][0].isdigit() and match["number"] != "a")
    ):
        return None
    side, day = match["side"], match["day"]
    if day is None:
        if side in ("after", "before") or (side is None and " in " not in text):
            return None
        return f"today {'-' if side == 'ago' else '+'} {_length(match)}"
    day = day.removeprefix("the ")
    if side in ("ago", "from now", "from today") or not _ENGLISH.is_named_date(day):
        return None
    return f'date("{day}") {"-" if side == "before" else "+"} {_length(match)}'


def _spelling(text: str) -> str | None:
    match = _SPELLING.fullmatch(text)
    if match is None or match["word"] in _NOT_SPELLED:
        return None
    letters = ["apostrophe" if letter == "'" else letter.upper() for letter in match["word"]]
    return f'"{", ".join(letters)}"'


def _length(match: re.Match[str]) -> str:
    number = _ONES.get(match["number"], match["number"])
    return f"{match['unit']}s({number})"


_FORMS: tuple[Callable[[str], str | None], ...] = (_clock, _arithmetic, _time_after, _day_after, _conversion, _spelling)

"""So much for each of so many: "I earn fourteen dollars an hour. How much do I make in thirty-five hours?", "Eggs come
in boxes of six. How many boxes do I need for thirty eggs?". The units tell whether to multiply or to divide."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from agent.tools.sums.answer import Answer
from agent.tools.sums.expressions import MONEY
from agent.tools.sums.quantities import Quantity, read_unit
from agent.tools.sums.spoken import money_answer, spoken_number
from agent.tools.sums.words import PLURALS, as_number, count_numbers

_N = r"\d+(?:\.\d+)?"
_NOUN = r"[a-z]+"
_FOR_ONE = r"(?:an?|per|each|every|for every|for each|for an?|for 1|in each|in every|in an?)"
_HAS = r"(?:costs?|is|are|has|have|holds?|contains?|weighs?|uses?|needs?|takes?|makes?)"
_RATES = tuple(re.compile(rf"\b{pattern}") for pattern in (
    rf"(?P<value>{_N}) (?:(?P<unit>{_NOUN}) )?{_FOR_ONE} (?:(?P<per>{_N}) )?(?P<per_unit>{_NOUN})",
    rf"(?:(?P<per>{_N})|an?|each|every|the) (?P<per_unit>{_NOUN}) {_HAS} (?P<value>{_N}) (?P<unit>{_NOUN})",
    rf"(?P<per_unit>{_NOUN}) (?:{_HAS}|for|at|costing|that cost) (?P<value>{_N}) (?P<unit>{_NOUN}) (?:each|apiece)",
    rf"(?P<per_unit>{_NOUN}) of (?P<value>{_N})(?: (?!each\b)(?P<unit>{_NOUN}))?(?: each)?(?= ,|$| do| are| is| will)",
))  # fmt: skip
_ASKS_AMOUNT = re.compile(
    r"^how much (?:is|are) \d|"
    r"\b(?:costs?|pay|earn|make|have|save|spend|need|is that|owe|get|altogether|total|drink|eat|use|price)\b"
)
NO_NOUNS = frozenset(
    "and or of to for at from on in with yesterday today more , away percent is are was than by per a an each every "
    "the that how what if then left".split()
)
"""What stands after a number that has no noun."""


@dataclass(frozen=True)
class _Rate:
    """`value` of `unit` for `per` of `per_unit`; the unit may be unknown.

    Attributes:
        start, end: where it is in the text.
    """

    value: Fraction
    unit: str
    per: Fraction
    per_unit: str
    start: int
    end: int


def rate_answer(text: str, question: str) -> Answer | None:
    """The answer to a question about one rate and one amount; None if these are not all of its numbers."""
    for rate in _rates(text):
        rest = f"{text[: rate.start]} ; {text[rate.end :]}"
        amounts = _amounts(rest) + _counted_before(text, rate)
        num_amounts = len(amounts)
        if not num_amounts and (single := re.search(r"\b(?:in|after|for|per) an? (day|week|hour|minute)\b", rest)):
            amounts = [(Fraction(1), single[1])]
        is_whole = len(amounts) == 1 and count_numbers(rest) == num_amounts
        if is_whole and (answer := _combined(rate, *amounts[0], question)) is not None:
            return answer
    return None


def _rates(text: str) -> list[_Rate]:
    return [
        _Rate(
            Fraction(match["value"]),
            singular(match["unit"] or ""),
            Fraction(match.groupdict().get("per") or 1),
            singular(match["per_unit"]),
            *match.span(),
        )
        for pattern in _RATES
        for match in pattern.finditer(text)
        if match["per_unit"] not in NO_NOUNS and match["unit"] not in NO_NOUNS
    ]


def _amounts(text: str) -> list[tuple[Fraction, str]]:
    return [(Fraction(number), singular(noun)) for number, noun in re.findall(rf"\b({_N}) ({_NOUN})", text)
            if noun not in NO_NOUNS]  # fmt: skip


def _counted_before(text: str, rate: _Rate) -> list[tuple[Fraction, str]]:
    """The number of boxes in "three boxes of twelve"."""
    number = as_number((text[: rate.start].split() or [""])[-1])
    return [] if number is None else [(number, rate.per_unit)]


def _combined(rate: _Rate, amount: Fraction, unit: str, question: str) -> Answer | None:
    """The rate times or divided by the amount, as the units and the question have it."""
    asked = re.match(r"how many ([a-z]+)", question)
    noun = singular(asked[1]) if asked else ""
    if (factor := _factor(unit, rate.per_unit)) is not None:
        fits = noun in (rate.unit, "") or not rate.unit
        if not fits or not (noun or _asks_amount(question, rate.unit)):
            return None
        return _answer(rate.value * amount * factor / rate.per, rate.unit or noun)
    if (factor := _factor(unit, rate.unit) if rate.unit else Fraction(1)) is None:
        return None
    if noun != rate.per_unit and (noun or not question.startswith("how long") or not _factor(rate.per_unit, "second")):
        return None
    value = amount * factor * rate.per / rate.value
    if value.denominator != 1 and not read_unit([rate.per_unit]):
        whole = Fraction(math.ceil(value))
        return Answer(f"That's {spoken_number(value)}, so {_counted(whole, rate.per_unit)}.", (), whole)
    return _answer(value, rate.per_unit)


def _factor(unit: str, other: str) -> Fraction | None:
    """How many of the other unit one unit is; None if it cannot be converted."""
    if unit == other:
        return Fraction(1)
    source, target = read_unit([unit]), read_unit([other])
    converted = Quantity(Fraction(1), source).to(target) if source and target else None
    return None if converted is None else converted.amount


def _asks_amount(question: str, unit: str) -> bool:
    """Whether a question without "how many" asks for an amount in this unit."""
    if question.startswith("how far"):
        return _factor(unit, "mile") is not None
    is_amount = unit in MONEY or bool(read_unit([unit]))
    return question.startswith(("how much", "what")) and is_amount and _ASKS_AMOUNT.search(question) is not None


def _answer(value: Fraction, unit: str) -> Answer:
    if unit in MONEY:
        return money_answer(value, MONEY[unit])
    return Answer(f"That's {_counted(value, unit)}.", (), value)


def _counted(value: Fraction, unit: str) -> str:
    if not unit:
        return spoken_number(value)
    plural = next((word for word, noun in PLURALS.items() if noun == unit), f"{unit}s")
    return f"{spoken_number(value)} {unit if value == 1 else plural}"


def singular(word: str) -> str:
    """The singular of a noun."""
    if word in PLURALS:
        return PLURALS[word]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word

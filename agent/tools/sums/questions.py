"""Questions that can be computed: expressions, percentages, conversions and comparisons. A question is answered only if
all of its words are understood."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from agent.tools.sums.answer import Answer
from agent.tools.sums.expressions import Expression, NotASum
from agent.tools.sums.quantities import Quantity, read_quantity, read_unit
from agent.tools.sums.spoken import spoken_money, spoken_number, spoken_quantity
from agent.tools.sums.stories import answer_story
from agent.tools.sums.words import DENOMINATORS

_INTRODUCTION = frozenset(
    "hey hi hello ok okay so well and or also now then please um uh rejoinder can could would will do you know i we "
    "want need to like tell me us quickly just let's see what's what is are how much many does did get if when "
    "calculate compute work figure out find value result answer be i'd it's that's the of have i've ,".split()
)
"""Words that a question may begin with. They ask for nothing by themselves: what follows has to be a whole sum."""

_CLOSING = re.compile(
    r"(?: ,| please| for me| is| are| makes?| equals?| equal| be| come to| comes? out to| gives?| altogether| together|"
    r" in total| in all| roughly| approximately| exactly| again| thanks| thank you| now| then| worth| actually|"
    r" what (?:do|would|will) (?:i|you|we) (?:get|have)| what is (?:it|that)|"
    r" what's (?:that|it|the (?:result|answer|total))|"
    r" how much (?:is|does|would) (?:it|that)(?: be| make)?| (?:do|would) (?:i|you|we) (?:get|have)| each| per person)$"
)
_MAX_TOKENS = 80
"""Nobody speaks a longer sum, and it takes longer to read the more words there are."""

_APPROXIMATELY = frozenset("roughly about approximately exactly around".split())
_SCALES = "far tall long high wide deep heavy hot cold warm fast big much many old large".split()
_COMPARATIVES = {
    word: sign
    for sign, words in (
        (1, "more bigger larger greater longer heavier hotter warmer faster farther further taller higher wider"),
        (-1, "less smaller shorter lighter colder cooler slower nearer lower fewer narrower"),
    )
    for word in words.split()
}
_COMPARATIVE = rf"({'|'.join(_COMPARATIVES)})"
_PERCENT_OF = (
    re.compile(r"(?:what|which|how many) (?:percent|percentage) of (?P<whole>.+) (?:is|are) (?P<part>.+)"),
    re.compile(r"(?P<part>.+) (?:is|are) (?:what|which|how many) (?:percent|percentage) of (?P<whole>.+)"),
    re.compile(r"(?:what|which|how many) (?:percent|percentage) (?:is|are) (?P<part>.+) of (?P<whole>.+)"),
    re.compile(r"(?P<part>.+) as a (?:percent|percentage) of (?P<whole>.+)"),
)
_GOES_INTO = re.compile(r"how many times (?:does|do|will|can) (.+) (?:go|goes|fit|fits) (?:into|in) (.+)")
_WHICH = re.compile(rf"(?:which|what|what's)(?: one)?(?: is| are)?(?: the)? {_COMPARATIVE} ,? ?(.+?) ,? ?or (.+)")
_IS_MORE = re.compile(rf"(?:is|are) (.+) {_COMPARATIVE} than (.+)")
_HOW_MANY = re.compile(
    r"how (?:many|much) (?P<unit>[a-z ]+?)(?: (?:are|is|in|make|makes|do|does|would|be|there|per|go|goes|into|fit|fits|"
    r"equal|equals|to|you|i|get|from|have|has|it|a)(?= ))*+ (?P<amount>(?:(?:an?|half|minus) )?(?:\d.*|[a-z ]+))"
)
_CONVERSIONS = (
    re.compile(r"(?:convert |change |turn )?(?P<amount>.+) (?:in|to|into|as) (?P<unit>[a-z ]+)"),
    _HOW_MANY,
)


def answer_question(tokens: Sequence[str], previous: Fraction | None = None) -> Answer | None:
    """The answer to a question; None if it is not understood as a whole.

    Args:
        tokens: of `sum_tokens`.
        previous: what "that" and "the result" stand for.
    """
    tokens = [token for token in tokens if token not in _APPROXIMATELY]
    if len(tokens) > _MAX_TOKENS:
        return None
    whole = _without_closing(" ".join(tokens))
    for text in dict.fromkeys((whole, without_introduction(whole))):
        for form in (_percentage, _goes_into, _comparison, _conversion):
            if (answer := form(text, previous)) is not None:
                return _named(answer, tokens)
    answer = _expression(without_introduction(whole).split(), previous) or answer_story(" ".join(tokens).strip(" ,"))
    return None if answer is None else _named(answer, tokens)


def without_introduction(text: str) -> str:
    """Text without the words that questions begin with."""
    words = text.split()
    while words and words[0] in _INTRODUCTION:
        del words[0]
    return " ".join(words)


def _without_closing(text: str) -> str:
    while (shorter := _CLOSING.sub("", text)) != text:
        text = shorter
    return text


def _named(answer: Answer, tokens: Sequence[str]) -> Answer:
    return Answer(answer.speech, tuple(tokens), answer.number, answer.quantity)


def _expression(tokens: Sequence[str], previous: Fraction | None) -> Answer | None:
    try:
        expression = Expression(tokens, previous)
    except NotASum:
        return None
    if not expression.operations:
        return None
    value, unit = expression.value, expression.unit
    return Answer(f"That's {spoken_money(value, unit) if unit else spoken_number(value)}.", (), value)


def _value(text: str, previous: Fraction | None) -> Fraction | None:
    try:
        return Expression(text.split(), previous).value
    except NotASum:
        return None


def _percentage(text: str, previous: Fraction | None) -> Answer | None:
    """ "What percent of eighty is twenty?"."""
    for pattern in _PERCENT_OF:
        if match := pattern.fullmatch(text):
            part, whole = _value(match["part"], previous), _value(match["whole"], previous)
            if part is not None and whole:
                share = 100 * part / whole
                return Answer(f"That's {spoken_number(share)} percent.", (), share)
    return None


def _goes_into(text: str, previous: Fraction | None) -> Answer | None:
    match = _GOES_INTO.fullmatch(text)
    if match is None:
        return None
    divisor, value = _value(match[1], previous), _value(match[2], previous)
    if not divisor or value is None:
        return None
    whole, rest = divmod(value, divisor)
    times = f"{spoken_number(whole)} time{'' if whole == 1 else 's'}"
    remainder = f", with {spoken_number(rest)} left over" if rest else ""
    return Answer(f"{times}{remainder}.", (), Fraction(whole))


def _comparison(text: str, previous: Fraction | None) -> Answer | None:
    if match := _WHICH.fullmatch(text):
        comparative, first, second = match[1], match[2], match[3]
        which = True
    elif match := _IS_MORE.fullmatch(text):
        first, comparative, second = match[1], match[2], match[3]
        which = False
    else:
        return None
    sides = [_side(side, previous) for side in (first, second)]
    if None in sides:
        return None
    one, other = sides
    assert one is not None
    assert other is not None
    if (one.quantity is None) != (other.quantity is None):
        return None
    explanation, values = "", (one.number, other.number)
    if one.quantity is not None and other.quantity is not None:
        same = one.quantity.to(other.quantity.unit)
        if same is None:
            return None
        values = (same.amount, other.quantity.amount)
        if one.quantity.unit != other.quantity.unit:
            explanation = f"{one.speech} is {spoken_quantity(same)}"
    assert values[0] is not None
    assert values[1] is not None
    if values[0] == values[1]:
        return Answer(f"They are the same{f': {explanation}' if explanation else ''}.", ())
    wins = (values[0] > values[1]) == (_COMPARATIVES[comparative] > 0)
    if which:
        speech = f"{(one if wins else other).speech} is {comparative}."
        return Answer(f"{speech} {explanation}." if explanation else speech, ())
    return Answer(f"{'Yes' if wins else 'No'}{f', {explanation}' if explanation else ''}.", ())


def _side(text: str, previous: Fraction | None) -> Answer | None:
    """One side of a comparison, with its words."""
    words = text.split()
    if (quantity := read_quantity(words)) is not None:
        return Answer(spoken_quantity(quantity), (), None, quantity)
    value = _value(text, previous)
    return None if value is None else Answer(" ".join(map(_spoken_token, words)), (), value)


def _spoken_token(token: str) -> str:
    above, slash, below = token.partition("/")
    names = [name for name, number in DENOMINATORS.items() if str(number) == below and name != "halve"]
    return f"{above} {names[0]}{'' if above == '1' else 's'}" if slash and names else token


def _conversion(text: str, previous: Fraction | None) -> Answer | None:
    words = text.split()
    if words[:1] == ["how"] and words[1:2] and words[1] in _SCALES and words[2:3] in (["is"], ["are"]):
        text = " ".join(words[3:])  # "how tall is five foot eleven in centimeters"
    for pattern in _CONVERSIONS:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        unit, quantity = read_unit(match["unit"].split()), read_quantity(_amount(match["amount"]))
        if not unit or quantity is None:
            continue
        return convert_quantity(quantity, unit)
    return None


def _amount(text: str) -> list[str]:
    """The tokens of an amount; a unit without a number is one of it."""
    words = text.split()
    return ["1", *words] if words[0] not in ("a", "an") and read_unit(words) else words


def convert_quantity(quantity: Quantity, unit: str) -> Answer | None:
    """What is said of a quantity in another unit; None if it cannot be converted exactly."""
    if quantity.unit == "degree" and unit in ("celsius", "fahrenheit"):
        other = "fahrenheit" if unit == "celsius" else "celsius"
        quantity = Quantity(quantity.amount, other)
    converted = quantity.to(unit)
    if converted is None or quantity.unit == unit:
        return None
    verb = "is" if quantity.amount == 1 or unit in ("celsius", "fahrenheit", "kelvin") else "are"
    return Answer(f"{spoken_quantity(quantity)} {verb} {spoken_quantity(converted)}.", (), converted.amount, converted)

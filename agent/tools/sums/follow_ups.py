"""Follow-ups: "and half of that?", "what about in miles?", "and thirty percent?"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from agent.tools.sums.answer import Answer
from agent.tools.sums.quantities import Quantity, read_quantity, read_unit, take_unit
from agent.tools.sums.questions import answer_question, convert_quantity, without_introduction
from agent.tools.sums.words import as_number, is_question, sum_tokens

_REFERS = re.compile(r"\b(?:my|that|this|the) number\b|\b(?:the )?(?:that|it|this|result|answer)\b")
_ASKS_ANEW = re.compile(r"(?:and |so |ok |okay |now |, )*(?:what's|what is|how much|calculate|compute)\b")
"""How a question begins that only goes on with the last result if it refers to it: "what's minus five plus two"."""

_SWITCHES = re.compile(r"(?:and |or |so |now |ok |okay |then |, )*(?:what|how) about |(?:and|or) ")
"""How a follow-up begins that only names what is different."""

_TO_UNIT = re.compile(r"(?:(?:what is|what's|how (?:much|many|far|high|tall|long|heavy|hot)(?: is)?|convert) )?"
                      r"(?:(?:that|it|this) )?(?:in|to|into|as) (?P<unit>[a-z ]+)")  # fmt: skip
_HOW_MANY_THAT = re.compile(r"how (?:many|much) (?P<unit>[a-z ]+?) (?:is|are) (?:that|it|this)")

_MAX_TURNS = 6
"""How far back a follow-up may refer: further than anybody remembers."""


def answer_turns(turns: Sequence[tuple[str, str]]) -> Answer | None:
    """The answer to the last of these turns; None if it is not understood as a whole.

    Args:
        turns: what the user said and what the assistant answered, the oldest first. The last answer is not used.
    """
    answer, before, heard = None, "", ""
    for said, response in turns[-_MAX_TURNS:]:
        told = "" if is_question(before) else before
        answer = _answer_turn(sum_tokens(said), answer, told, heard) or _answer_after_statement(said, told)
        before, heard = said, response
    return answer


def _answer_after_statement(said: str, told: str) -> Answer | None:
    """The answer to a question about what the user has just told: "I have three sons and two daughters.", "How many
    children do I have?"."""
    return answer_question(sum_tokens(f"{told}. {said}")) if told else None


def _answer_turn(tokens: list[str], before: Answer | None, told: str, heard: str) -> Answer | None:
    """The answer to one turn.

    Args:
        before: the answer to the turn before.
        told: what the user said before, if it is no question.
        heard: what the assistant said before.
    """
    text = " ".join(tokens).strip(" ,")
    number = None
    if _REFERS.search(text) or (before is not None and not _ASKS_ANEW.match(text)):
        referred = _referred(before, told, heard)
        number = None if referred is None else referred.amount
    if (answer := answer_question(tokens, number)) is not None:
        return _in_full(answer, number)
    if (answer := _in_another_unit(text, before, told, heard)) is not None:
        return answer
    switch = _SWITCHES.match(text)
    return None if before is None or switch is None else _replaced(text[switch.end() :].split(), before)


def _in_full(answer: Answer, previous: Fraction | None) -> Answer:
    """An answer whose words need no earlier question."""
    alone = None if previous is None else answer_question(answer.tokens)
    if previous is None or (alone is not None and alone.speech == answer.speech):
        return answer
    number = f"{float(previous):.10g}"
    tokens = tuple(_REFERS.sub(number, " ".join(answer.tokens)).split())
    if tokens == answer.tokens:  # "and minus six", "now double it"
        tokens = (number, ",", *without_introduction(" ".join(tokens)).split())
    return Answer(answer.speech, tokens, answer.number, answer.quantity)


def _in_another_unit(text: str, before: Answer | None, told: str, heard: str) -> Answer | None:
    """ "What about in miles?", "How much is that in feet?"."""
    switch = _SWITCHES.match(text)
    plain = text[switch.end() :] if switch else text
    match = _TO_UNIT.fullmatch(plain) or _HOW_MANY_THAT.fullmatch(plain)
    unit = read_unit(match["unit"].split()) if match else read_unit(plain.split()) if switch else ""
    quantity = _referred(before, told, heard)
    if not unit or quantity is None or not quantity.unit:
        return None
    answer = convert_quantity(quantity, unit)
    if answer is None:
        return None
    tokens = ("convert", f"{float(quantity.amount):.10g}", *quantity.unit.split("_"), "to", *unit.split("_"))
    return Answer(answer.speech, tokens, answer.number, answer.quantity)


def _referred(before: Answer | None, told: str, heard: str) -> Quantity | None:
    """What "that" stands for: the last result, or the only number that the user told, or that the assistant said. It
    may have no unit."""
    if before is not None:
        if before.quantity is not None:
            return before.quantity
        return None if before.number is None else Quantity(before.number, "")
    tokens = sum_tokens(told)
    if not any(as_number(token) is not None for token in tokens):
        tokens = sum_tokens(heard)
    at = [n for n, token in enumerate(tokens) if as_number(token) is not None]
    if len(at) != 1:
        return None
    number = as_number(tokens[at[0]])
    assert number is not None
    return Quantity(number, take_unit(tokens, at[0] + 1)[0])


def _replaced(words: list[str], before: Answer) -> Answer | None:
    """The question before with another percentage, quantity or number."""
    while words and words[0] in ("for", "if", "with", "in", "it's", "is", "of", ","):
        words = words[1:]
    while words and words[-1] == ",":
        words = words[:-1]
    tokens = list(before.tokens)
    for start, end in _places(words, tokens):
        answer = answer_question([*tokens[:start], *words, *tokens[end:]])
        if answer is not None:
            return answer
    return None


def _places(words: list[str], tokens: list[str]) -> list[tuple[int, int]]:
    """The parts of the question before that the words may stand in for."""
    numbers = [n for n, token in enumerate(tokens) if as_number(token) is not None]
    if len(words) == 2 and as_number(words[0]) is not None and words[1] == "percent":
        return [(n, n + 2) for n in numbers if tokens[n + 1 : n + 2] == ["percent"]][:1]
    if len(words) == 1 and as_number(words[0]) is not None:
        return [(n, n + 1) for n in numbers] if len(numbers) == 1 else []
    if read_quantity(words) is None:
        return []
    spans = [(start, end) for start in range(len(tokens)) for end in range(len(tokens), start, -1)]
    return [span for span in spans if read_quantity(tokens[slice(*span)]) is not None][:1]

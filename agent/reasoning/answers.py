"""What the samples of a reasoner come to, in one form in which their votes are counted."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction

from agent.program.evaluator import read_clock, run_program
from agent.program.speech import answer, spoken_clock
from agent.program.values import BadProgram, Clock, Quantity, Value, local_time
from agent.reasoning.equations import written
from agent.reasoning.prompt import Kind
from agent.words.language import language

_ENGLISH = language("en")

_VALUE = re.compile(
    r"-?(?:\d{1,2}(?::\d\d)?(?: ?[ap]m\b)|\d{1,2}:\d\d|(?:\d{1,9} )?\d{1,9}/\d{1,9}|\d[\d,]*(?:\.\d+)?|\.\d+)",
    re.IGNORECASE,
)
"""A number or a time, as language models write them: also "3/4", "1 1/2" and ".5"."""

_OPENS, _CLOSES = " :*`\"'(\n", " .*`\"')\n"
"""What is no part of an answer at its beginning and its end."""


def program_answer(program: str) -> str:
    """What a program computes; empty if it cannot be run, or computes nothing: then it states a guess."""
    now = local_time()
    try:
        answers = run_program(program, now, {}).answers if _computes(program) else ()
    except BadProgram:
        return ""
    if not answers:
        return ""
    value = answers[-1][0]
    return _chosen(value.lower().removeprefix("it's a ")) if isinstance(value, str) else _written(value, now)


def _computes(program: str) -> bool:
    """Whether a program calculates, or compares what it has named. A number that is compared with is a fact that the
    model believes, as are a time and a date."""
    try:
        nodes = list(ast.walk(ast.parse(program)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in nodes:
        match node:
            case ast.BinOp():
                return True
            case ast.Call(func=ast.Name(id=name)) if name not in ("time", "date"):
                return True
            case ast.Compare(left=left, comparators=[right]) if not isinstance(left, ast.Constant):
                if not isinstance(right, ast.Constant):
                    return True
    return False


def steps_answer(steps: str, kind: Kind) -> str:
    """What the steps end with, as `_written` writes it: what follows their last "answer", in any markup, or else their
    last number. An answer of numbers that belong together is taken as it stands: "2 hours and 30 minutes"."""
    text = steps.lower()
    named = [match.end() for match in re.finditer(r"\banswer\b[\s*_`]*(?:\bis\b|[:=\n]|$)", text)]
    named = named or [match.end() for match in re.finditer(r"\banswer\b", text)]
    if named and kind == "number" and any(map(str.isdigit, text[named[0] :])):
        last = next(text[end:] for end in reversed(named) if any(map(str.isdigit, text[end:])))
        line = _plain_numbers(next(line for line in last.split("\n") if any(map(str.isdigit, line))))
        values: list[str] = _VALUE.findall(line)
        return line if not values or _belong_together(line, values) else _one_form(values[0], line)
    if named:
        return _chosen(text[named[-1] :])
    if kind == "choice":
        return ""
    values = _VALUE.findall(_plain_numbers(text))
    return _one_form(values[-1], values[-1]) if values else ""


def _belong_together(line: str, values: Sequence[str]) -> bool:
    """Whether the numbers of a line are one answer: "2 hours and 30 minutes", "5 feet 6 inches", "2:3", "4 * 5"."""
    if len(values) + ("half" in line) < 2:
        return False
    joins = (" and ", "half", *"^*+")
    if any(sign in line for sign in joins) or re.search(r"\d:\d", line):
        return True
    return bool(re.search(r"\d ?(?!(?:of|for|in|per|at|to|or|is|from|on|with|by)\b)[a-z']+,? ?\d[\d.]* ?[a-z']", line))


def _chosen(last: str) -> str:
    """What was chosen, without markup and reasons: "is: **yes**, because …" is "yes"."""
    plain = re.sub(r"\\(?:boxed|text[a-z]{0,2}|mathrm)\{|[{}$*`]|\\[()\[\]]", "", last)
    line = re.sub(r"^is\b", "", plain.lstrip(_OPENS)).lstrip(_OPENS).partition("\n")[0].rstrip(_CLOSES)
    if judged := re.match(
        r"(yes|no|true|false)(?:$|[,;:!]|\.(?! ?\d)| (?:because|since|it|you|he|she|they|we|the)\b)", line
    ):
        return judged[1]
    return re.split(r",? \(?(?:because|since|with|which|who|as) |(?<=\w{3})\. ", line, maxsplit=1)[0]


def _plain_numbers(line: str) -> str:
    """The result in a line, without markup: its fractions are a/b, and its large numbers are digits."""
    line = line.strip().rstrip(" .*`").replace("−", "-").replace("{,}", ",").replace("-$", "-")
    line = re.sub(r"\\[dt]?frac\{(\d{1,9})\}\{(\d{1,9})\}", r" \1/\2", line)
    line = re.sub(r"(?<=[a-z}])\^\{?[23]\b", "", line)  # of a unit
    head, aside, _ = line.rpartition(" (")
    if aside and line.endswith(")") and head[-1:] not in "=+-*/×":
        line = head
    result = line.rpartition("=")[2]
    line = result if any(map(str.isdigit, result)) else line
    line = re.sub(r"\d[\d.,]{0,9} (?:thousand|[mb]illion)\b", lambda large: _ENGLISH.digits_for_words(large[0]), line)
    return line.lstrip(_OPENS).rstrip(_CLOSES)


def _one_form(value: str, otherwise: str) -> str:
    """A value as `_written` writes it.

    Args:
        otherwise: what is returned if there is no such value.
    """
    negative, plain = value.startswith("-"), value.removeprefix("-").replace(",", "")
    try:
        is_clock = ":" in value or value.endswith("m")
        read = read_clock(value) if is_clock else sum(map(Fraction, plain.split()), Fraction())
        return _written(-read if negative and isinstance(read, Fraction) else read, local_time())
    except (BadProgram, ValueError, ArithmeticError):
        return otherwise


def _written(value: Value, now: datetime) -> str:
    """A value in the one form in which samples are compared."""
    match value:
        case Fraction():
            return written(value)
        case Clock():
            return spoken_clock(value).lower()
        case Quantity():
            return written(value.amount)
    return answer(value, "", now).removeprefix("It's ").removeprefix("That's ").removesuffix(".").lower()


def vote(answer: str) -> str:
    """What an answer is counted as: a true statement as yes."""
    return {"true": "yes", "false": "no"}.get(answer, answer)

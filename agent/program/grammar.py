"""The grammar that holds a language model to programs which can be run."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent.program.walk import MOVES, TURNS
from chat.types import Lark, Tool, lark_string

_STATEMENTS = r"""
start: BEGIN line{0,12} ending
line: NAME " = " value "\n"
ending: final ("\n" final){0,3}
value: condition | sum | STRING " if " condition " else " STRING
"""

_CONDITION = r'condition: COMPARED (" > " | " < " | " >= " | " <= " | " == ") sum'

_SUMS = r"""
sum: product ((" + " | " - ") product){0,11}
product: factor ((" * " | " / " | " // " | " % ") factor){0,4}
factor: "-"? atom (" ** " atom)?
atom: NUMBER | NAME | "now" | "today" | "this_year" | "(" sum ")" | moment | length | measure | reckoning
moment: clock | "date(" STRING ")" | "time_in(" STRING ")" | "convert_time(" clock ", " STRING ", " STRING ")"
clock: "time(\"" CLOCK "\")"
length: ("seconds" | "minutes" | "hours" | "days" | "weeks" | "months" | "years") "(" sum ")"
measure: "convert(" sum ", " STRING ", " STRING ")"
reckoning: RECKONING "(" sum (", " sum){0,8} ")"
RECKONING: "round" | "sqrt" | "floor" | "ceil" | "abs" | "min" | "max" | "weekday" | "is_leap_year"
NAME: /[a-z][a-z0-9_]{0,29}/ & ~/RESERVED/
NUMBER: /[0-9]{1,15}(\.[0-9]{1,9})?/
STRING: /"[^"\\\n]{1,200}"/
CLOCK: /CLOCK_PATTERN/
"""

CLOCK_PATTERN = r"[0-9]{1,2}(:[0-9][0-9])?( [ap]m)?|noon|midnight"
"""A time of day, as `read_clock` reads it."""


_RESERVED = (
    "(time_in|convert|answer|print|true|false).*", "time", "date", "now", "today", "this_year", "talk", "ask", "cannot",
    *(word.lower() for word in keyword.kwlist),
)  # fmt: skip
"""What is no name: it would be taken for something else."""


def program_grammar(functions: Sequence[Tool], begin: str = "") -> Lark:
    """The grammar of programs that may call these functions.

    Args:
        functions: their parameters are texts and numbers.
        begin: what the program begins with, up to a value; empty for nothing.
    """
    calls = [f"call{n}" for n in range(len(functions))]
    finals = [
        '"answer = " value (", " STRING)?',
        'NAME " = " value',
        "moment",
        "measure",
        '"ask(" STRING ")"',
        '"cannot(" STRING ")"',
        '"talk()"',
        *calls,
    ]
    rules = [f"final: {' | '.join(finals)}"]
    for number, tool in enumerate(functions):
        rules += _call(f"call{number}", tool)
    statements = _STATEMENTS.strip().replace("BEGIN ", _beginning(begin))
    sums = _sums(*(f"{re.escape(tool.name)}.*" for tool in functions))
    return Lark(f"{statements}\n{_CONDITION.replace('COMPARED', 'sum')}\n{sums}\n{chr(10).join(rules)}\n")


_CHOICE = r"""
choice: conditions | STRING (" if " conditions " else " STRING){1,3}
conditions: condition ((" and " condition){0,3} | (" or " condition){1,3})
"""

_MOVES = f"""
move: ({" | ".join(map(lark_string, MOVES))}) "(" sum ")" | ({" | ".join(map(lark_string, TURNS))}) "()"
"""


def computation_grammar(begin: str) -> Lark:
    """The grammar of programs that only compute: assignments, and a last line `answer = …`.

    Args:
        begin: what comes before the program.
    """
    return Lark(f"start: {lark_string(begin)} {_computation('sum')}\n{_sums()}\n")


def choice_grammar(begin: str, declined: str) -> Lark:
    """The grammar of programs that decide: their last line is a condition, or one of several texts by conditions.

    Args:
        begin: what comes before the program.
        declined: what stands in place of both where there is nothing to compute.
    """
    decides = f"decides: {lark_string(begin)} {_computation('choice', 'move')}"
    condition = _CONDITION.replace("COMPARED", '(sum | "distance()")')
    rules = (decides, _MOVES.strip(), _CHOICE.strip(), condition, _sums())
    return Lark(f"start: decides | {lark_string(declined)}\n{chr(10).join(rules)}\n")


def _computation(last: str, *statements: str) -> str:
    """The rules for up to 20 assignments and other statements, and a last line."""
    lines = " | ".join(['NAME " = " sum', *statements])
    return f'line{{0,20}} "answer = " {last}\nline: ({lines}) "\\n"'


def _sums(*reserved: str) -> str:
    """The rules for what is computed; names are none of the reserved patterns."""
    rules = _SUMS.strip().replace("RESERVED", "|".join([*_RESERVED, *reserved]))
    return rules.replace("CLOCK_PATTERN", CLOCK_PATTERN)


def _beginning(begin: str) -> str:
    """The rules' text for what a program begins with: its last line is completed, and others may follow."""
    if not begin:
        return ""
    if begin.endswith("answer = "):
        return f'{lark_string(begin)} value (", " STRING)? | {lark_string(begin)} value "\\n" '
    return f'{lark_string(begin)} value "\\n" '


def _call(rule: str, tool: Tool) -> list[str]:
    """The rules for a call: its arguments in their order, each left out if it is optional."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    rules, following = [], ""
    for number, (name, schema) in reversed(list(enumerate(properties.items()))):
        is_positional = number == 0 and schema.get("type") == "string"
        argument = f"{'' if is_positional else lark_string(f'{name}=') + ' '}{_argument(schema)}"
        this = f"{rule}_{number}"
        alone = f'{argument} (", " {following})?' if following else argument
        rules.append(f"{this}: {alone}" + (f" | {following}" if following and name not in required else ""))
        following = this
    optional = "" if required else "?"
    rules.append(f'{rule}: {lark_string(f"{tool.name}(")} {f"{following}{optional} " if following else ""}")"')
    return rules


def _argument(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"({' | '.join(lark_string(chr(34) + option + chr(34)) for option in schema['enum'])})"
    if schema.get("pattern") == f"^({CLOCK_PATTERN})$":
        return '("\\"" CLOCK "\\"" | clock (" + " | " - ") length)'
    if "pattern" in schema:
        return f'/"({schema["pattern"].strip("^$").replace("/", chr(92) + "/")})"/'
    return "NUMBER" if schema.get("type") in ("number", "integer") else "STRING"

"""Compares the calls that a model made with those that are right, argument by argument, as BFCL compares syntax trees
(Berkeley Function Calling Leaderboard; Patil et al., ICML 2025)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from chat.types import Tool


@dataclass(frozen=True)
class ExpectedCall:
    """A call that is right.

    Attributes:
        arguments: what each argument may be: a value, or a list of values of which one must be given. A name that ends
            with `?` may be left out. A text that begins with `~` lists words that must occur in this order, `|` between
            alternatives. Arguments that are not named must be left out, or empty.
    """

    name: str
    arguments: Mapping[str, Any]


def example(call: ExpectedCall) -> dict[str, Any]:
    """Arguments that are right, without optional ones."""
    return {name: _first(accepted) for name, accepted in call.arguments.items() if not name.endswith("?")}


def mistake(made: Sequence[tuple[str, str]], expected: Sequence[ExpectedCall], tools: Sequence[Tool]) -> str:
    """What is wrong with the calls of a response, in a few words; empty if they are right, in whatever order.

    Args:
        made: name and arguments (JSON text) of each call.
    """
    if not made or not expected:
        return "no call" if expected else "a call that is not needed" if made else ""
    if not all(valid(name, arguments, tools) for name, arguments in made):
        return "arguments that do not match their schema"
    if len(made) != len(expected):
        return f"{len(made)} calls instead of {len(expected)}"
    if sorted(name for name, _ in made) != sorted(call.name for call in expected):
        return "the wrong function"
    remaining = list(expected)
    for name, arguments in made:
        match = next((call for call in remaining if call.name == name and accepts(call, json.loads(arguments))), None)
        if match is None:
            return "wrong arguments"
        remaining.remove(match)
    return ""


def valid(name: str, arguments: str, tools: Sequence[Tool]) -> bool:
    """Whether a call is of one of the tools, and its arguments (JSON text) match the tool's schema."""
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        return False
    try:
        return bool(_validator(json.dumps(tool.parameters)).is_valid(json.loads(arguments)))
    except ValueError:
        return False


def accepts(call: ExpectedCall, arguments: Mapping[str, Any]) -> bool:
    """Whether a call of the right function has the right arguments."""
    accepted = {name.rstrip("?"): values for name, values in call.arguments.items()}
    required = {name for name in call.arguments if not name.endswith("?")}
    given = {name: value for name, value in arguments.items() if value != "" or name in required}
    return required <= set(given) <= set(accepted) and all(_accepts(accepted[name], given[name]) for name in given)


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema), format_checker=Draft202012Validator.FORMAT_CHECKER)


def _accepts(accepted: Any, value: Any) -> bool:
    alternatives = accepted if isinstance(accepted, list) else [accepted]
    return any(_equal(alternative, value) for alternative in alternatives)


def _equal(right: Any, value: Any) -> bool:
    if isinstance(right, str) and isinstance(value, str):
        return _has_words(right[1:], value) if right.startswith("~") else _plain(right) == _plain(value)
    if isinstance(right, list) and isinstance(value, list):
        return len(right) == len(value) and all(map(_equal, right, value))
    if isinstance(right, dict) and isinstance(value, dict):
        return right.keys() == value.keys() and all(_accepts(right[name], value[name]) for name in right)
    return isinstance(right, bool) == isinstance(value, bool) and bool(right == value)


def _plain(text: str) -> str:
    """Letters and digits only, without an article before them."""
    words = re.findall(r"\w+", text.casefold().replace("_", " "))
    return "".join(words[1:] if len(words) > 1 and words[0] in ("the", "a", "an", "my") else words)


def _has_words(pattern: str, text: str) -> bool:
    words = iter(re.findall(r"\w+", re.sub("['’]", "", text.casefold())))
    return all(any(word in alternatives.casefold().split("|") for word in words) for alternatives in pattern.split())


def _first(accepted: Any) -> Any:
    value = accepted[0] if isinstance(accepted, list) else accepted
    if isinstance(value, str) and value.startswith("~"):
        return " ".join(alternatives.partition("|")[0] for alternatives in value[1:].split())
    if isinstance(value, list):
        return [_first(part) if isinstance(part, dict) else part for part in value]
    return {name: _first(part) for name, part in value.items()} if isinstance(value, dict) else value

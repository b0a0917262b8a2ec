"""Whether calls are right, by the rules of BFCL's checker for Python (`eval_checker/ast_eval/ast_checker.py`).

Importing that checker needs 32 other packages. Its rules that look odd are kept, so that figures are comparable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.benchmarks.bfcl.items import WITHOUT_ANSWERS, Item, declared_name

_PYTHON_TYPES: dict[str, type] = {
    "string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list, "dict": dict,
    "any": str,
}  # fmt: skip

_IGNORED = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True)
class Call:
    """A call that was made.

    Attributes:
        arguments: None if they were no JSON object.
    """

    name: str
    arguments: Mapping[str, Any] | None


def parse_call(name: str, arguments: str) -> Call:
    """A call as the API returns it."""
    try:
        parsed = json.loads(arguments)
    except ValueError:
        parsed = None
    return Call(name, parsed if isinstance(parsed, dict) else None)


def mistake(item: Item, calls: Sequence[Call]) -> str:
    """What is wrong with the calls, in a few words; empty if they are right."""
    if item.kind in WITHOUT_ANSWERS:
        if "irrelevance" in item.kind:
            return "a call where no function fits" if calls else ""
        return "" if calls else "no call"
    if len(calls) != len(item.answers):
        return f"{len(calls)} calls instead of {len(item.answers)}"
    remaining = list(calls)
    for answer in item.answers:
        reasons = [_call_mistake(item, call, answer) for call in remaining]
        if "" not in reasons:
            return reasons[0]
        del remaining[reasons.index("")]
    return ""


def _call_mistake(item: Item, call: Call, answer: Mapping[str, Mapping[str, Sequence[Any]]]) -> str:
    ((name, accepted),) = answer.items()
    if call.name != declared_name(name):
        return f"{call.name} instead of {declared_name(name)}"
    if call.arguments is None:
        return "arguments that are no JSON object"
    parameters = next(function["parameters"] for function in item.functions if function["name"] == name)
    required = {*parameters.get("required", ()), *(key for key, values in accepted.items() if "" not in values)}
    if missing := sorted(required - call.arguments.keys()):
        return f"without {', '.join(missing)}"
    for key, value in call.arguments.items():
        if key not in parameters["properties"] or key not in accepted:
            return f"{key} is not to be given"
        if not _is_accepted(value, parameters["properties"][key], accepted[key]):
            return f"{key} is {value!r} instead of {' or '.join(map(repr, accepted[key]))}"
    return ""


def _is_accepted(value: Any, schema: Mapping[str, Any], accepted: Sequence[Any]) -> bool:
    """Whether a value has the right type and is one of those that are accepted.

    An accepted value of another type than the schema's stands for a variable, such as a name in place of a list. Then
    values are compared without normalization.
    """
    expected = _PYTHON_TYPES[schema["type"]]
    inner = _PYTHON_TYPES[schema["items"]["type"]] if expected is list and "items" in schema else None
    if expected is float and type(value) is int:
        value = float(value)
    described = _type_of(accepted)
    given = type(value)
    if given is not expected:
        return given is described and value in accepted
    if inner and not any(_has_elements(value, alternative, inner) for alternative in accepted):
        return False
    if described not in (None, expected):
        return value in accepted
    if expected is dict:
        return any(alternative != "" and _same_object(value, alternative) for alternative in accepted)
    if inner is dict:
        return any(_same_objects(value, alternative) for alternative in accepted)
    if expected is list:
        return [_plain(element) for element in value] in [list(map(_plain, alternative)) for alternative in accepted]
    return _plain(value) in [_plain(alternative) for alternative in accepted]


def _type_of(accepted: Sequence[Any]) -> type | None:
    """The type of the accepted values. An empty text says that a parameter may be left out."""
    return next((type(alternative) for alternative in accepted if alternative != ""), None)


def _has_elements(value: Sequence[Any], alternative: Any, inner: type) -> bool:
    """Whether the elements have the type that is expected, or that of the alternative's elements."""
    if not isinstance(alternative, list):
        return True
    return all(type(element) in (inner, _type_of(alternative)) for element in value)


def _same_object(value: Mapping[str, Any], alternative: Mapping[str, Sequence[Any]]) -> bool:
    required = {key for key, values in alternative.items() if "" not in values}
    return required <= value.keys() <= alternative.keys() and all(
        _plain(part) in [_plain(other) for other in alternative[key]] for key, part in value.items()
    )


def _same_objects(value: Sequence[Any], alternative: Sequence[Any]) -> bool:
    return len(value) == len(alternative) and all(
        isinstance(part, dict) and other != "" and _same_object(part, other)
        for part, other in zip(value, alternative, strict=True)
    )


def _plain(value: Any) -> Any:
    """A text without case, spaces and punctuation; other values as they are."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value

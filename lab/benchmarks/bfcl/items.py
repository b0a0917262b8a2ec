"""BFCL's questions of one turn, from the package `bfcl-eval`: which are asked, and their functions as tools."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal

KINDS = (
    "irrelevance", "live_irrelevance", "live_relevance",
    "simple_python", "multiple", "parallel", "parallel_multiple",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple",
)  # fmt: skip
"""As version 4 of BFCL calls them. Those with several turns, and in Java and JavaScript, are left out."""

WITHOUT_ANSWERS = frozenset({"irrelevance", "live_irrelevance", "live_relevance"})
"""Kinds of which only whether a call is made is judged."""

REPORTED_LIMIT = 100
"""Even ids of each kind that are asked at most."""

Half = Literal["odd", "even"]

_PACKAGE = "bfcl-eval"

_PYTHON_HINT = " Note that the provided function is in Python 3 syntax."
"""BFCL adds it to the description of every function of these kinds (`utils.load_dataset_entry`)."""

_FLOAT_HINT = " This is a float type value."
"""BFCL adds it to the description of a parameter (`model_handler.utils.convert_to_tool`)."""

_JSON_TYPES = {
    "integer": "integer", "float": "number", "number": "number", "boolean": "boolean", "bool": "boolean",
    "array": "array", "list": "array", "tuple": "array", "dict": "object", "object": "object",
}  # fmt: skip
"""JSON Schema's name of a type; every other type, such as "any", is a string."""

_GOLDEN_RATIO = 0.6180339887498949


class QuestionsUnavailable(RuntimeError):
    """The package with the questions is not installed."""


@dataclass(frozen=True)
class Item:
    """A question.

    Attributes:
        functions: as BFCL describes them.
        answers: the calls that are right, each as {function: {parameter: accepted values}}.
    """

    id: str
    kind: str
    messages: Sequence[Mapping[str, str]]
    functions: Sequence[Mapping[str, Any]]
    answers: Sequence[Mapping[str, Mapping[str, Sequence[Any]]]] = ()

    @property
    def number(self) -> int:
        """Its place in its kind: the first number of the id ("live_simple_7-3-1": 7)."""
        return int(re.findall(r"\d+", self.id)[0])

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The functions, as BFCL declares them to OpenAI's models."""
        return [
            {
                "type": "function",
                "function": {
                    "name": declared_name(function["name"]),
                    "description": function["description"] + _PYTHON_HINT,
                    "parameters": _json_schema(function["parameters"]),
                },
            }
            for function in self.functions
        ]


def declared_name(name: str) -> str:
    """A function's name in its declaration: OpenAI allows no dots."""
    return name.replace(".", "_")


def questions_version() -> str:
    """The version of the package. Raises QuestionsUnavailable."""
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:
        raise QuestionsUnavailable(
            f"The questions are in the package {_PACKAGE}: install it with `pip install --no-deps {_PACKAGE}`."
        ) from None


def read_items(kind: str, folder: Traversable | None = None) -> list[Item]:
    """All questions of a kind, in BFCL's order.

    Args:
        folder: BFCL's data; None for those of the installed package.

    Raises:
        QuestionsUnavailable: the package is not installed.
    """
    if folder is None:
        questions_version()
        folder = files("bfcl_eval") / "data"
    answers: dict[str, Any] = {}
    name = f"BFCL_v4_{kind}.json"
    if kind not in WITHOUT_ANSWERS:
        answers = {answer["id"]: answer["ground_truth"] for answer in _read_lines(folder / "possible_answer" / name)}
    return [
        Item(question["id"], kind, question["question"][0], question["function"], answers.get(question["id"], ()))
        for question in _read_lines(folder / name)
    ]


def sample(items: Sequence[Item], half: Half, limit: int | None = None) -> list[Item]:
    """The questions of a half that are asked, the same ones in every run.

    They are spread evenly, and a smaller sample is the beginning of a larger one. A question of the even half that is
    also asked at an odd id, as happens in the live kinds, is left out.
    """
    odd = [item for item in items if item.number % 2]
    if half == "odd":
        chosen = odd
    else:
        known = [item.messages for item in odd]
        chosen = [item for item in items if not item.number % 2 and item.messages not in known]
        limit = min(limit or REPORTED_LIMIT, REPORTED_LIMIT)
    return sorted(chosen, key=lambda item: item.number * _GOLDEN_RATIO % 1)[:limit]


def _json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema whose types are JSON Schema's, at any depth."""
    converted = {**schema, "type": _JSON_TYPES.get(schema.get("type", ""), "string")}
    if isinstance(properties := schema.get("properties"), Mapping):
        converted["properties"] = {name: _property(value) for name, value in properties.items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(part := schema.get(keyword), Mapping):
            converted[keyword] = _json_schema(part)
    return converted


def _property(schema: Mapping[str, Any]) -> dict[str, Any]:
    converted = _json_schema(schema)
    if schema.get("type") == "float":
        converted |= {"format": "float", "description": schema.get("description", "") + _FLOAT_HINT}
    return converted


def _read_lines(file: Traversable) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]

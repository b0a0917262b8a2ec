"""Arguments that a bigger model wrote, against schemas that clients and MCP servers wrote."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agent.remote.argument_check import match_schema

HOSTILE = {"type": "object", "properties": {"word": {"type": "string", "pattern": "^(a+)+$"}}}
PREFIXED = {"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False}


def test_a_pattern_that_keeps_a_backtracking_matcher_busy_for_hours_is_quick() -> None:
    arguments = {"word": 5000 * "a" + "!"}
    match_schema(arguments, HOSTILE)  # imports llguidance
    start = time.perf_counter()
    assert not match_schema(arguments, HOSTILE)
    assert time.perf_counter() - start < 0.05


def test_many_patterns_are_given_up() -> None:
    patterns = {
        f"(k{{1,500}}){{1,{n}}}|k.*": {"type": "string", "pattern": f"(a{{1,500}}){{1,{n}}}"} for n in range(60)
    }
    arguments = {f"k{n}": "ab" * 900 for n in range(20)}
    match_schema({"word": "a"}, HOSTILE)  # imports llguidance
    start = time.thread_time()
    assert not match_schema(arguments, {"type": "object", "patternProperties": patterns})
    assert time.thread_time() - start < 0.25


def test_so_is_a_pattern_for_names() -> None:
    schema = {"type": "object", "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}
    assert not match_schema({5000 * "a" + "!": 1}, schema)


@pytest.mark.parametrize(
    ("arguments", "schema", "valid"),
    [
        ({"word": "aaa"}, HOSTILE, True),
        ({"word": "aab"}, HOSTILE, False),
        ({"word": 3}, HOSTILE, False),
        ({"word": "see a cat"}, {"properties": {"word": {"pattern": "a c"}}}, True),
        ({"x-a": 1}, PREFIXED, True),
        ({"x-a": "one"}, PREFIXED, False),
        ({"y": 1}, PREFIXED, False),
        ({"y": 1, "x-a": 1}, {**PREFIXED, "additionalProperties": {"type": "integer"}}, True),
        ({"y": "one"}, {**PREFIXED, "additionalProperties": {"type": "integer"}}, False),
        ({}, {"type": "object", "required": ["word"]}, False),
        (
            {"word": "a"},
            {"properties": {"word": {"$ref": "#/$defs/short"}}, "$defs": {"short": {"maxLength": 1}}},
            True,
        ),
        ({"word": "a"}, {"properties": {"word": {"$ref": "https://example.org/schema"}}}, False),
        ({"word": "a"}, {"type": "nonsense"}, False),
        ({"word": "a"}, {"properties": {"word": {"pattern": 5}}}, False),
        ({"word": "a"}, {"properties": {"word": {"pattern": "("}}}, False),
    ],
)
def test_arguments_match_their_schema(arguments: dict[str, Any], schema: dict[str, Any], valid: bool) -> None:
    assert match_schema(arguments, schema) is valid

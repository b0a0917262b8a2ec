"""Bounds that are added to schemas, and where a schema's error is."""

from __future__ import annotations

from typing import Any

import pytest

from model.decode.grammar import InvalidGrammar
from model.decode.json_schema import MAX_NUMBER, MAX_STRING, bounded, check, locate_error


def test_strings_numbers_and_arrays_get_bounds_and_objects_are_closed() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer", "minimum": 3}, "c": {"type": "array"}},
    }
    properties = bounded(schema)["properties"]
    assert properties["a"]["maxLength"] == MAX_STRING
    assert properties["b"] == {"type": "integer", "minimum": 3, "maximum": MAX_NUMBER}
    assert properties["c"]["maxItems"] > 0
    assert bounded(schema)["additionalProperties"] is False
    assert "maxLength" not in schema["properties"]["a"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": True}, "additionalProperties": {"type": "null"}},
        {"type": "object", "properties": {"a": True}, "patternProperties": {"^x": True}},
        {"type": "object", "properties": {"a": True}, "required": ["b"]},
        {"type": "object"},
    ],
)
def test_objects_that_allow_other_properties_stay_open(schema: dict[str, Any]) -> None:
    assert bounded(schema).get("additionalProperties") == schema.get("additionalProperties")


def test_what_is_combined_with_another_schema_is_not_narrowed() -> None:
    """Two closed objects have no common value, and a narrower branch of `oneOf` may only look distinct."""
    open_object = {"type": "object", "properties": {"a": {"type": "null"}}}
    assert bounded({"allOf": [open_object, {"type": "object"}]})["allOf"][0] == open_object
    assert bounded({"oneOf": [open_object, {"type": "string"}]})["oneOf"] == [open_object, {"type": "string"}]
    assert bounded({"anyOf": [open_object], "required": ["b"]})["anyOf"] == [open_object]
    assert bounded({"anyOf": [open_object]})["anyOf"] == [{**open_object, "additionalProperties": False}]
    definitions = {"$defs": {"a": open_object}}
    merged = bounded({**definitions, "properties": {"x": {"$ref": "#/$defs/a", "required": ["b"]}}})
    assert merged["$defs"]["a"] == open_object
    alone = bounded({**definitions, "properties": {"x": {"$ref": "#/$defs/a"}}})
    assert alone["$defs"]["a"]["additionalProperties"] is False


def test_annotations_that_the_compiler_does_not_know_are_removed() -> None:
    schema = {"type": "string", "example": "x", "x-order": 1, "nullable": True, "maxLength": 3, "uniqueItems": False}
    assert bounded(schema) == {"type": "string", "maxLength": 3}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "array", "items": {"type": "array", "uniqueItems": True}}, "items.uniqueItems"),
        ({"properties": {"a": {"propertyNames": {"maxLength": 3}}}}, "properties.a.propertyNames"),
        ({"properties": {"a": 5}}, "properties.a"),
        ({"type": "object", "minProperties": 2}, "minProperties"),
        ([], ""),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_its_path(schema: Any, path: str) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        check(schema)
    assert caught.value.path == path


def test_a_schema_of_any_depth_is_checked_without_recursion() -> None:
    schema: dict[str, Any] = {}
    for _ in range(3000):
        schema = {"items": schema}
    check(schema)
    with pytest.raises(InvalidGrammar, match="subschemas"):
        check({"anyOf": [{}] * 6000})


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"minimum": -(2**63), "maximum": 2**63 - 1}, {"minimum": -MAX_NUMBER, "maximum": MAX_NUMBER}),
        ({"exclusiveMinimum": 0, "maximum": 1.7976931348623157e308}, {"exclusiveMinimum": 0, "maximum": MAX_NUMBER}),
        ({"minimum": 3, "exclusiveMinimum": 3, "maximum": 9}, {"exclusiveMinimum": 3, "maximum": 9}),
        ({"minimum": 4, "exclusiveMinimum": 3, "maximum": 9}, {"minimum": 4, "maximum": 9}),
        (
            {"minimum": 5, "exclusiveMinimum": True, "maximum": 9},
            {"minimum": 5, "exclusiveMinimum": True, "maximum": 9},
        ),
        (
            {"minimum": 0, "exclusiveMinimum": False, "maximum": 9},
            {"minimum": 0, "exclusiveMinimum": False, "maximum": 9},
        ),
        ({"minimum": 2**60, "maximum": 2**61}, {"minimum": 2**60, "maximum": 2**61}),
    ],
)
def test_bounds_are_tightened_to_what_floating_point_holds(given: dict[str, Any], kept: dict[str, Any]) -> None:
    check({"type": "number", **given})
    assert bounded({"type": "number", **given}) == {"type": "number", **kept}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"id": {"enum": [1, 175928847299117063]}}}, "properties.id.enum"),
        ({"const": {"a": [1234567890123456789]}}, "const"),
        ({"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740995}, "minimum"),
        ({"properties": {"n": {"type": "integer", "multipleOf": 50_000}}}, "properties.n.multipleOf"),
    ],
)
def test_numbers_that_would_be_written_as_others_are_refused(schema: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidGrammar) as refused:
        check(schema)
    assert refused.value.path == path


def test_other_numbers_are_not_refused() -> None:
    check(
        {
            "enum": [2**60, 80351110224678912, 0.1, -3.25, 1e30, 3.141592653589793, True, None, 123456.789],
            "multipleOf": 0.01,
        }
    )


def test_the_cause_of_an_error_is_found_beside_a_closed_object() -> None:
    def error_of(schema: Any) -> str:
        if schema is False:
            return "Unsatisfiable schema: schema is false"
        return "regex parse error" if "(?=" in str(schema) else ""

    schema = {
        "type": "object",
        "properties": {"zip": {"type": "string", "pattern": "(?=x)"}},
        "additionalProperties": False,
    }
    error = locate_error(schema, error_of)
    assert error.path == "properties.zip.pattern"

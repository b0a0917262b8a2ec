"""Whether the arguments of a call match the function's schema, which a client or an MCP server wrote.

Its regular expressions never reach Python's `re`, which a pattern such as `^(a+)+$` keeps busy for hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jsonschema import ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

from agent.remote.text_pattern import text_matches


def match_schema(arguments: Any, schema: Mapping[str, Any]) -> bool:
    """Whether arguments match a schema. False if it is none, and where it refers to another document."""
    try:
        validator = _without_re(validator_for(schema))
        validator(dict(schema), registry=Registry()).validate(arguments)
    except Exception:  # whatever a validator raises for a schema that is none
        return False
    return True


@cache
def _without_re(validator: Any) -> Any:
    """The validator of a draft of JSON Schema, with llguidance for the keywords that it would give to `re`."""
    keywords = {"pattern": _pattern, "patternProperties": _pattern_properties, "additionalProperties": _additional}
    # A schema with unevaluatedProperties is refused when the tool is declared, unless the value allows everything.
    return extend(validator, {**keywords, "unevaluatedProperties": _nothing})


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not text_matches(pattern, instance):
        yield ValidationError("the text does not match its pattern")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if text_matches(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional(validator: Any, additional: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in named or any(text_matches(pattern, name) for pattern in patterns):
            continue
        if additional is False:
            yield ValidationError("there is a property that the schema does not name")
        elif isinstance(additional, dict):
            yield from validator.descend(value, additional, path=name)


def _nothing(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    yield from ()

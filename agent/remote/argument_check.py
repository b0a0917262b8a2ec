"""Whether the arguments of a call match the function's schema, which a client or an MCP server wrote.

Its regular expressions never reach Python's `re`, which a pattern such as `^(a+)+$` keeps busy for hours. llguidance
reads them, as it does while tokens are generated: it never backtracks, so the time grows with the text alone. Many of
them may still take seconds, so `match_schema` gives up.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from jsonschema import ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_MAX_TEXT = 10_000
"""Characters of a text that can match. Strings of function calls have at most 2,000 where the schema says nothing."""


_MAX_S = 0.1
"""Processor time for all patterns of a check. It runs on the event loop."""

_ends_at = ContextVar("ends_at", default=math.inf)
"""When the check gives up, on `time.thread_time`."""


def match_schema(arguments: Any, schema: Mapping[str, Any]) -> bool:
    """Whether arguments match a schema. False if it is none, where it refers to another document, and if its patterns
    take too long."""
    _ends_at.set(time.thread_time() + _MAX_S)
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
    return extend(validator, {**keywords, "unevaluatedProperties": lambda *_: None})


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _text_matches(pattern, instance):
        yield ValidationError("the text does not match its pattern")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if _text_matches(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional(validator: Any, additional: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in named or any(_text_matches(pattern, name) for pattern in patterns):
            continue
        if additional is False:
            yield ValidationError("there is a property that the schema does not name")
        elif isinstance(additional, dict):
            yield from validator.descend(value, additional, path=name)


def _text_matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text, as `pattern` of JSON Schema has it. False if the text is too long, and
    if llguidance does not know the pattern or gives up on it."""
    if time.thread_time() > _ends_at.get():
        raise TimeoutError("the patterns of the schema take too long")
    if len(text) > _MAX_TEXT or (compiled := _compiled(pattern)) is None:
        return False
    matcher = compiled.deep_copy()
    written = json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")
    return bool(matcher.try_consume_tokens(list(written)) == len(written) and matcher.is_accepting())


@lru_cache(64)
def _compiled(pattern: str) -> LLMatcher | None:
    from llguidance import LLMatcher

    try:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps({"type": "string", "pattern": pattern}))
    except ValueError:
        return None
    return LLMatcher(_byte_tokens(), grammar, log_level=0)


@cache
def _byte_tokens() -> LLTokenizer:
    """A tokenizer with a token for each byte."""
    from llguidance import LLTokenizer

    return LLTokenizer("byte")

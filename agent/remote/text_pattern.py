"""Whether a text matches a pattern of a JSON Schema that somebody else wrote.

llguidance reads it, as it does while tokens are generated: it never backtracks, so the time grows with the text alone.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance import LLTokenizer

MAX_TEXT = 10_000
"""Characters of a text that can match. Strings of function calls have at most 2,000 where the schema says nothing."""


def text_matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text, as `pattern` of JSON Schema has it. False if the text is too long, and
    if llguidance does not know the pattern or gives up on it."""
    from llguidance import LLMatcher

    if len(text) > MAX_TEXT:
        return False
    try:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps({"type": "string", "pattern": pattern}))
    except ValueError:
        return False
    matcher = LLMatcher(_byte_tokens(), grammar, log_level=0)
    written = json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")
    return bool(matcher.try_consume_tokens(list(written)) == len(written) and matcher.is_accepting())


@cache
def _byte_tokens() -> LLTokenizer:
    """A tokenizer with a token for each byte."""
    from llguidance import LLTokenizer

    return LLTokenizer("byte")

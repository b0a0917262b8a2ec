"""The words that describe a tool, to compare with what the user said."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from agent.matched_text import MAX_DESCRIPTION, for_patterns
from chat.types import Tool

_STOP_WORDS = frozenset(
    "a an the of to for in on at by and or is are was be do does can could would will please me my i you it its this "
    "that what which who how when where with from as if only example user tool function current one some any".split()
)

_NAME_WEIGHT = 3
"""How often the words of a tool's name count."""


def stems(text: str) -> list[str]:
    """The words of a text in lower case, without the endings of plurals and verbs, and without words that say nothing
    about it."""
    text = for_patterns(text, MAX_DESCRIPTION)
    plain = re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    return [re.sub(r"(?<=\w{3})(ies|es|s|ing|ed|e)$", "", word) for word in plain if word not in _STOP_WORDS]


def describing_stems(tool: Tool) -> Counter[str]:
    """What `stems` finds in a tool's name, description and parameters, with their number."""
    texts = [tool.description]
    for name, schema in tool.parameters.get("properties", {}).items():
        texts += [name, *_schema_texts(schema)]
    return Counter(_NAME_WEIGHT * stems(tool.name.replace("_", " ")) + stems(" ".join(texts).replace("_", " ")))


def _schema_texts(schema: Any) -> list[str]:
    """What a parameter's schema says about it, and the values that it may have."""
    if not isinstance(schema, dict):
        return []
    values = schema.get("enum", [])
    texts = [str(schema.get("description", "")), *(value for value in values if isinstance(value, str))]
    return texts + _schema_texts(schema.get("items"))

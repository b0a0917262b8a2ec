"""Prepares a JSON Schema for generation, and finds where a schema is wrong.

A schema says what is valid, not what ends: an integer may have a million digits. `bounded` adds limits that only
exclude values, so that whatever follows the bounded schema also follows the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from model.decode.grammar import InvalidGrammar

MAX_STRING = 2000
"""Characters of a string whose schema names no `maxLength`."""

MAX_NUMBER = 10**15
"""Largest absolute value of a number whose schema names no bound. Floating point holds every integer up to here."""

MAX_MULTIPLE = 10_000
"""Largest `multipleOf`: the automaton of its multiples grows with it."""

MAX_ITEMS = 200
"""Items of an array whose schema names no `maxItems`."""

MAX_SCHEMA_NODES = 5000
"""Most subschemas. Compiling that many takes about a second, in which no other request of the same thread runs."""

_ANNOTATIONS = {"example", "deprecated", "nullable", "discriminator", "externalDocs", "xml", "strict", "$vocabulary"}
"""Keywords that restrict nothing, or (`nullable`) only allow more. The compiler does not know them."""

_SINGLE = ("items", "additionalProperties", "additionalItems", "contains", "not", "if", "then", "else")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_HEADINGS = {"$defs", "definitions", "description", "title", "$schema", "$id", "$comment"}
"""Keywords beside which another one still applies alone."""

_COMBINATORS = {"anyOf", "oneOf", "allOf", "$ref", "not", "if"}

_UNSUPPORTED = {
    "uniqueItems": "whether items are unique cannot be enforced while they are written",
    "propertyNames": "it cannot be enforced: describe the properties' names with patternProperties",
}
"""Keywords with an error of their own; the compiler refuses other unsupported ones by name."""

_UNRESTRICTING: dict[str, Any] = {
    "uniqueItems": False, "propertyNames": True, "unevaluatedProperties": True, "unevaluatedItems": True, "not": False,
    "dependentRequired": {}, "dependentSchemas": {},
}  # fmt: skip
"""Values of unsupported keywords with which they restrict nothing."""

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
"""Whole numbers, which may be written as 2.0."""


def bounded(schema: Any) -> Any:
    """A copy whose strings, numbers and arrays are bounded, whose objects are closed unless they say otherwise, and
    without annotations that the compiler does not know.

    Nothing is changed inside `oneOf`, where a narrower branch could look distinct from the others when it is not.
    """
    nodes = [node for _, node in _walk(schema, "")]
    merged = any(
        "allOf" in node or "oneOf" in node or ("$ref" in node and set(node) - {"$ref", *_HEADINGS}) for node in nodes
    )
    return _bounded(schema, alone=True, definitions_alone=not merged)


def locate_error(schema: Any, error_of: Callable[[Any], str]) -> InvalidGrammar:
    """The error of a schema that does not compile, with the path of the smallest subschema that does not either.

    Args:
        error_of: compiles a schema; returns its error, or an empty string.
    """
    root = schema if isinstance(schema, Mapping) else {}
    definitions = {name: root[name] for name in ("$defs", "definitions") if isinstance(root.get(name), Mapping)}
    path, error = "", error_of(schema)
    node: Any = schema
    while True:
        for name, child in _children(node):
            if isinstance(child, bool):  # "additionalProperties": false alone allows nothing, and is right
                continue
            if name.split(".")[0] in definitions and node is schema:
                own = error_of({"$ref": f"#/{name.replace('.', '/', 1)}", **definitions})
            else:
                own = error_of({**child, **definitions} if isinstance(child, Mapping) else child)
            if own:
                path, error, node = f"{path}.{name}".strip("."), own, child
                break
        else:
            return InvalidGrammar(" ".join(error.split())[:300], _with_keyword(path, node, error))


def check(schema: Any) -> None:
    """Refuse what must not reach the compiler.

    Raises:
        InvalidGrammar: the schema is not one, is too large, or cannot be enforced.
    """
    if not isinstance(schema, (Mapping, bool)):
        raise InvalidGrammar(f"a JSON Schema is an object or a boolean, not {type(schema).__name__}")
    for count, (path, node) in enumerate(_walk(schema, "")):
        if count > MAX_SCHEMA_NODES:
            raise InvalidGrammar(f"the schema has more than {MAX_SCHEMA_NODES} subschemas: split it", path)
        for keyword, reason in _UNSUPPORTED.items():
            if node.get(keyword) is not None and node[keyword] is not _UNRESTRICTING[keyword]:
                raise InvalidGrammar(reason, f"{path}.{keyword}".strip("."))
        if keyword := _inexact(node):
            reason = "numbers of so many digits cannot be written exactly: use a string"
            raise InvalidGrammar(reason, f"{path}.{keyword}".strip("."))
        multiple = node.get("multipleOf")
        if isinstance(multiple, (int, float)) and multiple > MAX_MULTIPLE:
            reason = f"multiples of more than {MAX_MULTIPLE:,} cannot be enforced: list them in enum"
            raise InvalidGrammar(reason, f"{path}.multipleOf".strip("."))
        fewest = node.get("minProperties")
        if isinstance(fewest, (int, float)) and fewest > 1:
            # The grammar cannot tell whether the name of an additional property was used before.
            raise InvalidGrammar(
                "more than one property cannot be required without naming them: use required",
                f"{path}.minProperties".strip("."),
            )
        for name, child in _children(node):
            if not isinstance(child, (Mapping, bool)):
                raise InvalidGrammar(
                    f"a schema is an object or a boolean, not {type(child).__name__}", f"{path}.{name}".strip(".")
                )


def _inexact(node: Mapping[str, Any]) -> str:
    """The keyword with a number that the compiler would write as another one: it takes them for floating point. Empty
    if there is none."""
    values = [("const", node.get("const")), *(("enum", value) for value in _as_list(node.get("enum")))]
    while values:
        keyword, value = values.pop()
        if isinstance(value, int) and not _is_exact(value):
            return keyword
        parts = value.values() if isinstance(value, Mapping) else _as_list(value)
        values += [(keyword, part) for part in parts]
    for keyword, sign in (("minimum", 1), ("exclusiveMinimum", 1), ("maximum", -1), ("exclusiveMaximum", -1)):
        bound = node.get(keyword)
        if isinstance(bound, int) and sign * bound > MAX_NUMBER and not _is_exact(bound):
            return keyword  # other bounds are tightened
    return ""


def _is_exact(number: int) -> bool:
    return abs(number) <= MAX_NUMBER or (abs(number) < 1 << 1000 and int(float(number)) == number)


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    """The direct subschemas of a schema, each with its path."""
    if not isinstance(node, Mapping):
        return
    for keyword in _SINGLE:
        if keyword in node and not isinstance(node[keyword], list):
            yield keyword, node[keyword]
    for keyword in _LISTS:
        if isinstance(node.get(keyword), list):
            yield from ((f"{keyword}.{n}", child) for n, child in enumerate(node[keyword]))
    for keyword in _MAPS:
        if isinstance(node.get(keyword), Mapping):
            yield from ((f"{keyword}.{name}", child) for name, child in node[keyword].items())


def _walk(node: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every subschema that is an object, with its path. A schema may be nested deeper than Python recurses."""
    pending = [(path, node)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, Mapping):
            yield path, node
            pending += [(f"{path}.{name}".strip("."), child) for name, child in _children(node)]


def _bounded(node: Any, *, alone: bool, definitions_alone: bool) -> Any:
    """`alone`: whether no other schema applies to the same value, so that an object may be closed."""
    if not isinstance(node, Mapping):
        return node
    result = _without_idle_keywords(node)
    combined = bool(_COMBINATORS & set(result))
    branches_alone = alone and not set(result) - {"anyOf", *_HEADINGS}
    for keyword in _SINGLE[:3]:
        if keyword in result and not isinstance(result[keyword], list):
            result[keyword] = _bounded(
                result[keyword], alone=alone and not combined, definitions_alone=definitions_alone
            )
    for keyword in _LISTS:
        if isinstance(result.get(keyword), list):
            inner = branches_alone if keyword == "anyOf" else alone and not combined
            result[keyword] = [
                _without_idle_keywords(child)
                if keyword == "oneOf"
                else _bounded(child, alone=inner and keyword != "allOf", definitions_alone=definitions_alone)
                for child in result[keyword]
            ]
    for keyword in _MAPS:
        if isinstance(result.get(keyword), Mapping):
            inner = definitions_alone if keyword in ("$defs", "definitions") else alone and not combined
            result[keyword] = {
                name: _bounded(child, alone=inner, definitions_alone=definitions_alone)
                for name, child in result[keyword].items()
            }
    if not ({"const", "enum"} & set(result)):
        _add_bounds(result, may_close=alone and not combined)
    return result


def _without_idle_keywords(node: Any) -> Any:
    """A schema without keywords that restrict nothing in it."""
    if not isinstance(node, Mapping):
        return node
    idle = {key for key in node if key in _ANNOTATIONS or key.startswith("x-")}
    idle |= {key for key, value in _UNRESTRICTING.items() if key in node and node[key] == value}
    if "if" not in node:
        idle |= {"then", "else"}
    elif not {"then", "else"} & set(node):
        idle.add("if")
    if "contains" not in node:
        idle |= {"minContains", "maxContains"}
    kept = {key: value for key, value in node.items() if key not in idle}
    return kept | {key: int(value) for key in _COUNTS if isinstance(value := kept.get(key), float) and value % 1 == 0}


def _add_bounds(node: dict[str, Any], *, may_close: bool) -> None:
    types = node.get("type")
    types = set(types) if isinstance(types, list) else {types}
    if "string" in types and "maxLength" not in node:
        fewest = node.get("minLength", 0)
        node["maxLength"] = max(MAX_STRING, fewest if isinstance(fewest, int) else 0)
    if types & {"integer", "number"}:
        lower = _bound(node, ("exclusiveMinimum", "minimum"), 1)
        upper = _bound(node, ("exclusiveMaximum", "maximum"), -1)
        if (lower is None or lower < -MAX_NUMBER) and (upper is None or upper > -MAX_NUMBER):
            node.pop("exclusiveMinimum", None)
            node["minimum"] = -MAX_NUMBER
        if (upper is None or upper > MAX_NUMBER) and (lower is None or lower < MAX_NUMBER):
            node.pop("exclusiveMaximum", None)
            node["maximum"] = MAX_NUMBER
    if "array" in types and "maxItems" not in node:
        fewest = node.get("minItems", 0)
        prefix = node.get("prefixItems")
        node["maxItems"] = max(
            MAX_ITEMS, fewest if isinstance(fewest, int) else 0, len(prefix) if isinstance(prefix, list) else 0
        )
    if may_close and "object" in types and isinstance(node.get("properties"), Mapping):
        required = node.get("required", [])
        named = set(node["properties"])
        if "patternProperties" not in node and isinstance(required, list) and set(required) <= named:
            node.setdefault("additionalProperties", False)


def _bound(node: dict[str, Any], keywords: tuple[str, str], sign: int) -> float | None:
    """The tighter one of two bounds, which alone is kept; None if there is none.

    Args:
        keywords: the exclusive and the inclusive one; of equal ones, the exclusive one is kept.
        sign: 1 for lower bounds, -1 for upper ones.
    """
    if isinstance(node.get(keywords[0]), bool):  # as in draft 4, where it says whether the other one is exclusive
        bound = node.get(keywords[1])
        return float(bound) if isinstance(bound, (int, float)) else None
    given = [(sign * node[keyword], keyword) for keyword in keywords if isinstance(node.get(keyword), (int, float))]
    if not given:
        return None
    tightest, kept = max(given, key=lambda one: one[0])
    for _, keyword in given:
        if keyword != kept:
            del node[keyword]
    return float(sign * tightest)


_CLUES = {
    "regex": "pattern",
    "format": "format",
    "oneOf": "oneOf",
    "anyOf is empty": "anyOf",
    "multiple of": "multipleOf",
    "minimum": "minimum",
    "patternProperty": "patternProperties",
    "Invalid type": "type",
    "Pointer": "$ref",
    "": "$ref",
    "Resource": "$schema",
}
"""Words of the compiler's messages that do not name the keyword, and the keyword that each is about, the likeliest
first. A message about something that is not in the schema is about what it refers to."""


def _with_keyword(path: str, node: Any, error: str) -> str:
    """The path of the keyword that an error is about, if that can be told."""
    if not isinstance(node, Mapping):
        return path
    named = [keyword for keyword in node if f'"{keyword}"' in error or f"'{keyword}'" in error]
    hinted = [keyword for clue, keyword in _CLUES.items() if clue in error and keyword in node]
    keyword = next(iter(named + hinted), "enum" if "enum" in node and not node["enum"] else "")
    return f"{path}.{keyword}".strip(".")

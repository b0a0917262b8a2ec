"""Grammars that a response must follow: plain values, which `grammar_compiler.py` compiles for a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chat.types import Lark as Lark
from chat.types import Opening
from chat.types import lark_string as lark_string


class InvalidGrammar(ValueError):
    """A grammar that cannot be enforced: it is wrong, or uses something that is not supported.

    Attributes:
        path: where the error is, for example `properties.city.type`; empty for the grammar as a whole.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason, self.path = reason, path


class GrammarFailed(ValueError):
    """A grammar could not be followed any further, for example because it became too complex. Ends its request only."""


@dataclass(frozen=True)
class JSONSchema:
    """JSON that matches a JSON Schema (draft 2020-12, without what cannot be enforced token by token: `not`, `if`,
    `uniqueItems`, …, which are refused).

    The text is compact: `", "` and `": "` are the separators and there is no other white space. Properties come in the
    schema's order. Objects with `properties` get no others unless the schema allows them explicitly.
    """

    schema: Mapping[str, Any] | bool


@dataclass(frozen=True)
class JSONObject:
    """Any JSON object."""


@dataclass(frozen=True)
class Regex:
    """Text that a regular expression matches from its first to its last character (Rust's `regex` syntax)."""

    pattern: str


@dataclass(frozen=True)
class Choice:
    """One of these texts."""

    options: tuple[str, ...]


Grammar = JSONSchema | JSONObject | Regex | Choice | Opening | Lark
"""What a response may consist of."""


def csv(columns: Sequence[str], max_rows: int = 1000) -> Lark:
    """Comma-separated values with this header and at least one row (RFC 4180, with `\\n` between the records)."""
    header = ",".join(_csv_field(name) for name in columns)
    record = ' "," '.join(["FIELD"] * len(columns))
    return Lark(
        f"start: {lark_string(header)} record{{1,{max_rows}}}\n"
        f'record: "\\n" {record}\n'
        'FIELD: /[^",\\x00-\\x1f]{0,200}/ | /"([^"\\x00-\\x1f]|""|\\n){0,200}"/\n'
    )


def xml(root: str, children: Sequence[str], max_records: int = 1) -> Lark:
    """An XML element with these child elements, which contain text only, in this order.

    Args:
        max_records: with more than one, `root` holds up to that many elements `item`, each with these children.
    """
    fields = " ".join(f"{lark_string(f'<{name}>')} TEXT {lark_string(f'</{name}>')}" for name in children)
    body = fields if max_records == 1 else f'("<item>" {fields} "</item>"){{1,{max_records}}}'
    return Lark(
        f"start: {lark_string(f'<{root}>')} {body} {lark_string(f'</{root}>')}\n"
        "TEXT: /([^<>&\\x00-\\x08\\x0b-\\x1f]|&(amp|lt|gt|quot|apos);){0,500}/\n"
    )


def _csv_field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text

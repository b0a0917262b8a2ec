"""Reads tool calls in a model's text: in `<tool_call>` tags (Hermes, Qwen), in a fenced block, or as bare JSON.

Models that were not taught tags write the JSON in a fence or bare. A call that a grammar enforced is passed on while it
is written; any other is held back until it is complete and known to be valid. Small models write a call twice: the same
call with the same arguments counts once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from chat.types import ToolCallDelta

CALL_START, CALL_END = "<tool_call>", "</tool_call>"
_ENVELOPE = re.compile(r'\{"name": "([^"\\]*)", "arguments": ')
"""What precedes the arguments in a call that a grammar enforced (`tool_calls.py`)."""

_OPENINGS = (CALL_START, "<tools>", "```json", "```", "{")
_CLOSINGS = {CALL_START: CALL_END, "<tools>": "</tools>", "```json": "```", "```": "```", "{": ""}
_ARGUMENT_KEYS = ("arguments", "parameters")
_MAX_HEAD = 200
"""Characters after which text that has not named a tool is no call."""


class ToolCallParser:
    """Separates a stream of text into text for the user and tool calls.

    Args:
        is_valid: whether a function of this name may be called with these arguments (JSON text).
        most: calls of one response; further ones are dropped. None for any number.
        tags_only: whether a call in a fence, or bare, is text for the user.
    """

    def __init__(
        self, is_valid: Callable[[str, str], bool], *, most: int | None = None, tags_only: bool = False
    ) -> None:
        self._is_valid, self._most = is_valid, most
        self._held = ""
        self._space: str | None = None
        """White space since the last call, which belongs to the text that follows, if any does. None after text."""
        self._name: str | None = None
        self._written = ""
        self._made: tuple[tuple[str, str], ...] = ()
        self._scanner = _ObjectScanner()
        self._at_start = not tags_only
        self._was_enforced = False
        self.num_calls = 0
        """Complete calls so far."""

    @property
    def is_holding(self) -> bool:
        """Whether text is held back because it may be a call."""
        return bool(self._held or self._space)

    def text_length(self, draft: str) -> int:
        """How many characters of what may follow are text for the user, and would not be held back."""
        text, _ = copy(self).push(draft, enforced=False)
        return len(text) if draft.startswith(text) else 0

    def push(self, text: str, *, enforced: bool) -> tuple[str, list[ToolCallDelta]]:
        """Add text; returns what is text for the user, and what is part of a call.

        Args:
            enforced: whether a grammar enforces that what follows is a call.
        """
        self._held += text
        if enforced:
            return self._enforced()
        plain, deltas = "", list[ToolCallDelta]()
        while self._held:
            start, decided = self._find_opening()
            plain += self._spaced(self._held[:start])
            self._at_start = self._at_start and not plain.strip()
            self._held = self._held[start:]
            if not decided or not self._held:
                break
            call = self._complete_call()
            if call is None:
                break
            name, arguments, length = call
            if name:
                deltas += self._done(name, arguments)
            else:
                plain += self._spaced(self._held[:length])
                self._at_start = False
            self._held = self._held[length:]
        return plain, deltas

    def finish(self) -> tuple[str, list[ToolCallDelta]]:
        """The response has ended: what was held back. Without a closing tag or fence, a complete call counts."""
        if self._was_enforced or not self._held:
            return "", []
        held, self._held = self._held, ""
        opening = next((mark for mark in _OPENINGS if held.startswith(mark)), None)
        found = None if opening is None else self._read(held[len(opening) if opening != "{" else 0 :])
        if found is None:
            return self._spaced(held), []
        return "", [*self._done(*found)]

    def _spaced(self, text: str) -> str:
        """Text for the user, with the white space that has waited for it."""
        if self._space is None:
            return text
        self._space += text
        if not text.strip():
            return ""
        spaced, self._space = self._space, None
        return spaced

    def _enforced(self) -> tuple[str, list[ToolCallDelta]]:
        plain, deltas = "", list[ToolCallDelta]()
        while True:
            if self._name is None:
                before, tag, _ = self._held.partition(CALL_START)
                if tag and not self._was_enforced:
                    plain, self._held = before, self._held[len(before) :]
                self._was_enforced = True
                head = _ENVELOPE.search(self._held)
                if head is None:
                    return plain, deltas
                self._name, self._held, self._scanner = head[1], self._held[head.end() :], _ObjectScanner()
                self._written = ""
            end = self._scanner.scan(self._held)
            arguments, self._held = (self._held, "") if end is None else (self._held[:end], self._held[end:])
            deltas += self._continue(arguments, end is not None)
            if end is None:
                return plain, deltas
            self._name = None

    def _continue(self, arguments: str, complete: bool) -> Iterator[ToolCallDelta]:
        """More of the call in progress. What may turn out to repeat an earlier call is held back."""
        assert self._name is not None
        alike = [made for name, made in self._made if name == self._name]
        was_held = any(made.startswith(self._written) for made in alike)
        self._written += arguments
        call = (self._name, self._written)
        if (complete and call in self._made) or self._is_full:
            return
        if not complete and any(made.startswith(self._written) for made in alike):
            return
        if new := self._written if was_held else arguments:
            yield ToolCallDelta(self.num_calls, self._name, new, complete)
        if complete:
            self._made += (call,)
            self.num_calls += 1

    def _find_opening(self) -> tuple[int, bool]:
        """Where a call may begin in the held text, and whether its opening is complete. Tags count anywhere, a fence
        and a brace only where the response begins."""
        tag = self._held.find(CALL_START)
        if tag >= 0:
            return tag, True
        stripped = len(self._held) - len(self._held.lstrip())
        rest = self._held[stripped:]
        if self._at_start and rest:
            if any(mark.startswith(rest) and mark != rest for mark in _OPENINGS):
                return stripped, False
            if any(rest.startswith(mark) for mark in _OPENINGS):
                return stripped, True
        for length in range(min(len(CALL_START) - 1, len(self._held)), 0, -1):
            if CALL_START.startswith(self._held[-length:]):
                return len(self._held) - length, False
        return len(self._held), False

    def _complete_call(self) -> tuple[str, str, int] | None:
        """Name, arguments and length of the call that the held text begins with. An empty name: that much is no call.
        None: more text is needed."""
        opening = next(mark for mark in _OPENINGS if self._held.startswith(mark))
        inner = self._held if opening == "{" else self._held[len(opening) :]
        skipped = len(self._held) - len(inner)
        body = inner.lstrip()
        if body and not body.startswith("{"):
            return "", "", skipped or 1
        if len(body) > _MAX_HEAD and '"name"' not in body[:_MAX_HEAD]:
            return "", "", skipped or 1
        end = _ObjectScanner().scan(body) if body else None
        if end is None:
            return None
        found = self._read(body[:end])
        if found is None:
            return "", "", skipped or 1
        rest = body[end:]
        closing = _CLOSINGS[opening]
        after = rest.lstrip()
        if closing and not after.startswith(closing):
            if closing.startswith(after):
                return None
            closing = ""
        length = len(self._held) - len(after) + len(closing) if closing else len(self._held) - len(rest)
        return *found, length

    def _read(self, text: str) -> tuple[str, str] | None:
        """Name and arguments of a call in JSON; None if it is none, or not a valid one."""
        try:
            payload, _ = json.JSONDecoder().raw_decode(text.strip())
        except (ValueError, RecursionError):
            return None
        if not isinstance(payload, dict) or not isinstance(payload.get("name"), str):
            return None
        given: Any = next((payload[key] for key in _ARGUMENT_KEYS if key in payload), {})
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return (payload["name"], arguments) if self._is_valid(payload["name"], arguments) else None

    def _done(self, name: str, arguments: str) -> Iterator[ToolCallDelta]:
        """A complete call, unless it repeats an earlier one, or there are enough."""
        self._space = ""
        if (name, arguments) in self._made or self._is_full:
            return
        self._made += ((name, arguments),)
        self.num_calls += 1
        yield ToolCallDelta(self.num_calls - 1, name, arguments, True)

    @property
    def _is_full(self) -> bool:
        return self._most is not None and self.num_calls >= self._most


class _ObjectScanner:
    """Finds the end of a JSON object that arrives in pieces."""

    def __init__(self) -> None:
        self._depth, self._in_string, self._escaped = 0, False, False

    def scan(self, text: str) -> int | None:
        """Length of this piece's part of the object; None if the object continues."""
        for n, character in enumerate(text):
            if self._in_string:
                self._in_string = self._escaped or character != '"'
                self._escaped = character == "\\" and not self._escaped
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if not self._depth:
                    return n + 1
        return None

"""The functions that the assistant calls during a phone call: for the log, and for simulated phones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CalledFunction:
    """A function that has returned: its arguments as JSON text, and its output."""

    name: str
    arguments: str
    output: str


class CalledFunctions:
    """Finds the functions that have returned among the items of one conversation."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[str, str]] = {}

    def on_item(self, item: Mapping[str, Any]) -> CalledFunction | None:
        """Take a finished item, in the protocol's format. Returns the function whose output it is."""
        match item["type"]:
            case "function_call" if item["status"] == "completed":
                self._running[item["call_id"]] = (item["name"], item["arguments"])
            case "function_call_output" if item["call_id"] in self._running:
                name, arguments = self._running.pop(item["call_id"])
                return CalledFunction(name, arguments, item["output"])
            case "mcp_call":
                output = item["output"] if item["error"] is None else item["error"]["message"]
                return CalledFunction(item["name"], item["arguments"], output)
        return None

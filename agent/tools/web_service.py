"""Requests to a JSON service that the operator names: limited in time and size, with failures as sentences to say."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from agent.tools.function_tool import Caller, ServerTool
from agent.tools.protocol import ToolOutput

_log = logging.getLogger("rejoinder.server")

Answer = TypeVar("Answer", bound=BaseModel)

REQUEST_TIMEOUT_S = 5.0
"""Of one request. Somebody waits, and hears a holding phrase meanwhile."""

_MAX_BYTES = 1 << 20
"""Size of an answer."""


class ServiceFailed(Exception):
    """A service cannot be used now; the message is a sentence for the user."""


class WebService:
    """A client of one service.

    Args:
        name: for messages, such as "the weather service".
        url: its address; requests add their path.
    """

    def __init__(self, name: str, url: str) -> None:
        self._name, self._url = name, url.rstrip("/")
        # A compressed answer may be a thousand times as large as what has arrived.
        self._http = httpx.AsyncClient(timeout=REQUEST_TIMEOUT_S, headers={"accept-encoding": "identity"})

    async def get(self, path: str, parameters: Mapping[str, str | int | float], form: type[Answer]) -> Answer:
        """The JSON object that the service answers with, which has a form. Raises ServiceFailed."""
        content = b""
        try:
            async with self._http.stream("GET", f"{self._url}{path}", params=dict(parameters)) as response:
                async for part in response.aiter_raw():
                    content += part
                    if len(content) > _MAX_BYTES:
                        raise self._failure("its answer has more than 1 MiB")
        except httpx.TimeoutException:
            raise self._failure("it took too long", "is too slow right now") from None
        except httpx.HTTPError as error:
            raise self._failure(type(error).__name__) from None
        if response.status_code != 200:
            raise self._failure(f"HTTP {response.status_code}")
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._failure("its answer is no JSON object")
        try:
            return form.model_validate(answer)
        except ValidationError:
            raise self._failure("its answer has an unknown form") from None

    def _failure(self, reason: str, spoken: str = "does not answer right now") -> ServiceFailed:
        """An exception to raise. The reason is for the log: users cannot do anything about it."""
        _log.warning("%s at %s failed: %s", self._name, self._url, reason)
        return ServiceFailed(f"I am sorry, {self._name} {spoken}.")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def saying_failures(tool: ServerTool) -> ServerTool:
    """The tool, whose failed calls say `ServiceFailed`."""

    async def run(arguments: dict[str, Any], caller: Caller) -> ToolOutput:
        try:
            return await tool.run(arguments, caller)
        except ServiceFailed as error:
            return ToolOutput(str(error), str(error), failed=True)

    return replace(tool, run=run)

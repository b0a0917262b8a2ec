"""`/v1/decide`: typed decisions over HTTP."""

from __future__ import annotations

import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from model.engine.engine import Engine
from server.chat_completions.decision import DecisionMaker, DecisionRequest
from server.chat_completions.errors import read_json
from server.chat_completions.generation import TokenUsage, api_errors
from server.chat_completions.requests import RequestLimit, check_model
from server.chat_completions.streaming import unless_disconnected


class Decisions:
    """Answers decision requests.

    Args:
        engine: shared with the voice conversations.
        model: the name that requests may give.
        limit: shared with the other endpoints.
    """

    def __init__(self, engine: Engine, model: str, limit: RequestLimit) -> None:
        self._maker, self._model, self._limit = DecisionMaker(engine), model, limit

    async def handle(self, request: Request) -> Response:
        """One request. Raises APIError, ClientDisconnect."""
        body = await read_json(request, DecisionRequest)
        check_model(body.model, self._model)
        with self._limit.slot(), api_errors():
            decision = await unless_disconnected(request, self._maker.decide(body))
        result: dict[str, Any] = {
            "id": f"decision_{uuid.uuid4().hex}",
            "object": "decision",
            "model": self._model,
            "type": body.type,
            "value": decision.value,
            "probability": max(decision.probabilities),
            "probabilities": [
                {"value": value, "probability": probability}
                for value, probability in zip(decision.values, decision.probabilities, strict=True)
            ],
        }
        if body.type == "number":
            result["mean"] = decision.mean
        usage = TokenUsage(decision.scores.prompt_tokens, decision.scores.cached_tokens, forward_passes=1)
        return JSONResponse({**result, "usage": usage.body()})

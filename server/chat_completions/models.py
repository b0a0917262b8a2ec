"""`/v1/models`: the one language model that this server has."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from model.engine.engine import Engine
from server.chat_completions.requests import check_model


class Models:
    """Lists the server's model. The fields beyond OpenAI's are those of Inception's API."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._model: dict[str, Any] = {
            "id": model,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "rejoinder",
            "context_length": engine.context,
            "max_output_length": engine.context,
            "input_modalities": ["text"],
            "output_modalities": ["text"],
            "supported_sampling_parameters": [
                "temperature",
                "top_p",
                "top_k",
                "seed",
                "stop",
                "logprobs",
                "top_logprobs",
            ],
        }

    async def list(self, request: Request) -> Response:
        """All models."""
        return JSONResponse({"object": "list", "data": [self._model]})

    async def retrieve(self, request: Request) -> Response:
        """One model. Raises APIError."""
        check_model(request.path_params["model"], self._model["id"])
        return JSONResponse(self._model)

"""`/v1/embeddings`, in OpenAI's format, with the embedding model that also searches documents."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from model.hub.transfer import ModelUnavailable
from server.api_errors import APIError, read_json
from server.chat_completions.generation import TokenUsage, count
from server.chat_completions.requests import RequestLimit, check_model
from server.chat_completions.schema import ModelRequest
from server.chat_completions.streaming import unless_disconnected
from server.embedder import SharedEmbedder

MAX_INPUTS = 2048
MAX_CHARACTERS, MAX_TOTAL_CHARACTERS = 32_768, 1_200_000
"""Of one input, and of a request: about OpenAI's 8,192 and 300,000 tokens."""

MAX_DIMENSIONS = 384
"""What the embedding model has."""

Text = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]


class EmbeddingRequest(ModelRequest):
    """The body of `/v1/embeddings`."""

    input: list[Text] = Field(min_length=1, max_length=MAX_INPUTS)
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, ge=1, le=MAX_DIMENSIONS)
    # Accepted and without effect.
    user: str | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], int | list):
            raise ValueError("token ids are those of another model's tokenizer and cannot be read: send text")
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_not_too_long(self) -> EmbeddingRequest:
        if sum(map(len, self.input)) > MAX_TOTAL_CHARACTERS:
            raise ValueError(f"the inputs have more than {MAX_TOTAL_CHARACTERS:,} characters: send fewer at a time")
        return self


class Embeddings:
    """Answers embedding requests."""

    def __init__(self, embedder: SharedEmbedder, limit: RequestLimit) -> None:
        self._embedder, self._limit = embedder, limit

    async def handle(self, request: Request) -> Response:
        """One request. Raises APIError, ClientDisconnect."""
        body = await read_json(request, EmbeddingRequest)
        check_model(body.model, self._embedder.name)
        with self._limit.slot(), embedding_errors():
            found = await unless_disconnected(request, self._embedder.embed(body.input))
        count(TokenUsage(found.tokens))
        vectors = found.vectors[:, : body.dimensions or MAX_DIMENSIONS]
        vectors = np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), "<f4")
        encoded = [
            base64.b64encode(vector.tobytes()).decode() if body.encoding_format == "base64" else vector.tolist()
            for vector in vectors
        ]
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(encoded)]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        return JSONResponse({"object": "list", "data": data, "model": self._embedder.name, "usage": usage})


@contextmanager
def embedding_errors() -> Iterator[None]:
    """Turns errors of the embedding model into `APIError`."""
    try:
        yield
    except ModelUnavailable as error:
        raise APIError(503, f"this server has no embedding model: {error}", "model", "model_not_found") from None

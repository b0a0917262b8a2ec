"""`/v1/rerank` and `/v2/rerank`: passages in the order of their relevance to a query, by the embedding model or by the
language model. Requests and responses have the fields of Cohere's and Jina's APIs.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from model.engine.engine import Engine
from model.engine.relevance import MAX_PASSAGE_TOKENS, RelevanceScorer
from server.api_errors import APIError, read_json
from server.chat_completions.generation import TokenUsage, api_errors, count, in_bulk
from server.chat_completions.requests import ANY_MODEL, RequestLimit
from server.chat_completions.schema import ModelRequest
from server.chat_completions.streaming import unless_disconnected
from server.embedder import SharedEmbedder
from server.response_format import StrictModel
from server.search.embeddings import MAX_CHARACTERS, embedding_errors

MAX_DOCUMENTS = 1000
"""Of a request: Cohere's limit."""

MAX_SCORED = 100
"""Of a request to the language model, which takes the 0.5B seconds."""

Document = Annotated[str, Field(max_length=MAX_CHARACTERS)] | dict[str, Any]


class QueryText(StrictModel):
    """A query, as Jina's API may have it."""

    text: str = Field(min_length=1, max_length=MAX_CHARACTERS)


class RerankRequest(ModelRequest):
    """The body of both routes."""

    query: Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)] | QueryText
    documents: list[Document] = Field(min_length=1, max_length=MAX_DOCUMENTS)
    top_n: int | None = Field(None, ge=1)
    return_documents: bool | None = None
    rank_fields: list[str] | None = Field(None, min_length=1)
    max_tokens_per_doc: int | None = Field(None, ge=1)
    # Accepted and without effect.
    max_chunks_per_doc: int | None = None
    truncation: bool | None = None
    priority: int | None = None

    @property
    def query_text(self) -> str:
        """The query, as one string."""
        return self.query if isinstance(self.query, str) else self.query.text

    def passages(self) -> list[str]:
        """What is ranked of each document. Raises APIError."""
        return [self._passage(document, n) for n, document in enumerate(self.documents)]

    def _passage(self, document: str | dict[str, Any], n: int) -> str:
        if isinstance(document, str):
            return document
        names = self.rank_fields or ["text"]
        missing = [name for name in names if not isinstance(document.get(name), str)]
        if missing and (len(missing) == len(names)):
            raise APIError(400, f"a document that is an object needs the text field {missing[0]!r}", f"documents[{n}]")
        if names == ["text"]:
            return str(document["text"])[:MAX_CHARACTERS]
        return "\n".join(f"{name}: {document[name]}" for name in names if name not in missing)[:MAX_CHARACTERS]


class Reranking:
    """Answers both routes.

    Args:
        engine: of the language model; None if there is none.
        model: its name.
    """

    def __init__(self, embedder: SharedEmbedder, engine: Engine | None, model: str, limit: RequestLimit) -> None:
        self._embedder, self._engine, self._model, self._limit = embedder, engine, model, limit

    async def first_version(self, request: Request) -> Response:
        """A request in the form of Jina's API, or of Cohere's first version. Raises APIError, ClientDisconnect."""
        return await self._handle(request, version="1", with_documents=True)

    async def second_version(self, request: Request) -> Response:
        """A request in the form of the second version of Cohere's. Raises APIError, ClientDisconnect."""
        return await self._handle(request, version="2", with_documents=False)

    async def _handle(self, request: Request, *, version: str, with_documents: bool) -> Response:
        body = await read_json(request, RerankRequest)
        name, passages = self._scorer(body), body.passages()
        scoring = self._by_similarity if name == self._embedder.name else self._by_language_model
        with self._limit.slot(), embedding_errors(), api_errors():
            scores, tokens, cached = await unless_disconnected(request, scoring(body, passages))
        count(TokenUsage(tokens, cached))
        order = sorted(range(len(scores)), key=lambda n: -scores[n])[: body.top_n]
        results = [{"index": n, "relevance_score": scores[n]} for n in order]
        if with_documents if body.return_documents is None else body.return_documents:
            for result in results:
                document = body.documents[int(result["index"])]
                result["document"] = {"text": document} if isinstance(document, str) else document  # type: ignore[assignment]
        return JSONResponse(
            {
                "id": str(uuid.uuid4()),
                "object": "list",
                "model": name,
                "results": results,
                "meta": {"api_version": {"version": version}, "billed_units": {"search_units": 1}},
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )

    def _scorer(self, body: RerankRequest) -> str:
        """The name of the model that ranks. Raises APIError."""
        embedder, name = self._embedder.name, body.model
        if name in (None, ANY_MODEL, embedder):
            return embedder
        if name != self._model or self._engine is None:
            has = [embedder] if self._engine is None else [embedder, self._model]
            message = f"the model {name!r} does not exist here: {' and '.join(map(repr, has))} can rank"
            raise APIError(404, message, "model", "model_not_found")
        if len(body.documents) > MAX_SCORED:
            raise APIError(
                400,
                f"the language model ranks up to {MAX_SCORED} documents: send the best that {embedder!r} finds",
                "documents",
                "invalid_value",
            )
        return self._model

    async def _by_similarity(self, body: RerankRequest, passages: list[str]) -> tuple[list[float], int, int]:
        """The cosine of each passage's vector and the query's, 0 to 1, and the tokens that were read."""
        found = await self._embedder.embed([body.query_text, *passages])
        cosines = found.vectors[1:] @ found.vectors[0]
        return [float(max(0.0, cosine)) for cosine in cosines], found.tokens, 0

    async def _by_language_model(self, body: RerankRequest, passages: list[str]) -> tuple[list[float], int, int]:
        """The probability that each passage answers the query, and the tokens that were read."""
        assert self._engine is not None
        scorer = RelevanceScorer(self._engine, background=True, bulk=in_bulk.get(), keep_all_messages=True)
        limit = min(body.max_tokens_per_doc or MAX_PASSAGE_TOKENS, MAX_PASSAGE_TOKENS)
        found = await scorer.score(body.query_text, passages, limit)
        return list(found.probabilities), found.prompt_tokens, found.cached_tokens

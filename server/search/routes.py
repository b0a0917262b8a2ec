"""The routes of search."""

from __future__ import annotations

from starlette.routing import Route

from server.api_errors import endpoint
from server.chat_completions.requests import RequestLimit
from server.context import ServerContext
from server.search.embeddings import Embeddings
from server.search.rerank import Reranking

MAX_SEARCHES = 8
"""Requests that are embedded or ranked at the same time; further ones are refused with status 503."""


def search_routes(context: ServerContext) -> list[Route]:
    """All routes. Without a language model, the embedding model alone ranks."""
    limit = RequestLimit(context.admission, MAX_SEARCHES, "too_many_searches", "texts are being embedded or ranked")
    embeddings = Embeddings(context.embedder, limit)
    ranking = Reranking(context.embedder, context.engine, context.model, limit)
    return [
        Route("/v1/embeddings", endpoint(context, embeddings.handle), methods=["POST"]),
        Route("/v1/rerank", endpoint(context, ranking.first_version), methods=["POST"]),
        Route("/v2/rerank", endpoint(context, ranking.second_version), methods=["POST"]),
    ]

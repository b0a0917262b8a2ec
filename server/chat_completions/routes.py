"""The routes of the text API."""

from __future__ import annotations

from starlette.routing import Route

from server.api_errors import endpoint
from server.chat_completions.audio import Speech, Transcriptions
from server.chat_completions.chat import ChatCompletions
from server.chat_completions.code import CodeCompletions
from server.chat_completions.decision import Decisions
from server.chat_completions.decoder import RecordingDecoder
from server.chat_completions.models import Models
from server.chat_completions.requests import RequestLimit
from server.chat_completions.responses import Responses
from server.context import ServerContext

MAX_COMPLETIONS = 8
"""Requests that are generated at the same time; further ones are refused with status 503."""

MAX_RECORDINGS = 8
"""Recordings that are received, that wait or that are transcribed; further ones are refused with status 503. Each takes
25 MiB at most until it is decoded."""


def completion_routes(context: ServerContext, decoder: RecordingDecoder) -> list[Route]:
    """All routes. Those that generate text need `context.engine`."""
    recordings = RequestLimit(
        context.admission, MAX_RECORDINGS, "too_many_recordings", "recordings are being transcribed"
    )
    speech = Speech(context.speech_models)
    transcriptions = Transcriptions(context.speech_models, context.admission, decoder, recordings)
    routes = [
        Route("/v1/audio/speech", endpoint(context, speech.handle), methods=["POST"]),
        Route("/v1/audio/transcriptions", endpoint(context, transcriptions.handle), methods=["POST"]),
    ]
    if context.engine is not None:
        limit = RequestLimit(
            context.admission, MAX_COMPLETIONS, "too_many_completions", "completions are being generated"
        )
        chat, models = ChatCompletions(context.engine, context.model, limit), Models(context.engine, context.model)
        code = CodeCompletions(context.engine, context.model, limit)
        decisions = Decisions(context.engine, context.model, limit)
        responses = Responses(context.engine, context.model, limit)
        routes += [
            Route("/v1/chat/completions", endpoint(context, chat.handle), methods=["POST"]),
            Route("/v1/responses", endpoint(context, responses.create), methods=["POST"]),
            Route("/v1/responses/{id}", endpoint(context, responses.retrieve), methods=["GET"]),
            Route("/v1/responses/{id}", endpoint(context, responses.delete), methods=["DELETE"]),
            Route("/v1/fim/completions", endpoint(context, code.fim), methods=["POST"]),
            Route("/v1/edit/completions", endpoint(context, code.edit), methods=["POST"]),
            Route("/infill", endpoint(context, code.infill), methods=["POST"]),
            Route("/v1/decide", endpoint(context, decisions.handle), methods=["POST"]),
            Route("/v1/models", endpoint(context, models.list)),
            Route("/v1/models/{model:path}", endpoint(context, models.retrieve)),
        ]
    return routes

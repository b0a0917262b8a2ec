"""The routes of the text API."""

from __future__ import annotations

from starlette.routing import Route

from server.chat_completions.audio import Speech, Transcriptions
from server.chat_completions.chat import ChatCompletions
from server.chat_completions.code import CodeCompletions
from server.chat_completions.decide import Decisions
from server.chat_completions.errors import endpoint
from server.chat_completions.generation import CompletionLimit
from server.chat_completions.models import Models
from server.chat_completions.responses import Responses
from server.context import ServerContext


def completion_routes(context: ServerContext) -> list[Route]:
    """All routes. Those that generate text need `context.engine`."""
    speech, transcriptions = Speech(context.speech_models), Transcriptions(context.speech_models)
    routes = [
        Route("/v1/audio/speech", endpoint(context, speech.handle), methods=["POST"]),
        Route("/v1/audio/transcriptions", endpoint(context, transcriptions.handle), methods=["POST"]),
    ]
    if context.engine is not None:
        limit = CompletionLimit(context.admission)
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

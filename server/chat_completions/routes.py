"""The routes of the text API."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from model.engine.engine import Engine
from server.api_errors import endpoint
from server.chat_completions.audio import Speech, Transcriptions
from server.chat_completions.chat import ChatCompletions
from server.chat_completions.code import CodeCompletions
from server.chat_completions.decision import Decisions
from server.chat_completions.decoder import RecordingDecoder
from server.chat_completions.reasoning import Reasoning
from server.chat_completions.requests import RequestLimit, check_model
from server.chat_completions.responses import Responses
from server.context import ServerContext

MAX_COMPLETIONS = 8
"""Requests that are generated at the same time; further ones are refused with status 503."""

_SAMPLING_PARAMETERS = (
    "temperature top_p top_k seed stop logprobs top_logprobs logit_bias frequency_penalty presence_penalty"
)

MAX_RECORDINGS = 8
"""Recordings that are received, that wait or that are transcribed; further ones are refused with status 503. Each takes
25 MiB at most until it is decoded."""


def completion_routes(context: ServerContext, decoder: RecordingDecoder) -> list[Route]:
    """All routes. Those that generate text need `context.engine`."""
    recordings = RequestLimit(
        context.admission, MAX_RECORDINGS, "too_many_recordings", "recordings are being transcribed"
    )
    speech = Speech(context.speech_models)
    transcriptions = Transcriptions(context, decoder, recordings)
    routes = [
        Route("/v1/audio/speech", endpoint(context, speech.handle), methods=["POST"]),
        Route("/v1/audio/transcriptions", endpoint(context, transcriptions.handle), methods=["POST"]),
    ]
    if context.engine is not None:
        limit = RequestLimit(
            context.admission, MAX_COMPLETIONS, "too_many_completions", "completions are being generated"
        )
        reasoning = Reasoning(context.engine)
        chat = ChatCompletions(context.engine, context.model, limit, reasoning)
        code = CodeCompletions(context.engine, context.model, limit)
        decisions = Decisions(context.engine, context.model, limit)
        responses = Responses(context, context.engine, limit, reasoning)
        context.admission.on_deleted.append(responses.forget)
        context.admission.on_deleted.append(code.forget)
        routes += [
            Route("/v1/chat/completions", endpoint(context, chat.handle), methods=["POST"]),
            Route("/v1/responses", endpoint(context, responses.create), methods=["POST"]),
            Route("/v1/responses/{id}", endpoint(context, responses.retrieve), methods=["GET"]),
            Route("/v1/responses/{id}/cancel", endpoint(context, responses.cancel), methods=["POST"]),
            Route("/v1/responses/{id}", endpoint(context, responses.delete), methods=["DELETE"]),
            Route("/v1/fim/completions", endpoint(context, code.fim), methods=["POST"]),
            Route("/v1/edit/completions", endpoint(context, code.edit), methods=["POST"]),
            Route("/infill", endpoint(context, code.infill), methods=["POST"]),
            Route("/v1/decide", endpoint(context, decisions.handle), methods=["POST"]),
            *_model_routes(context, context.engine),
        ]
    return routes


def _model_routes(context: ServerContext, engine: Engine) -> list[Route]:
    """The one language model that this server has. The fields beyond OpenAI's are those of Inception's API."""
    model = {
        "id": context.model,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "rejoinder",
        "context_length": engine.context,
        "max_output_length": engine.context,
        "input_modalities": ["text"],
        "output_modalities": ["text"],
        "supported_sampling_parameters": _SAMPLING_PARAMETERS.split(),
    }

    async def list_all(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def retrieve(request: Request) -> Response:
        check_model(request.path_params["model"], context.model)
        return JSONResponse(model)

    return [
        Route("/v1/models", endpoint(context, list_all)),
        Route("/v1/models/{model:path}", endpoint(context, retrieve)),
    ]

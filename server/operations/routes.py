"""The operator's routes: health, readiness, draining, metrics and the dashboard."""

from __future__ import annotations

import resource
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from server.context import AccessDenied, ServerContext
from server.observability.metrics import CONTENT_TYPE
from server.operations.load import admission_readings, open_conversations


def operations_routes(context: ServerContext) -> list[Route]:
    """The routes for the operator."""

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok", **_state(context), "peak_memory_mb": _peak_memory_mb()})

    async def readyz(request: Request) -> Response:
        admission = context.admission
        headers = {} if admission.ready else {"retry-after": "10"}
        return JSONResponse(
            {"status": _status(context), **_occupancy(context)}, 200 if admission.ready else 503, headers
        )

    async def drain(request: Request) -> Response:
        if request.method == "DELETE":
            context.admission.readmit()
        else:
            context.admission.drain()
        return JSONResponse({"draining": context.admission.draining, **_occupancy(context)})

    observers = context.observers
    observers.metrics.add_readings(admission_readings(context.admission))

    async def metrics(request: Request) -> Response:
        return Response(observers.metrics.text(), media_type=CONTENT_TYPE)

    async def dashboard(request: Request) -> Response:
        return FileResponse(str(files("web") / "dashboard.html"))

    async def dashboard_data(request: Request) -> Response:
        admission = context.admission
        state = {**_state(context), **_occupancy(context), "peak_memory_mb": _peak_memory_mb()}
        refused, conversations = dict(admission.refusals), open_conversations(admission)
        return JSONResponse(
            {
                "server": {"status": _status(context), **state},
                "refused": refused,
                "conversations": conversations,
                **observers.recent_turns.summary(),
            }
        )

    return [
        Route("/metrics", for_operators(context, metrics)),
        Route("/dashboard", dashboard),
        Route("/dashboard/data", for_operators(context, dashboard_data)),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/drain", for_operators(context, drain), methods=["POST", "DELETE"]),
    ]


Handler = Callable[[Request], Awaitable[Response]]


def for_operators(context: ServerContext, handler: Handler) -> Handler:
    """A route that only the operator may use."""

    async def route(request: Request) -> Response:
        try:
            context.authenticate_admin(request)
        except AccessDenied as error:
            body = {"error": {"type": "authentication_error", "code": error.code, "message": error.message}}
            return JSONResponse(body, error.status)
        return await handler(request)

    return route


def _status(context: ServerContext) -> str:
    return "draining" if context.admission.draining else "full" if context.admission.full else "ready"


def _state(context: ServerContext) -> dict[str, Any]:
    return {
        "version": version("rejoinder"),
        "model": context.model,
        "voice": context.speech_models.voices.default.name,
        "voices": context.speech_models.voices.names,
        "conversations": len(context.admission.slots),
        "remote_llm": context.remote_llm.description if context.remote_llm is not None else None,
    }


def _occupancy(context: ServerContext) -> dict[str, int]:
    return {"conversations": len(context.admission.slots), "capacity": context.admission.capacity}


def _peak_memory_mb() -> int:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1 << 20) if sys.platform == "darwin" else peak // (1 << 10)  # bytes on macOS, kilobytes elsewhere

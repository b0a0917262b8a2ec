"""The operator's routes: health, readiness, draining, metrics and the dashboard."""

from __future__ import annotations

import resource
import sys
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from server.access.admission import Admission
from server.api_errors import guarded
from server.context import ServerContext
from server.observability.metrics import CONTENT_TYPE, Reading
from server.observability.peers import ReplicaReport


def operations_routes(context: ServerContext) -> list[Route]:
    """The routes for the operator. Where the server is one of several replicas, they speak for all of them. Anybody may
    ask whether the server is healthy and ready, and learns no more than that."""
    context.observers.metrics.add_readings(admission_readings(context.admission))

    async def healthz(request: Request) -> Response:
        if not context.admits(request):
            return JSONResponse({"status": "ok"})
        report = ReplicaReport.together(await _reports(context))
        state = {**_state(context, report), "peak_memory_mb": report.peak_memory_mb}
        return JSONResponse({"status": "ok", **state})

    async def readyz(request: Request) -> Response:
        report = ReplicaReport.together(await _reports(context))
        ready = report.ready
        headers = {} if ready else {"retry-after": "10"}
        occupancy = _occupancy(report) if context.admits(request) else {}
        return JSONResponse({"status": _status(report), **occupancy}, 200 if ready else 503, headers)

    async def drain(request: Request) -> Response:
        draining = request.method != "DELETE"
        if context.peers is not None:
            await context.peers.drain(draining)
        else:
            context.admission.drain(draining)
        report = ReplicaReport.together(await _reports(context))
        return JSONResponse({"draining": report.draining, **_occupancy(report)})

    async def metrics(request: Request) -> Response:
        report = ReplicaReport.together(await _reports(context, details=True))
        return Response(report.metrics, media_type=CONTENT_TYPE)

    async def dashboard(request: Request) -> Response:
        return FileResponse(str(files("web") / "dashboard.html"))

    async def dashboard_data(request: Request) -> Response:
        reports = await _reports(context, details=True)
        report = ReplicaReport.together(reports)
        state = {**_state(context, report), **_occupancy(report), "peak_memory_mb": report.peak_memory_mb}
        return JSONResponse(
            {
                "server": {"status": _status(report), **state, "replicas": len(reports)},
                "refused": report.refused,
                "conversations": report.conversations,
                **report.turns,
            }
        )

    admin = context.authenticate_admin
    return [
        Route("/metrics", guarded(admin, metrics)),
        Route("/dashboard", dashboard),
        Route("/dashboard/data", guarded(admin, dashboard_data)),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/drain", guarded(admin, drain), methods=["POST", "DELETE"]),
    ]


def report_of(context: ServerContext, name: str = "", *, details: bool = False) -> ReplicaReport:
    """What this process knows of itself. See `Peers.reports`.

    Args:
        name: of the replica.
    """
    admission, observers = context.admission, context.observers
    return ReplicaReport(
        name,
        admission.draining,
        admission.ready,
        admission.capacity,
        _peak_memory_mb(),
        dict(admission.refusals),
        open_conversations(admission),
        observers.metrics.text() if details else b"",
        observers.recent_turns.summary() if details else {},
    )


async def _reports(context: ServerContext, *, details: bool = False) -> list[ReplicaReport]:
    """The reports of all replicas, at least of this one."""
    reports = await context.peers.reports(details=details) if context.peers is not None else []
    return reports or [report_of(context, details=details)]


def _status(report: ReplicaReport) -> str:
    return "ready" if report.ready else "draining" if report.draining else "full"


def _state(context: ServerContext, report: ReplicaReport) -> dict[str, Any]:
    return {
        "version": version("rejoinder"),
        "model": context.model,
        "voice": context.speech_models.voices.default.name,
        "voices": context.speech_models.voices.names,
        "conversations": len(report.conversations),
        "remote_llm": context.remote_llm.description if context.remote_llm is not None else None,
    }


def _occupancy(report: ReplicaReport) -> dict[str, int]:
    return {"conversations": len(report.conversations), "capacity": report.capacity}


def _peak_memory_mb() -> int:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1 << 20) if sys.platform == "darwin" else peak // (1 << 10)  # bytes on macOS, kilobytes elsewhere


def open_conversations(admission: Admission) -> list[dict[str, Any]]:
    """Every open conversation, the oldest first. Without phone numbers."""
    slots = sorted(admission.slots, key=lambda slot: -slot.age_s)
    return [
        {"kind": slot.kind, "key": slot.meter.key, "phase": slot.phase(), "age_s": round(slot.age_s, 1)}
        for slot in slots
    ]


def admission_readings(admission: Admission) -> list[Reading]:
    """Who is there, who was refused, and what was dropped."""

    def audio() -> dict[str, float]:
        return {"in": admission.usage.total.audio_in_s, "out": admission.usage.total.audio_out_s}

    return [
        Reading("conversations", "Open conversations.", admission.conversations_by_kind, "kind"),
        Reading("capacity", "Conversations that a trial has answered in time.", lambda: {"": admission.capacity}),
        Reading("limit", "Conversations that are admitted at the same time.", lambda: {"": admission.limit}),
        Reading("draining", "1 while nobody is admitted.", lambda: {"": admission.draining}),
        Reading("refused_total", "Callers who were refused.", lambda: dict(admission.refusals), "reason"),
        Reading("dropped_events_total", "Events that no client got.", lambda: {"": admission.dropped_events}),
        Reading("audio_seconds_total", "Audio of conversations.", audio, "direction"),
        Reading("completions_total", "Text completions.", lambda: {"": admission.usage.total.completions}),
    ]

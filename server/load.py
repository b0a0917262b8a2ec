"""The load of the server, as Prometheus metrics and for the dashboard."""

from __future__ import annotations

from typing import Any

from server.access.admission import Admission
from server.observability.metrics import Reading


def open_conversations(admission: Admission) -> list[dict[str, Any]]:
    """Every open conversation, the oldest first. Without phone numbers."""
    slots = sorted(admission.slots, key=lambda slot: -slot.age_s)
    return [
        {"kind": slot.kind, "key": slot.meter.key, "phase": slot.phase(), "age_s": round(slot.age_s, 1)}
        for slot in slots
    ]


def admission_readings(admission: Admission) -> list[Reading]:
    """Who is there, who was refused, and what was dropped."""

    def conversations() -> dict[str, float]:
        kinds = [slot.kind for slot in admission.slots]
        return {kind: kinds.count(kind) for kind in ("realtime", "phone")}

    def audio() -> dict[str, float]:
        return {"in": admission.total.audio_in_s, "out": admission.total.audio_out_s}

    return [
        Reading("conversations", "Open conversations.", conversations, "kind"),
        Reading("capacity", "Conversations that are admitted at the same time.", lambda: {"": admission.capacity}),
        Reading("draining", "1 while nobody is admitted.", lambda: {"": admission.draining}),
        Reading("refused_total", "Callers who were refused.", lambda: dict(admission.refusals), "reason"),
        Reading("dropped_events_total", "Events that no client got.", lambda: {"": admission.dropped_events}),
        Reading("audio_seconds_total", "Audio of conversations.", audio, "direction"),
        Reading("completions_total", "Text completions.", lambda: {"": admission.total.completions}),
    ]

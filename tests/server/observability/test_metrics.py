"""Prometheus metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from server.observability.metrics import Metrics, Reading, stage_readings
from server.observability.stages import StageExecutor
from server.observability.turn_log import TurnRecord
from tests.fakes import InlineExecutor

DETAILS = {"guesses": 3, "guess_kept": True, "tokens": 20, "steps": 8, "prompt_tokens": 100, "cached_tokens": 90}


def values(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Every sample by its name and the value of its first label."""
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def test_a_turn_is_counted_in_every_figure() -> None:
    metrics = Metrics()
    metrics.record_turn(TurnRecord("turn_1", 1.0, 640.0, {"synthesis": 120.0, "sending": -1.0}, DETAILS))
    metrics.record_turn(TurnRecord("turn_2", 2.0, None, {}, {}, "cancelled"))
    figures = values(metrics)
    assert figures["rejoinder_turns_total", "completed"] == figures["rejoinder_turns_total", "cancelled"] == 1
    assert figures["rejoinder_turn_latency_seconds_count", ""] == 1
    assert figures["rejoinder_turn_latency_seconds_sum", ""] == 0.64
    assert figures["rejoinder_stage_seconds_sum", "synthesis"] == 0.12
    assert figures["rejoinder_speculations_total", "kept"] == 1
    assert figures["rejoinder_speculations_total", "discarded"] == 2
    assert figures["rejoinder_turn_tokens_total", "read"] == 10
    tokens, passes = (
        figures["rejoinder_turn_tokens_total", "generated"],
        figures["rejoinder_turn_forward_passes_total", ""],
    )
    assert tokens / passes == 2.5


def test_turns_that_a_response_cut_off_are_counted_and_interruptions_are_not() -> None:
    metrics = Metrics()
    for milliseconds in (700, 4000):
        metrics.record_turn(TurnRecord("turn", 1.0, 640.0, {}, {"spoken_over_after_ms": milliseconds}))
    assert values(metrics)["rejoinder_cut_offs_total", ""] == 1


def test_readings_are_taken_when_they_are_asked_for() -> None:
    load, stage = {"realtime": 0.0}, StageExecutor("synthesis", InlineExecutor())
    metrics = Metrics()
    metrics.add_readings([Reading("conversations", "Open.", lambda: load, "kind")])
    metrics.add_readings(stage_readings([stage]))
    load["realtime"] = 3
    stage.submit(int)
    figures = values(metrics)
    assert figures["rejoinder_conversations", "realtime"] == 3
    assert figures["rejoinder_stage_jobs_total", "synthesis"] == 1
    assert figures["rejoinder_queue_depth", "synthesis"] == 0
    assert any(name.startswith("process_") for name, _ in figures)

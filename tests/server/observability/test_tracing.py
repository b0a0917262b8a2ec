"""OpenTelemetry spans of turns."""

from __future__ import annotations

from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from server.observability.tracing import TurnTracer
from server.observability.turn_log import TurnRecord


def test_a_turn_is_a_trace_with_a_span_for_each_stage() -> None:
    exporter = InMemorySpanExporter()
    tracer = TurnTracer(exporter)
    stages = {"soft_end": 130.0, "transcription": 100.0, "synthesis": 70.0, "end_of_turn": 250.0}
    tracer.record_turn(TurnRecord("turn_1", 9.0, 300.0, stages, {"tokens": 7}, key="alice", speech_ended_at=5.0))
    tracer.record_turn(TurnRecord("turn_2", 9.0, None, {}))  # it answers no speech
    tracer._provider.force_flush()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"turn", *stages}
    turn = spans["turn"]
    assert turn.attributes is not None and turn.attributes["rejoinder.turn_id"] == "turn_1"
    assert (turn.attributes["rejoinder.tokens"], turn.attributes["rejoinder.key"]) == (7, "alice")
    assert (turn.start_time, turn.end_time) == (5_000_000_000, 5_300_000_000)
    assert turn.context is not None
    for name in stages:
        parent = spans[name].parent
        assert parent is not None and parent.span_id == turn.context.span_id
    assert spans["transcription"].start_time == spans["soft_end"].end_time == 5_130_000_000
    assert spans["end_of_turn"].start_time == turn.start_time
    tracer.close()


def test_spans_that_the_collector_does_not_take_are_counted() -> None:
    class Refusing(InMemorySpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.FAILURE

    tracer = TurnTracer(Refusing())
    tracer.record_turn(TurnRecord("turn_1", 9.0, 300.0, {"soft_end": 130.0}, speech_ended_at=5.0))
    tracer.close()
    assert tracer.dropped == 2

"""OpenTelemetry: a trace for each turn, with a span for each of its stages. Needs the `tracing` extra."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from server.observability.turn_log import TurnRecord
from voice.turn_metrics import END_OF_TURN, STAGES

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

_ATTRIBUTES = ("tokens", "steps", "prompt_tokens", "cached_tokens", "guesses", "guess_kept", "waited_ms")


class TurnTracer:
    """Exports turns as spans, from a thread of its own. What cannot be exported is dropped and counted.

    Args:
        exporter: where they go.

    Attributes:
        dropped: spans that the collector did not take.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self.dropped = 0
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._provider = TracerProvider(resource=Resource.create({"service.name": "rejoinder"}))
        self._provider.add_span_processor(BatchSpanProcessor(_counting(exporter, self._count_dropped)))
        self._tracer = self._provider.get_tracer("rejoinder")

    def record_turn(self, turn: TurnRecord) -> None:
        """Export a turn. One that answers no speech has no stages, and is left out."""
        start_s = turn.speech_ended_at
        if start_s is None:
            return
        duration_ms = max([turn.latency_ms or 0.0, turn.stages_ms.get(END_OF_TURN[0], 0.0)])
        root = self._span("turn", start_s)
        root.set_attributes({"rejoinder.turn_id": turn.turn_id, "rejoinder.status": turn.status})
        if turn.key:
            root.set_attribute("rejoinder.key", turn.key)
        for name in _ATTRIBUTES:
            if turn.details.get(name) is not None:
                root.set_attribute(f"rejoinder.{name}", turn.details[name])
        if turn.status == "failed":
            from opentelemetry.trace import Status, StatusCode

            root.set_status(Status(StatusCode.ERROR))
        at_s = start_s
        for name, _, _ in STAGES:
            if name in turn.stages_ms:
                end_s = at_s + turn.stages_ms[name] / 1000
                self._span(name, at_s, root).end(_nanoseconds(end_s))
                at_s = end_s
        if END_OF_TURN[0] in turn.stages_ms:
            end_s = start_s + turn.stages_ms[END_OF_TURN[0]] / 1000
            self._span(END_OF_TURN[0], start_s, root).end(_nanoseconds(end_s))
        root.end(_nanoseconds(start_s + duration_ms / 1000))

    def close(self) -> None:
        """Export what is left."""
        self._provider.shutdown()

    def _count_dropped(self, spans: int) -> None:
        self.dropped += spans

    def _span(self, name: str, start_s: float, parent: Span | None = None) -> Span:
        from opentelemetry.trace import set_span_in_context

        context = None if parent is None else set_span_in_context(parent)
        return self._tracer.start_span(name, context=context, start_time=_nanoseconds(start_s))


def otlp_tracer(endpoint: str) -> TurnTracer:
    """A tracer for an OTLP collector over HTTP, such as `http://127.0.0.1:4318/v1/traces`. Raises ValueError."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise ValueError('traces need another package: pip install -e ".[tracing]"') from None
    return TurnTracer(OTLPSpanExporter(endpoint=endpoint))


def _counting(exporter: SpanExporter, on_failure: Callable[[int], None]) -> SpanExporter:
    """An exporter that reports the number of spans that another one could not export."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Counting(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = exporter.export(spans)
            if result is not SpanExportResult.SUCCESS:
                on_failure(len(spans))
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return Counting()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)

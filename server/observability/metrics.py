"""Prometheus metrics: what happened in turns, and how loaded the server is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from server.observability.stages import StageExecutor
from server.observability.turn_log import TurnRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of `Metrics.text`."""

_LATENCY_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_STAGE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0)

CUT_OFF_MS = 1500
"""A user who speaks over a response so soon after their own last words had not finished: nobody interrupts what they
have hardly heard."""


@dataclass(frozen=True)
class Reading:
    """A figure that is read when it is asked for.

    Attributes:
        name: without the prefix `rejoinder_`; counters end with `_total`.
        label: name of the label; empty if there is none.
        values: value by label.
    """

    name: str
    help: str
    values: Callable[[], Mapping[str, float]]
    label: str = ""

    def metric(self) -> Metric:
        """The figure as it is now."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        name = f"rejoinder_{self.name.removesuffix('_total')}"
        metric = kind(name, self.help, labels=[self.label] if self.label else None)
        for label, value in self.values().items():
            metric.add_metric([label] if self.label else [], value)
        return metric


class Metrics(Collector):
    """The metrics of one server."""

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"rejoinder_{name}", help, labels, registry=self._registry)

        self._turns = counter("turns", "Responses of conversations, by status.", "status")
        self._latency = Histogram(
            "rejoinder_turn_latency_seconds",
            "From the last sample of the user's speech to the first sample sent.",
            buckets=_LATENCY_BUCKETS,
            registry=self._registry,
        )
        self._stages = Histogram(
            "rejoinder_stage_seconds",
            "Length of each stage of a turn.",
            ["stage"],
            buckets=_STAGE_BUCKETS,
            registry=self._registry,
        )
        self._cut_offs = counter("cut_offs", "Turns that continue what a response had cut off.")
        self._speculations = counter("speculations", "Speculative responses, by what became of them.", "outcome")
        self._drafts = counter("draft_clauses", "First clauses synthesized from drafts, by outcome.", "outcome")
        self._tokens = counter("turn_tokens", "Tokens of conversations.", "kind")
        self._remote = counter("remote_requests", "Requests to the bigger model, by status.", "status")
        self._remote_tokens = counter("remote_tokens", "Tokens of the bigger model.", "kind")
        self._passes = counter("turn_forward_passes", "Forward passes that generated responses of conversations.")

    def add_readings(self, readings: Iterable[Reading]) -> None:
        """Report figures that others count."""
        self._readings += readings

    def record_turn(self, turn: TurnRecord) -> None:
        """Count a turn."""
        details = turn.details
        self._turns.labels(turn.status).inc()
        if turn.latency_ms is not None:
            self._latency.observe(turn.latency_ms / 1000)
        for stage, milliseconds in turn.stages_ms.items():
            self._stages.labels(stage).observe(max(0.0, milliseconds) / 1000)
        self._cut_offs.inc(details.get("spoken_over_after_ms", CUT_OFF_MS) < CUT_OFF_MS)
        kept = int(bool(details.get("guess_kept")))
        self._speculations.labels("kept").inc(kept)
        self._speculations.labels("discarded").inc(max(0, details.get("guesses", 0) - kept))
        self._drafts.labels("spoken").inc(details.get("drafts_spoken", 0))
        self._drafts.labels("discarded").inc(details.get("drafts_dropped", 0))
        cached = details.get("cached_tokens", 0)
        self._tokens.labels("cached").inc(cached)
        self._tokens.labels("read").inc(max(0, details.get("prompt_tokens", 0) - cached))
        self._tokens.labels("generated").inc(details.get("tokens", 0))
        self._passes.inc(details.get("steps", 0))
        for request in details.get("remote") or ():
            self._remote.labels(request["status"]).inc()
            self._remote_tokens.labels("read").inc(request["input_tokens"])
            self._remote_tokens.labels("generated").inc(request["output_tokens"])

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        return [reading.metric() for reading in self._readings]

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self._registry)


def stage_readings(stages: Sequence[StageExecutor]) -> list[Reading]:
    """What is known of the threads that run the speech models."""

    def by_stage(figure: Callable[[StageExecutor], float]) -> Callable[[], dict[str, float]]:
        return lambda: {stage.name: figure(stage) for stage in stages}

    return [
        Reading("queue_depth", "Jobs that wait.", by_stage(lambda stage: stage.queued), "queue"),
        Reading("stage_busy_seconds_total", "Time that jobs took.", by_stage(lambda stage: stage.busy_s), "stage"),
        Reading("stage_jobs_total", "Jobs that ended.", by_stage(lambda stage: stage.jobs), "stage"),
        Reading("stage_failures_total", "Jobs that failed.", by_stage(lambda stage: stage.failures), "stage"),
        Reading("stage_refused_total", "Jobs refused.", by_stage(lambda stage: stage.refused), "stage"),
    ]

"""The metrics of a report."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lab.report.figures import compute_metrics, distribution, metrics_by_voice, metrics_json
from tests.lab.report.samples import MEASUREMENTS, SPOKEN_BY_TWO, answered


def test_the_metrics_of_some_turns() -> None:
    metrics = compute_metrics(MEASUREMENTS)
    counts = (metrics.turns, metrics.answered, metrics.missed, metrics.false_cutoffs, metrics.early_commits)
    assert counts == (6, 4, 1, 1, 1)
    assert metrics.latency is not None and metrics.barge_in_stop is not None
    assert (metrics.latency.p50, metrics.latency.max, metrics.latency.n) == (700, 900, 4)
    assert metrics.barge_in_stop.p95 == 180
    assert (metrics.backchannels_survived, metrics.backchannels_broken, metrics.underruns) == (1, 0, 1)
    assert metrics.stages_ms["transcription"] == {"p50": 125.0, "p95": 147.5}
    assert (metrics.speculations, metrics.speculations_used, metrics.speculations_discarded) == (3, 1, 2)
    assert (metrics.drafts_spoken, metrics.drafts_dropped) == (1, 2)
    payload = metrics_json(metrics)
    assert {"turns", "turn_latency_ms", "false_cutoffs", "barge_in_stop_ms", "stages_ms"} <= set(payload)
    assert payload["false_cutoffs"] == {"count": 1, "share": 0.1667}
    assert payload["steps"] == 12 and payload["drafts"] == {
        "spoken": 1, "dropped": 2, "shown": 30, "kept": 21, "by": ("copied", "diffusion")
    }  # fmt: skip
    assert payload["speculation"] == {"guesses": 3, "kept": 1, "wasted": 2}


def test_each_voice_has_the_metrics_of_its_turns_and_recordings_have_no_voice() -> None:
    by_voice = metrics_by_voice([*SPOKEN_BY_TWO, answered(5_000)])
    assert list(by_voice) == ["en_US-joe-medium", "kokoro:bf_emma"]
    joe, emma = by_voice.values()
    assert (joe.turns, joe.false_cutoffs, joe.missed) == (3, 1, 0)
    assert (emma.turns, emma.false_cutoffs, emma.missed) == (3, 0, 1)
    assert joe.latency is not None and joe.latency.p50 == 650
    assert metrics_by_voice(MEASUREMENTS) == {}


def test_a_turn_log_has_no_metrics_that_only_a_client_can_observe() -> None:
    payload = metrics_json(compute_metrics([answered(500, from_turn_log=True)]))
    assert payload["false_cutoffs"] is None and payload["turn_latency_ms"]["p50"] == 500


def test_metrics_without_turns() -> None:
    metrics = compute_metrics([])
    assert (metrics.latency, metrics.speculations, metrics.cutoff_share) == (None, None, 0)


@given(st.lists(st.floats(0, 20_000), min_size=1, max_size=60), st.integers(0, 5))
def test_percentiles_are_in_order_and_the_interval_lies_among_the_values(values: list[float], seed: int) -> None:
    percentiles = distribution(values, seed)
    assert percentiles is not None
    assert percentiles.p50 <= percentiles.p90 <= percentiles.p95 <= percentiles.p99 <= percentiles.max
    low, high = percentiles.p95_interval
    assert min(values) - 0.1 <= low <= high <= max(values) + 0.1
    assert percentiles == distribution(values, seed)

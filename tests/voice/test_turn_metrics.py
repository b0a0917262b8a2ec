"""Latency and stages of a turn."""

from __future__ import annotations

import pytest

from voice.turn_metrics import TurnMetrics


def test_the_stages_of_a_turn_add_up_to_its_latency() -> None:
    metrics = TurnMetrics("turn_1")
    names = [
        "speech_end",
        "soft_end",
        "transcript_final",
        "first_committed",
        "first_clause",
        "first_audio",
        "first_sent",
    ]
    for n, name in enumerate(names):
        metrics.stamp(name, 10 + 0.1 * n)  # type: ignore[arg-type]
        metrics.stamp(name, 99)  # type: ignore[arg-type]
    assert metrics.latency_ms() == 600
    assert sum(metrics.stages_ms().values()) == pytest.approx(600)
    metrics.stamp("end_decided", 10.4)
    assert metrics.stages_ms()["end_of_turn"] == 400
    assert TurnMetrics("turn_2").latency_ms() is None

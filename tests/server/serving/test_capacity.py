"""How many conversations a machine carries."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.serving import capacity as capacity_module
from server.serving.capacity import MAX_CAPACITY, MAX_SLOWDOWN, TurnCosts, capacity, measure, simulated_p95
from tests.fakes import FakeLanguageModel, fake_speech_models

SHARED = TurnCosts({1: 0.32, 2: 0.54, 4: 1.25}, 0.28, 0.1)
"""Turns that start together share most of the processor: two cores with a small model."""


def test_p95_grows_with_the_number_of_conversations() -> None:
    figures = [simulated_p95(SHARED, number) for number in (1, 2, 4, 8)]
    assert figures == sorted(figures)
    assert figures[0] == pytest.approx(0.6)  # alone, the end of the turn decides
    assert figures[-1] > 1.5 * figures[0]


def test_the_capacity_keeps_the_promise_and_one_more_would_break_it() -> None:
    number, alone = capacity(SHARED), simulated_p95(SHARED, 1)
    assert number == 2
    assert simulated_p95(SHARED, number) <= MAX_SLOWDOWN * alone < simulated_p95(SHARED, number + 1)


def test_faster_machines_carry_more_and_the_slowest_carries_one() -> None:
    fast = TurnCosts({1: 0.1, 2: 0.1, 4: 0.11}, 0.1, 0.01)
    slow = TurnCosts({1: 3.0, 2: 6.0, 4: 12.0}, 5.0, 1.0)
    assert capacity(slow) == 1
    assert capacity(SHARED) < capacity(fast) <= MAX_CAPACITY


def test_speed_between_and_beyond_what_was_measured() -> None:
    assert [SHARED.speed(number) for number in (1, 4)] == [1.0, 0.256]
    assert 0.256 < SHARED.speed(3) < SHARED.speed(2) < 1
    assert SHARED.speed(8) == pytest.approx(0.128)


def test_the_work_of_a_turn_is_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    monkeypatch.setattr(capacity_module, "machine_speed", lambda device: type("Speed", (), {"machine": "a machine"}))
    made: list[FakeLanguageModel] = []

    def new_language_model() -> FakeLanguageModel:
        made.append(FakeLanguageModel(seconds_per_word=0.001))
        return made[-1]

    costs = asyncio.run(measure(fake_speech_models(), new_language_model))
    assert set(costs.first_audio_s) == {1, 2, 4}
    assert 0 <= costs.transcription_s <= costs.first_audio_s[1]
    assert all(0 < seconds < 5 for seconds in costs.first_audio_s.values())
    made.clear()
    first = capacity_module.measured_capacity(fake_speech_models(), new_language_model, "tiny", "cpu")
    assert first >= 1 and made
    made.clear()
    assert capacity_module.measured_capacity(fake_speech_models(), new_language_model, "tiny", "cpu") == first
    assert not made
    (tmp_path / "capacity.json").write_text("{")
    capacity_module.measured_capacity(fake_speech_models(), new_language_model, "tiny", "cpu")
    assert made

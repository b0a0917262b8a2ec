"""Measurements from what a client observed, on virtual clocks."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from lab.report.corpus import Overlap, SpokenTurn
from lab.report.measure import Measurement, ResponseObservation, TurnObservation, measure
from lab.simulator.player import Player
from tests.lab.report.samples import MEASUREMENTS, tone


def observation_of(player: Player, **fields: object) -> TurnObservation:
    turn = SpokenTurn("t-1", "t", "words", tone(1.0), 0.0, 1000.0)
    return TurnObservation(turn, 0.0, 1.0, player, **fields)  # type: ignore[arg-type]


def test_a_response_is_broken_off_if_it_stops_while_nobody_speaks_and_not_if_the_client_ends_it() -> None:
    for stopped_at, broken_off in ((2.0, True), (3.0, False)):
        player = Player()
        player.push(1.4, "r", "i", tone(5.0, leading_silence=0.1))
        player.clear(stopped_at)
        turn = measure(observation_of(player, measured_until=3.0))
        assert (turn.latency_ms, turn.broken_off) == (500, broken_off)


@pytest.mark.parametrize(
    ("turn_events", "text", "backchannel"),
    [
        ({"s": {"latency_ms": None}}, "Sugar and milk.", "resumed"),
        ({"s": {"latency_ms": 700.0}}, "sugar and milk.", "broken"),
        ({}, " sugar and milk.", "resumed"),
        ({}, "You are welcome.", "broken"),
        ({}, "", None),  # a call: nothing shows whether the same response goes on
    ],
)
def test_a_response_that_pauses_and_continues_was_resumed(
    turn_events: dict[str, Any], text: str, backchannel: str | None
) -> None:
    player = Player()
    player.push(1.5, "r", "i", tone(5.0))
    player.clear(2.4)
    player.push(3.4, "s", "j", tone(2.0, leading_silence=0.1))
    responses = [ResponseObservation("r", 1.4, 2.4, "cancelled"), ResponseObservation("s", 3.4, text=text)]
    observation = observation_of(
        player, overlap_start=2.2, measured_until=6.0, responses=responses, turn_events=turn_events
    )
    overlap = Overlap("right", tone(0.2), 0.0, 200.0, 700.0, interrupts=False)
    turn = measure(replace(observation, turn=replace(observation.turn, overlap=overlap)))
    pause_ms = pytest.approx(1100, abs=1) if backchannel == "resumed" else None
    assert (turn.backchannel, turn.pause_ms) == (backchannel, pause_ms)


@pytest.mark.parametrize("measured_until", [16.0, 20.0])
def test_a_response_that_comes_after_the_limit_is_missed(measured_until: float) -> None:
    player = Player()
    player.push(16.5, "r", "i", tone(1.0))
    turn = measure(observation_of(player, measured_until=measured_until, turn_events={"r": {"stages_ms": {"x": 1.0}}}))
    assert (turn.missed, turn.latency_ms, turn.first_audio_ms, turn.stages_ms) == (True, None, None, {})


def test_the_end_of_a_call_without_marks_is_no_barge_in_and_no_underrun() -> None:
    player = Player()
    player.push(1.5, "r", "i", tone(1.0))
    responses = [ResponseObservation("r", 1.4, 2.9, "unknown")]
    observation = observation_of(player, overlap_start=2.2, measured_until=3.0, responses=responses)
    overlap = Overlap("stop", tone(0.2), 0.0, 200.0, 700.0, interrupts=True)
    turn = measure(replace(observation, turn=replace(observation.turn, overlap=overlap)))
    assert (turn.barge_in_stop_ms, turn.underruns) == (None, 0)


@pytest.mark.parametrize(("done_at", "underruns"), [(None, 1), (2.6, 0), (3.5, 1)])
def test_an_underrun_that_lasts_to_the_end_of_the_turn_is_counted(done_at: float | None, underruns: int) -> None:
    player = Player()
    player.push(1.5, "r", "i", tone(1.0))
    responses = [ResponseObservation("r", 1.4, done_at, "completed")]
    turn = measure(observation_of(player, measured_until=3.0, responses=responses))
    assert (turn.underruns, turn.underrun_ms) == (underruns, 500 * underruns)


def test_the_stages_are_those_of_the_response_that_was_heard() -> None:
    player = Player()
    player.push(1.4, "second", "i", tone(1.0))
    turn_events = {
        "first": {"stages_ms": {"sending": 9.0}},
        "second": {"stages_ms": {"sending": 3.0}, "guesses": 2, "over": 0.9},
    }
    turn = measure(observation_of(player, turn_events=turn_events, committed_at=[0.8]))
    assert (turn.stages_ms, turn.speculations, turn.end_probability, turn.early_commit) == (
        {"sending": 3.0}, 2, 0.9, True,
    )  # fmt: skip


def test_the_json_keys_of_a_measurement_are_those_of_earlier_reports() -> None:
    for measurement in MEASUREMENTS:
        payload = measurement.to_json()
        assert {"guesses", "guess_kept", "over", "heard", "answer", "live"} <= set(payload)
        assert len(payload) == len(asdict(measurement))
        assert Measurement.from_json({**payload, "a key of a later version": 1}) == measurement

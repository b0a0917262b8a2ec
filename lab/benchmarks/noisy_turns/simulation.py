"""Plays turns to the voice detector and the turn machine on the audio clock, with a listener who knows every word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.benchmarks.noisy_turns.turns import NoisyTurn
from voice.audio.vad import Frame
from voice.timing import Timing
from voice.turn_machine import BeginTurn, EndpointDecision, EndTurn, StartSpeculation, TurnRules, TurnState, step

_TRANSCRIPTION_MS = 130
"""From the soft end to the endpointer's decision: the median of spoken turns."""

_RULES = TurnRules(Timing())


@dataclass(frozen=True)
class Detection:
    """What was detected of one turn.

    Attributes:
        delay_ms: from the true end of the speech to the detected one; None if no end was detected after it.
        false_ends: turns that ended before the last word.
        false_starts: turns that began before the first word.
        onset_ms: from the first sample of the speech to its detected start; None if the speech was not detected, or
            the noise before it already was.
    """

    delay_ms: float | None
    false_ends: int
    false_starts: int
    onset_ms: float | None


def detect(turn: NoisyTurn, frames: Sequence[Frame], wait_ms: int) -> Detection:
    """Run the turn machine on a detector's frames. Each soft end is decided with the true words: within the sentence
    they are incomplete, at its end they are complete."""
    timing = _RULES.timing
    state, delay, onset = TurnState(), None, None
    false_ends = false_starts = 0
    decisions: list[tuple[int, EndpointDecision]] = []
    for frame in frames:
        events: list[Frame | EndpointDecision] = [event for due, event in decisions if due <= frame.end_ms]
        decisions = [decision for decision in decisions if decision[0] > frame.end_ms]
        for event in (frame, *events):
            state, actions = step(state, event, _RULES)
            for action in actions:
                if isinstance(action, StartSpeculation):
                    complete = frame.end_ms >= turn.speech_end_ms
                    wait = wait_ms if complete else timing.longest_wait_ms
                    decision = EndpointDecision(action.revision, wait)
                    decisions.append((frame.end_ms + _TRANSCRIPTION_MS, decision))
                elif isinstance(action, BeginTurn):
                    if frame.end_ms < turn.speech_start_ms:
                        false_starts += 1
                    elif onset is None and state.turn == 1 + false_starts:
                        onset = action.at_ms - turn.speech_start_ms
                elif isinstance(action, EndTurn):
                    if turn.speech_start_ms + 200 < frame.end_ms < turn.speech_end_ms:
                        false_ends += 1
                    elif frame.end_ms >= turn.speech_end_ms:
                        if state.speech_start_ms < turn.speech_end_ms:
                            delay = action.at_ms - turn.speech_end_ms
                        return Detection(delay, false_ends, false_starts, onset)
    return Detection(None, false_ends, false_starts, onset)

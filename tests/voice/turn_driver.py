"""Drives the turn machine with windows of speech and silence."""

from __future__ import annotations

from dataclasses import dataclass, field

from voice.audio.vad import WINDOW_MS, Frame
from voice.turn_actions import Action, CancelSpeculation, StartResponse, StartSpeculation
from voice.turn_machine import Event, FirstSent, TranscriptReady, TurnRules, TurnState, step

RULES = TurnRules(silence_only=True)
ENDPOINTER_RULES = TurnRules()
TIMING = RULES.timing


@dataclass
class Driver:
    """Drives the machine along the audio clock. Returns the actions, those on speculations only if asked to."""

    rules: TurnRules = RULES
    with_speculations: bool = False
    state: TurnState = field(default_factory=TurnState)
    now: int = 0

    def apply(self, event: Event) -> list[Action]:
        self.state, actions = step(self.state, event, self.rules)
        return actions

    def hear(self, ms: int, probability: float) -> list[Action]:
        """`ms` of audio, rounded up to whole windows."""
        actions: list[Action] = []
        for _ in range(-(-ms // WINDOW_MS)):
            actions += self.apply(Frame(probability, self.now, self.now + WINDOW_MS))
            self.now += WINDOW_MS
        if self.with_speculations:
            return actions
        return [action for action in actions if not isinstance(action, StartSpeculation | CancelSpeculation)]

    def speech(self, ms: int) -> list[Action]:
        return self.hear(ms, 0.9)

    def silence(self, ms: int) -> list[Action]:
        return self.hear(ms, 0.01)

    def to_response(self) -> Driver:
        """One turn, up to the start of the response."""
        self.speech(640)
        self.silence(self.rules.wait_ms)
        assert self.apply(TranscriptReady(1, has_words=True)) == [StartResponse()]
        return self


def to_speculation(*, over_response: bool = False) -> Driver:
    """640 ms of speech, then enough silence for a speculation to start."""
    driver = Driver(ENDPOINTER_RULES, with_speculations=True)
    if over_response:
        driver.to_response()
        driver.apply(FirstSent())
    driver.speech(640)
    driver.silence(TIMING.soft_end_ms)
    assert driver.state.speculating
    return driver

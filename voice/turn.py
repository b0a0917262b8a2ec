"""The turn machine: a pure function from (state, event) to (state, actions). No clock, no thread, no model.

Time is the audio clock, milliseconds of audio received so far; every event says when it happened on it.

    listening ──speech──▶ user speaking ──silence──▶ thinking ──words──▶ answering ──played out──▶ listening
                                ▲                        │                   │
                                └────────── speech: the answer is interrupted ┘
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from voice.timing import Timing
from voice.vad import Frame

StopReason = Literal["turn_detected", "client_cancelled"]

_HYSTERESIS, _FLOOR = 0.15, 0.01
"""Once the user speaks, a window counts as speech down to this much below the threshold, but never below the floor
(Silero's own advice)."""


class User(Enum):
    """What the user is doing."""

    QUIET = "quiet"
    SPEAKING = "speaking"


class Assistant(Enum):
    """What the assistant is doing."""

    IDLE = "idle"
    THINKING = "thinking"
    """The turn is over and its words are not known yet."""
    ANSWERING = "answering"
    """From the decision to answer until the last sample has been played."""


Phase = Literal["listening", "user_speaking", "thinking", "answering"]


@dataclass(frozen=True)
class TurnRules:
    """What may differ from one conversation to the next.

    Attributes:
        threshold: probability from which a window counts as speech.
        create_response: answer by itself when a turn ends.
        interrupt_response: stop answering when the user speaks.
    """

    timing: Timing = field(default_factory=Timing)
    threshold: float = 0.5
    create_response: bool = True
    interrupt_response: bool = True


@dataclass(frozen=True)
class TurnState:
    """Where a conversation stands.

    Attributes:
        turn: number of the newest user turn.
        onset_ms: where voiced sound began that does not count as speaking yet, or None.
        voiced_ms: how much voiced sound there has been since.
        started_ms: where the user's newest speech began.
        last_voiced_ms: end of the last voiced window.
        awaited: the turn whose words are being found out, or None.
        unanswered: the user said something that nobody has answered yet.
        sounding: some of the answer under way has been sent.
    """

    user: User = User.QUIET
    assistant: Assistant = Assistant.IDLE
    turn: int = 0
    onset_ms: int | None = None
    voiced_ms: int = 0
    started_ms: int = 0
    last_voiced_ms: int = 0
    awaited: int | None = None
    unanswered: bool = False
    sounding: bool = False

    @property
    def phase(self) -> Phase:
        """One word for people to read."""
        if self.user is User.SPEAKING:
            return "user_speaking"
        return {
            Assistant.IDLE: "listening",
            Assistant.THINKING: "thinking",
            Assistant.ANSWERING: "answering",
        }[  # type: ignore[return-value]
            self.assistant
        ]


# Events. `voice.vad.Frame` is one too: a judged window of sound.


@dataclass(frozen=True)
class HandedOver:
    """The client says that the user's turn is over (push-to-talk): its audio up to `at_ms` is the turn."""

    at_ms: int


@dataclass(frozen=True)
class Withdrawn:
    """The client takes back the audio that was not handed over yet."""


@dataclass(frozen=True)
class Understood:
    """The words of turn `turn`, which silence ended, are known; `said` is whether there were any."""

    turn: int
    said: bool


@dataclass(frozen=True)
class AnswerWanted:
    """The client asks for an answer."""


@dataclass(frozen=True)
class AnswerUnwanted:
    """The client cancels the answer."""


@dataclass(frozen=True)
class FirstSound:
    """The first sound of the answer under way has been sent."""


@dataclass(frozen=True)
class PlayedOut:
    """The answer under way was spoken and has been played to its end, or has failed."""


Event = Frame | HandedOver | Withdrawn | Understood | AnswerWanted | AnswerUnwanted | FirstSound | PlayedOut


# Actions.


@dataclass(frozen=True)
class BeginTurn:
    """The user started to speak at `at_ms`; `turn` is the turn's number."""

    turn: int
    at_ms: int


@dataclass(frozen=True)
class EndTurn:
    """The user's turn is over; the last speech ended at `at_ms`. Find out what was said."""

    turn: int
    at_ms: int
    by_hand: bool = False


@dataclass(frozen=True)
class DropTurn:
    """Forget the audio of a turn that was under way."""


@dataclass(frozen=True)
class StartAnswer:
    """Answer the conversation as it stands."""


@dataclass(frozen=True)
class StopAnswer:
    """Fall silent at once."""

    reason: StopReason


Action = BeginTurn | EndTurn | DropTurn | StartAnswer | StopAnswer
Step = tuple[TurnState, list[Action]]


def step(state: TurnState, event: Event, rules: TurnRules) -> Step:
    """What `event` changes, and what is to be done about it."""
    match event:
        case Frame():
            hear = _quiet_frame if state.user is User.QUIET else _speaking_frame
            return hear(state, event, rules)
        case HandedOver():
            return _handed_over(state, event)
        case Withdrawn():
            return _withdrawn(state, rules)
        case Understood():
            awaited = None if event.turn == state.awaited else state.awaited
            return _next(replace(state, awaited=awaited, unanswered=state.unanswered or event.said), rules)
        case AnswerWanted():
            return _answer(state)
        case AnswerUnwanted():
            return _stop(replace(state, unanswered=False), "client_cancelled")
        case FirstSound():
            return replace(state, sounding=True), []
        case PlayedOut():
            return _next(replace(state, assistant=Assistant.IDLE), rules)


def _quiet_frame(state: TurnState, frame: Frame, rules: TurnRules) -> Step:
    timing = rules.timing
    if frame.probability < rules.threshold:
        if state.onset_ms is not None and frame.end_ms - state.last_voiced_ms > timing.onset_gap_ms:
            return replace(state, onset_ms=None, voiced_ms=0), []
        return state, []
    onset = frame.start_ms if state.onset_ms is None else state.onset_ms
    voiced = state.voiced_ms + frame.end_ms - frame.start_ms
    heard = replace(state, onset_ms=onset, voiced_ms=voiced, last_voiced_ms=frame.end_ms)
    needed = timing.barge_in_ms if state.assistant is Assistant.ANSWERING else timing.onset_ms
    if voiced < needed:
        return heard, []
    begun = replace(heard, user=User.SPEAKING, turn=state.turn + 1, started_ms=onset, onset_ms=None, voiced_ms=0)
    if not rules.interrupt_response:
        return begun, [BeginTurn(begun.turn, onset)]
    # An answer of which nothing was heard answers nothing: should the interruption hold no words, it is begun anew.
    lost = state.assistant is Assistant.ANSWERING and not state.sounding
    stopped, actions = _stop(replace(begun, unanswered=state.unanswered or lost), "turn_detected")
    return stopped, [BeginTurn(begun.turn, onset), *actions]


def _speaking_frame(state: TurnState, frame: Frame, rules: TurnRules) -> Step:
    if frame.probability >= max(rules.threshold - _HYSTERESIS, _FLOOR):
        state = replace(state, last_voiced_ms=frame.end_ms)
    silent = frame.end_ms - state.last_voiced_ms >= rules.timing.end_silence_ms
    endless = frame.end_ms - state.started_ms >= rules.timing.longest_turn_ms
    if not silent and not endless:
        return state, []
    assistant = state.assistant if state.assistant is Assistant.ANSWERING else Assistant.THINKING
    ended = replace(state, user=User.QUIET, assistant=assistant, awaited=state.turn)
    return ended, [EndTurn(state.turn, state.last_voiced_ms)]


def _handed_over(state: TurnState, event: HandedOver) -> Step:
    """The client asks for the answer to such a turn itself."""
    turn = state.turn if state.user is User.SPEAKING else state.turn + 1
    ended = replace(state, user=User.QUIET, turn=turn, onset_ms=None, voiced_ms=0)
    return ended, [EndTurn(turn, event.at_ms, by_hand=True)]


def _withdrawn(state: TurnState, rules: TurnRules) -> Step:
    dropped: list[Action] = [DropTurn()] if state.user is User.SPEAKING else []
    after, actions = _next(replace(state, user=User.QUIET, onset_ms=None, voiced_ms=0), rules)
    return after, [*dropped, *actions]


def _next(state: TurnState, rules: TurnRules) -> Step:
    """Once both sides are quiet and all words are known: answer what has not been answered, or listen."""
    if state.user is User.SPEAKING or state.assistant is Assistant.ANSWERING or state.awaited is not None:
        return state, []
    if state.unanswered and rules.create_response:
        return _answer(state)
    return replace(state, assistant=Assistant.IDLE, unanswered=False), []


def _answer(state: TurnState) -> Step:
    return replace(state, assistant=Assistant.ANSWERING, unanswered=False, sounding=False), [StartAnswer()]


def _stop(state: TurnState, reason: StopReason) -> Step:
    stopped = replace(state, assistant=Assistant.IDLE)
    return stopped, [StopAnswer(reason)] if state.assistant is Assistant.ANSWERING else []

"""The turn machine: a pure function from (state, event) to (state, actions). No clock, no thread, no model.

Time is the audio clock, milliseconds of audio received so far; every event says when it happened on it.

    listening ──speech──▶ user speaking ──silence──▶ thinking ──words──▶ answering ──played out──▶ listening
                                ▲                        │                   │
                                └────────── speech: the answer is held back ─┘

A short silence is a guess that the turn is over: work on an answer starts, and nobody hears of it. Speech takes the
guess back; enough silence (how much, the endpointer says) makes it the truth. An answer that the user speaks over is
held back at once and given up when the words are known, or goes on when they were only a "mhm".
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


_SURE_SPEECH = 0.7
"""Probability from which a window counts as speech over the assistant's answer: two sure windows are as telling as
three likely ones, and come sooner."""


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
    HELD = "held"
    """The user speaks, or spoke, over the answer: it is silent, and may go on."""


Phase = Literal["listening", "user_speaking", "thinking", "answering"]


@dataclass(frozen=True)
class TurnRules:
    """What may differ from one conversation to the next.

    Attributes:
        threshold: probability from which a window counts as speech.
        by_silence: a turn ends after `timing.end_silence_ms`, whatever was said.
        create_response: answer by itself when a turn ends.
        interrupt_response: stop answering when the user speaks.
    """

    timing: Timing = field(default_factory=Timing)
    threshold: float = 0.5
    create_response: bool = True
    interrupt_response: bool = True
    by_silence: bool = False

    @property
    def wait_ms(self) -> int:
        """The silence that ends a turn of which nothing is known."""
        return self.timing.end_silence_ms if self.by_silence else self.timing.longest_wait_ms


@dataclass(frozen=True)
class TurnState:
    """Where a conversation stands.

    Attributes:
        turn: number of the newest user turn.
        onset_ms: where voiced sound began that does not count as speaking yet, or None.
        voiced_ms: how much voiced sound there has been since.
        started_ms: where the user's newest speech began.
        last_voiced_ms: end of the last voiced window that counts.
        heard_ms: end of the newest window.
        revision: number of the newest guess that a turn is over.
        guessing: that guess stands.
        resumed_ms: voiced sound since the guess.
        wait_ms: the silence that ends this turn.
        judged_ms: the silence that the newest guess was judged to need, 0 before it was.
        ready: number of the guess whose answer can be heard.
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
    heard_ms: int = 0
    revision: int = 0
    guessing: bool = False
    resumed_ms: int = 0
    wait_ms: int = 0
    judged_ms: int = 0
    ready: int = 0
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
            Assistant.HELD: "thinking",
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
class Judged:
    """What the endpointer makes of guess `revision`: `wait_ms` of silence end the turn. `aside` is whether the words
    are ones that people say while they listen ("mhm"), `answering` whether an answer is being made, and `Ready` will
    come: until then nothing is lost by listening on, up to the longest wait."""

    revision: int
    wait_ms: int
    aside: bool = False
    answering: bool = False


@dataclass(frozen=True)
class Ready:
    """The answer that was made on guess `revision` can be heard."""

    revision: int


@dataclass(frozen=True)
class Understood:
    """The words of turn `turn`, which silence ended, are known; `said` is whether there were any, `aside` as above."""

    turn: int
    said: bool
    aside: bool = False


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


Event = (
    Frame
    | HandedOver
    | Withdrawn
    | Judged
    | Ready
    | Understood
    | AnswerWanted
    | AnswerUnwanted
    | FirstSound
    | PlayedOut
)


# Actions.


@dataclass(frozen=True)
class BeginTurn:
    """The user started to speak at `at_ms`; `turn` is the turn's number."""

    turn: int
    at_ms: int


@dataclass(frozen=True)
class Guess:
    """The user's turn may be over: the last speech ended at `at_ms`. Work ahead, and hold back what comes of it."""

    revision: int
    at_ms: int


@dataclass(frozen=True)
class DropGuess:
    """Throw away what was made on the guess: the user went on at `resumed_ms`, or (None) the turn was handed over or
    taken back."""

    resumed_ms: int | None = None


@dataclass(frozen=True)
class EndTurn:
    """The user's turn is over; the last speech ended at `at_ms`. Find out what was said, where no guess stands."""

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
class HoldAnswer:
    """Fall silent at once; the answer may go on."""


@dataclass(frozen=True)
class ResumeAnswer:
    """The interruption was none: go on where the answer was held back."""


@dataclass(frozen=True)
class StopAnswer:
    """Fall silent at once and give the answer up, also one that is held back."""

    reason: StopReason


Action = BeginTurn | Guess | DropGuess | EndTurn | DropTurn | StartAnswer | HoldAnswer | ResumeAnswer | StopAnswer
Step = tuple[TurnState, list[Action]]


def step(state: TurnState, event: Event, rules: TurnRules) -> Step:
    """What `event` changes, and what is to be done about it."""
    match event:
        case Frame():
            hear = _quiet_frame if state.user is User.QUIET else _speaking_frame
            return hear(replace(state, heard_ms=event.end_ms), event, rules)
        case HandedOver():
            return _handed_over(state, event)
        case Withdrawn():
            return _withdrawn(state, rules)
        case Judged():
            return _judged(state, event, rules)
        case Ready():
            return _ready(state, event)
        case Understood():
            return _understood(state, event, rules)
        case AnswerWanted():
            stopped, actions = _stop(state, "client_cancelled")
            answered, more = _answer(stopped)
            return answered, [*actions, *more]
        case AnswerUnwanted():
            return _stop(replace(state, unanswered=False), "client_cancelled")
        case FirstSound():
            return replace(state, sounding=True), []
        case PlayedOut():
            return _next(replace(state, assistant=Assistant.IDLE), rules)


def _quiet_frame(state: TurnState, frame: Frame, rules: TurnRules) -> Step:
    timing, answering = rules.timing, state.assistant is Assistant.ANSWERING
    if frame.probability < (max(rules.threshold, _SURE_SPEECH) if answering else rules.threshold):
        if state.onset_ms is not None and frame.end_ms - state.last_voiced_ms > timing.onset_gap_ms:
            return replace(state, onset_ms=None, voiced_ms=0), []
        return state, []
    onset = frame.start_ms if state.onset_ms is None else state.onset_ms
    voiced = state.voiced_ms + frame.end_ms - frame.start_ms
    heard = replace(state, onset_ms=onset, voiced_ms=voiced, last_voiced_ms=frame.end_ms)
    needed = timing.barge_in_ms if answering else timing.onset_ms
    if voiced < needed:
        return heard, []
    begun = replace(
        heard,
        user=User.SPEAKING,
        turn=state.turn + 1,
        started_ms=onset,
        onset_ms=None,
        voiced_ms=0,
        wait_ms=rules.wait_ms,
    )
    begin: list[Action] = [BeginTurn(begun.turn, onset)]
    if state.assistant is Assistant.HELD or not rules.interrupt_response:
        return begun, begin
    if state.assistant is Assistant.ANSWERING and state.sounding:
        return replace(begun, assistant=Assistant.HELD), [*begin, HoldAnswer()]
    # An answer of which nothing was heard answers nothing: should the interruption hold no words, it is begun anew.
    lost = state.assistant is Assistant.ANSWERING
    stopped, actions = _stop(replace(begun, unanswered=state.unanswered or lost), "turn_detected")
    return stopped, [*begin, *actions]


def _speaking_frame(state: TurnState, frame: Frame, rules: TurnRules) -> Step:
    timing, actions = rules.timing, list[Action]()
    voiced = frame.probability >= max(rules.threshold - _HYSTERESIS, _FLOOR)
    if voiced and state.guessing:
        state = replace(state, resumed_ms=state.resumed_ms + frame.end_ms - frame.start_ms)
        if state.resumed_ms >= timing.resume_ms:
            actions.append(DropGuess(frame.end_ms - state.resumed_ms))
            state = replace(state, guessing=False, last_voiced_ms=frame.end_ms, wait_ms=rules.wait_ms)
    elif voiced:
        state = replace(state, last_voiced_ms=frame.end_ms)
    else:
        state = replace(state, resumed_ms=0)
    if state.assistant is Assistant.HELD and state.last_voiced_ms - state.started_ms >= timing.aside_ms:
        state, stopped = _stop(state, "turn_detected")
        actions += stopped
    silence = frame.end_ms - state.last_voiced_ms
    endless = frame.end_ms - state.started_ms >= timing.longest_turn_ms
    if not state.guessing and silence >= timing.soft_end_ms and not endless:
        state = replace(state, guessing=True, revision=state.revision + 1, resumed_ms=0, judged_ms=0)
        actions.append(Guess(state.revision, state.last_voiced_ms))
    if silence < state.wait_ms and not endless:
        return state, actions
    ended, more = _end(state)
    return ended, [*actions, *more]


def _end(state: TurnState) -> Step:
    busy = state.assistant in (Assistant.ANSWERING, Assistant.HELD)
    assistant = state.assistant if busy else Assistant.THINKING
    ended = replace(state, user=User.QUIET, assistant=assistant, awaited=state.turn, guessing=False)
    return ended, [EndTurn(state.turn, state.last_voiced_ms)]


def _judged(state: TurnState, event: Judged, rules: TurnRules) -> Step:
    if not state.guessing or event.revision != state.revision:
        return state, []  # the user went on, or the turn is over
    actions: list[Action] = []
    if state.assistant is Assistant.HELD and not event.aside:
        state, actions = _stop(state, "turn_detected")
    wait = event.wait_ms
    if event.answering and state.ready != event.revision:
        wait = max(wait, rules.timing.longest_wait_ms)
    ended, more = _if_silent(replace(state, wait_ms=wait, judged_ms=event.wait_ms))
    return ended, [*actions, *more]


def _ready(state: TurnState, event: Ready) -> Step:
    if not state.guessing or event.revision != state.revision:
        return state, []
    state = replace(state, ready=event.revision)
    return _if_silent(replace(state, wait_ms=state.judged_ms)) if state.judged_ms else (state, [])


def _if_silent(state: TurnState) -> Step:
    """End the turn, if it has been silent for long enough."""
    return _end(state) if state.heard_ms - state.last_voiced_ms >= state.wait_ms else (state, [])


def _understood(state: TurnState, event: Understood, rules: TurnRules) -> Step:
    state = replace(state, awaited=None if event.turn == state.awaited else state.awaited)
    actions: list[Action] = []
    if state.assistant is Assistant.HELD and event.aside:
        event = replace(event, said=False)
    elif state.assistant is Assistant.HELD and event.said:
        state, actions = _stop(state, "turn_detected")
    after, more = _next(replace(state, unanswered=state.unanswered or event.said), rules)
    return after, [*actions, *more]


def _handed_over(state: TurnState, event: HandedOver) -> Step:
    """The client asks for the answer to such a turn itself."""
    turn = state.turn if state.user is User.SPEAKING else state.turn + 1
    dropped: list[Action] = [DropGuess()] if state.guessing else []
    ended = replace(state, user=User.QUIET, turn=turn, onset_ms=None, voiced_ms=0, guessing=False)
    return ended, [*dropped, EndTurn(turn, event.at_ms, by_hand=True)]


def _withdrawn(state: TurnState, rules: TurnRules) -> Step:
    dropped: list[Action] = [DropGuess()] if state.guessing else []
    if state.user is User.SPEAKING:
        dropped.append(DropTurn())
    quiet = replace(state, user=User.QUIET, onset_ms=None, voiced_ms=0, guessing=False)
    after, actions = _next(quiet, rules)
    return after, [*dropped, *actions]


def _next(state: TurnState, rules: TurnRules) -> Step:
    """Once both sides are quiet and all words are known: answer what has not been answered, go on with what was held
    back, or listen."""
    if state.user is User.SPEAKING or state.assistant is Assistant.ANSWERING or state.awaited is not None:
        return state, []
    if state.unanswered and rules.create_response:
        stopped, actions = _stop(state, "turn_detected")
        answered, more = _answer(stopped)
        return answered, [*actions, *more]
    if state.assistant is Assistant.HELD:
        return replace(state, assistant=Assistant.ANSWERING), [ResumeAnswer()]
    return replace(state, assistant=Assistant.IDLE, unanswered=False), []


def _answer(state: TurnState) -> Step:
    return replace(state, assistant=Assistant.ANSWERING, unanswered=False, sounding=False), [StartAnswer()]


def _stop(state: TurnState, reason: StopReason) -> Step:
    busy = state.assistant in (Assistant.ANSWERING, Assistant.HELD)
    return replace(state, assistant=Assistant.IDLE), [StopAnswer(reason)] if busy else []

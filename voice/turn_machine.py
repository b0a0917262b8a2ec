"""The turn machine: a pure function from (state, event) to (state, actions). No clock, no thread, no model.

Time is the audio clock: milliseconds of audio received so far. Every event carries its time on that clock.

    listening ──speech──▶ user speaking ──silence──▶ thinking ──transcript──▶ responding ──played──▶ listening
                                ▲                        │                        │
                                └──────────── speech: the response pauses ────────┘

After a short silence the turn may be over: the machine starts a speculative response that nobody hears yet. If the
user keeps talking, the speculation is cancelled; enough silence (the endpointer decides how much) ends the turn. When
the user speaks over a response, it pauses at once. It stops when the transcript holds a real interruption, and resumes
when it was only a backchannel ("mhm").
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from voice.audio.vad import Frame
from voice.timing import Timing
from voice.turn_actions import (
    Action,
    BeginTurn,
    CancelSpeculation,
    CommitSilence,
    DropTurn,
    EndTurn,
    PauseResponse,
    ResumeResponse,
    StartResponse,
    StartSpeculation,
    StopReason,
    StopResponse,
)

_HYSTERESIS, _MIN_THRESHOLD = 0.15, 0.01
"""Once the user speaks, a window counts as speech down to this much below the threshold, but never below the minimum
(Silero's own recommendation)."""


_BARGE_IN_THRESHOLD = 0.7
"""Probability from which a window counts as speech over the assistant's response: two certain windows are as reliable
as three likely ones, and come sooner."""


class User(Enum):
    """What the user is doing."""

    QUIET = "quiet"
    SPEAKING = "speaking"


class Assistant(Enum):
    """What the assistant is doing."""

    IDLE = "idle"
    THINKING = "thinking"
    """The turn is over and its transcript is pending."""
    RESPONDING = "responding"
    """From the decision to respond until the last sample has been played."""
    PAUSED = "paused"
    """The user speaks, or spoke, over the response: it is silent and may resume."""


Phase = Literal["listening", "user_speaking", "thinking", "answering"]

_PHASES: dict[Assistant, Phase] = {
    Assistant.IDLE: "listening", Assistant.THINKING: "thinking", Assistant.RESPONDING: "answering",
    Assistant.PAUSED: "thinking",
}  # fmt: skip


@dataclass(frozen=True)
class TurnRules:
    """What may differ from one conversation to the next.

    Attributes:
        threshold: probability from which a window counts as speech.
        silence_only: a turn ends after `timing.end_silence_ms`, whatever the transcript.
        idle_timeout_ms: respond to this much silence after a response; None to wait forever.
        create_response: respond automatically when a turn ends.
        interrupt_response: stop responding when the user speaks.
    """

    timing: Timing = field(default_factory=Timing)
    threshold: float = 0.5
    create_response: bool = True
    interrupt_response: bool = True
    silence_only: bool = False
    idle_timeout_ms: int | None = None

    @property
    def wait_ms(self) -> int:
        """The silence that ends a turn before the endpointer has decided."""
        return self.timing.end_silence_ms if self.silence_only else self.timing.longest_wait_ms


@dataclass(frozen=True)
class TurnState:
    """The state of a conversation.

    Attributes:
        turn: number of the newest user turn.
        onset_ms: start of voiced sound that does not count as speaking yet, or None.
        voiced_ms: voiced sound since `onset_ms`.
        speech_start_ms: where the user's newest speech began.
        last_voiced_ms: end of the last voiced window that counts.
        received_ms: end of the newest window.
        revision: number of the newest speculation.
        speculating: that speculation is active.
        resumed_ms: voiced sound since the speculation started.
        wait_ms: the silence that ends this turn.
        decided_wait_ms: the silence that the endpointer chose for the newest speculation, 0 before it decided.
        ready_revision: number of the speculation whose response is ready to play.
        transcribing: the turns whose transcripts are pending.
        unanswered: the user said something that has had no response yet.
        sent_some: some audio, or written text, of the current response has been sent.
        idle_since_ms: when the last response had been played; None if something happened since.
    """

    user: User = User.QUIET
    assistant: Assistant = Assistant.IDLE
    turn: int = 0
    onset_ms: int | None = None
    voiced_ms: int = 0
    speech_start_ms: int = 0
    last_voiced_ms: int = 0
    received_ms: int = 0
    revision: int = 0
    speculating: bool = False
    resumed_ms: int = 0
    wait_ms: int = 0
    decided_wait_ms: int = 0
    ready_revision: int = 0
    transcribing: frozenset[int] = frozenset()
    unanswered: bool = False
    sent_some: bool = False
    idle_since_ms: int | None = None

    @property
    def silent(self) -> bool:
        """Whether neither side speaks, and nothing that was said is pending."""
        return self.user is User.QUIET and self.assistant is Assistant.IDLE and not self.transcribing

    @property
    def phase(self) -> Phase:
        """The state in one word, as `rejoinder.phase` reports it."""
        if self.user is User.SPEAKING:
            return "user_speaking"
        return _PHASES[self.assistant]


# Events. `voice.audio.vad.Frame`, one window of audio with its speech probability, is one too.


@dataclass(frozen=True)
class Committed:
    """The client ends the user's turn (push-to-talk): the audio up to `at_ms` is the turn."""

    at_ms: int


@dataclass(frozen=True)
class Cleared:
    """The client discards the audio that was not committed yet."""


@dataclass(frozen=True)
class EndpointDecision:
    """The endpointer's decision on speculation `revision`.

    Attributes:
        wait_ms: the silence that ends the turn.
        backchannel: the words are ones that people say while they listen ("mhm").
        response_pending: a response is being generated and `ResponseReady` will follow. Until then, listening longer
            costs nothing, up to the longest wait.
    """

    revision: int
    wait_ms: int
    backchannel: bool = False
    response_pending: bool = False


@dataclass(frozen=True)
class ResponseReady:
    """The response of speculation `revision` is ready to play."""

    revision: int


@dataclass(frozen=True)
class TranscriptReady:
    """The transcript of turn `turn`, which silence ended, is known.

    Attributes:
        has_words: the transcript is not empty.
        backchannel: as in `EndpointDecision`.
    """

    turn: int
    has_words: bool
    backchannel: bool = False


@dataclass(frozen=True)
class ResponseRequested:
    """The client requests a response."""


@dataclass(frozen=True)
class ResponseCancelled:
    """The client cancels the response."""


@dataclass(frozen=True)
class FirstSent:
    """The first audio, or written text, of the current response has been sent."""


@dataclass(frozen=True)
class PlaybackDone:
    """The current response has been played to its end, or has failed."""


Event = (
    Frame
    | Committed
    | Cleared
    | EndpointDecision
    | ResponseReady
    | TranscriptReady
    | ResponseRequested
    | ResponseCancelled
    | FirstSent
    | PlaybackDone
)


Transition = tuple[TurnState, list[Action]]


def step(state: TurnState, event: Event, rules: TurnRules) -> Transition:
    """The state after `event`, and the actions to carry out."""
    match event:
        case Frame():
            on_frame = _on_frame_while_quiet if state.user is User.QUIET else _on_frame_while_speaking
            return on_frame(replace(state, received_ms=event.end_ms), event, rules)
        case Committed():
            return _on_committed(state, event)
        case Cleared():
            return _on_cleared(state, rules)
        case EndpointDecision():
            return _on_endpoint_decision(state, event, rules)
        case ResponseReady():
            return _on_response_ready(state, event)
        case TranscriptReady():
            return _on_transcript_ready(state, event, rules)
        case ResponseRequested() if state.user is User.SPEAKING and rules.create_response:
            return replace(state, unanswered=True), []  # one response to this and to what the user is saying
        case ResponseRequested() if _answers_a_pending_turn(state, rules):
            return replace(state, unanswered=True), []  # and to what the user has just said
        case ResponseRequested() if state.assistant is Assistant.RESPONDING:
            return _start_response(state)  # what was sent before is played to its end first
        case ResponseRequested():
            stopped, actions = _stop_response(state, "client_cancelled")
            responding, more = _start_response(stopped)
            return responding, [*actions, *more]
        case ResponseCancelled():
            return _stop_response(replace(state, unanswered=False), "client_cancelled")
        case FirstSent():
            return replace(state, sent_some=True), []
        case PlaybackDone():
            after, actions = _respond_or_listen(replace(state, assistant=Assistant.IDLE), rules)
            idle = after.assistant is Assistant.IDLE and after.user is User.QUIET
            return replace(after, idle_since_ms=state.received_ms if idle else None), actions


def _answers_a_pending_turn(state: TurnState, rules: TurnRules) -> bool:
    """Whether a requested response is the one to a turn that is still transcribed."""
    return bool(state.transcribing) and rules.create_response and state.assistant is not Assistant.RESPONDING


def _on_frame_while_quiet(state: TurnState, frame: Frame, rules: TurnRules) -> Transition:
    timing, responding = rules.timing, state.assistant is Assistant.RESPONDING
    if frame.probability < (max(rules.threshold, _BARGE_IN_THRESHOLD) if responding else rules.threshold):
        if state.onset_ms is not None and frame.end_ms - state.last_voiced_ms > timing.onset_gap_ms:
            return replace(state, onset_ms=None, voiced_ms=0), []
        return _respond_to_silence(state, rules)
    onset = frame.start_ms if state.onset_ms is None else state.onset_ms
    voiced = state.voiced_ms + frame.end_ms - frame.start_ms
    after_frame = replace(state, onset_ms=onset, voiced_ms=voiced, last_voiced_ms=frame.end_ms)
    if voiced < (timing.barge_in_ms if responding else timing.onset_ms):
        return after_frame, []
    speaking = replace(
        after_frame,
        user=User.SPEAKING,
        turn=state.turn + 1,
        speech_start_ms=onset,
        onset_ms=None,
        voiced_ms=0,
        wait_ms=rules.wait_ms,
        idle_since_ms=None,
    )
    begin: list[Action] = [BeginTurn(speaking.turn, onset)]
    if state.assistant is Assistant.PAUSED or not rules.interrupt_response:
        return speaking, begin
    if responding and state.sent_some:
        return replace(speaking, assistant=Assistant.PAUSED), [*begin, PauseResponse()]
    # The user heard nothing of the response, so their question is still unanswered: if this interruption holds no
    # words, the response starts again.
    stopped, actions = _stop_response(replace(speaking, unanswered=state.unanswered or responding), "turn_detected")
    return stopped, [*begin, *actions]


def _respond_to_silence(state: TurnState, rules: TurnRules) -> Transition:
    """Respond once nobody has spoken for the idle timeout."""
    since, timeout = state.idle_since_ms, rules.idle_timeout_ms
    if timeout is None or since is None or state.onset_ms is not None or not rules.create_response:
        return state, []
    if state.received_ms - since < timeout:
        return state, []
    responding, start = _start_response(state)
    return responding, [CommitSilence(since, state.received_ms), *start]


def _on_frame_while_speaking(state: TurnState, frame: Frame, rules: TurnRules) -> Transition:
    timing, actions = rules.timing, list[Action]()
    voiced = frame.probability >= max(rules.threshold - _HYSTERESIS, _MIN_THRESHOLD)
    if voiced and state.speculating:
        state = replace(state, resumed_ms=state.resumed_ms + frame.end_ms - frame.start_ms)
        if state.resumed_ms >= timing.resume_ms:
            actions.append(CancelSpeculation(frame.end_ms - state.resumed_ms))
            state = replace(state, speculating=False, last_voiced_ms=frame.end_ms, wait_ms=rules.wait_ms)
    elif voiced:
        state = replace(state, last_voiced_ms=frame.end_ms)
    else:
        state = replace(state, resumed_ms=0)
    spoken_ms = state.last_voiced_ms - state.speech_start_ms
    if state.assistant is Assistant.PAUSED and spoken_ms >= timing.backchannel_ms:
        state, stopped = _stop_response(state, "turn_detected")
        actions += stopped
    silence = frame.end_ms - state.last_voiced_ms
    too_long = frame.end_ms - state.speech_start_ms >= timing.max_turn_ms
    if not state.speculating and silence >= timing.soft_end_ms and not too_long:
        state = replace(state, speculating=True, revision=state.revision + 1, resumed_ms=0, decided_wait_ms=0)
        actions.append(StartSpeculation(state.revision, state.last_voiced_ms))
    ended, more = _end_turn(state) if too_long else _end_turn_if_silent(state)
    return ended, [*actions, *more]


def _end_turn(state: TurnState) -> Transition:
    busy = state.assistant in (Assistant.RESPONDING, Assistant.PAUSED)
    assistant = state.assistant if busy else Assistant.THINKING
    transcribing = state.transcribing | {state.turn}
    ended = replace(state, user=User.QUIET, assistant=assistant, transcribing=transcribing, speculating=False)
    return ended, [EndTurn(state.turn, state.last_voiced_ms)]


def _on_endpoint_decision(state: TurnState, event: EndpointDecision, rules: TurnRules) -> Transition:
    if not state.speculating or event.revision != state.revision:
        return state, []  # the user kept talking, or the turn is over
    actions: list[Action] = []
    if state.assistant is Assistant.PAUSED and not event.backchannel:
        state, actions = _stop_response(state, "turn_detected")
    wait = event.wait_ms
    if event.response_pending and state.ready_revision != event.revision:
        wait = max(wait, rules.timing.longest_wait_ms)
    ended, more = _end_turn_if_silent(replace(state, wait_ms=wait, decided_wait_ms=event.wait_ms))
    return ended, [*actions, *more]


def _on_response_ready(state: TurnState, event: ResponseReady) -> Transition:
    if not state.speculating or event.revision != state.revision:
        return state, []
    state = replace(state, ready_revision=event.revision)
    return _end_turn_if_silent(replace(state, wait_ms=state.decided_wait_ms)) if state.decided_wait_ms else (state, [])


def _end_turn_if_silent(state: TurnState) -> Transition:
    """End the turn if the silence is long enough already. If the newest window is voiced, the next one will show
    whether the user has resumed."""
    silent = state.received_ms - state.last_voiced_ms >= state.wait_ms and not state.resumed_ms
    return _end_turn(state) if silent else (state, [])


def _on_transcript_ready(state: TurnState, event: TranscriptReady, rules: TurnRules) -> Transition:
    state = replace(state, transcribing=state.transcribing - {event.turn})
    actions: list[Action] = []
    if state.assistant is Assistant.PAUSED and event.backchannel:
        event = replace(event, has_words=False)
    elif state.assistant is Assistant.PAUSED and event.has_words:
        state, actions = _stop_response(state, "turn_detected")
    after, more = _respond_or_listen(replace(state, unanswered=state.unanswered or event.has_words), rules)
    return after, [*actions, *more]


def _on_committed(state: TurnState, event: Committed) -> Transition:
    """The client requests the response to a committed turn itself."""
    turn = state.turn if state.user is User.SPEAKING else state.turn + 1
    cancelled: list[Action] = [CancelSpeculation()] if state.speculating else []
    if state.assistant is Assistant.PAUSED:
        state, stopped = _stop_response(state, "turn_detected")
        cancelled += stopped
    ended = replace(
        state, user=User.QUIET, turn=turn, onset_ms=None, voiced_ms=0, speculating=False, idle_since_ms=None
    )
    return ended, [*cancelled, EndTurn(turn, event.at_ms, manual=True)]


def _on_cleared(state: TurnState, rules: TurnRules) -> Transition:
    dropped: list[Action] = [CancelSpeculation()] if state.speculating else []
    if state.user is User.SPEAKING:
        dropped.append(DropTurn())
    quiet = replace(state, user=User.QUIET, onset_ms=None, voiced_ms=0, speculating=False)
    after, actions = _respond_or_listen(quiet, rules)
    return after, [*dropped, *actions]


def _respond_or_listen(state: TurnState, rules: TurnRules) -> Transition:
    """Once both sides are quiet and no transcript is pending: respond to what is unanswered, resume a paused response,
    or listen."""
    busy = state.user is User.SPEAKING or state.assistant is Assistant.RESPONDING
    if busy or state.transcribing:
        return state, []
    if state.unanswered and rules.create_response:
        stopped, actions = _stop_response(state, "turn_detected")
        responding, more = _start_response(stopped)
        return responding, [*actions, *more]
    if state.assistant is Assistant.PAUSED:
        return replace(state, assistant=Assistant.RESPONDING), [ResumeResponse()]
    return replace(state, assistant=Assistant.IDLE, unanswered=False), []


def _start_response(state: TurnState) -> Transition:
    responding = replace(state, assistant=Assistant.RESPONDING, unanswered=False, sent_some=False, idle_since_ms=None)
    return responding, [StartResponse()]


def _stop_response(state: TurnState, reason: StopReason) -> Transition:
    busy = state.assistant in (Assistant.RESPONDING, Assistant.PAUSED)
    return replace(state, assistant=Assistant.IDLE), [StopResponse(reason)] if busy else []

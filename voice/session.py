"""One conversation: drives the turn machine with the real stages.

Everything here runs on one event loop; transcription and synthesis run on their own threads. Decisions are the turn
machine's: this file feeds it events and carries out its actions.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from voice import events
from voice.answer import Answer
from voice.asr import Utterance
from voice.audio import HEARING_RATE, Resampler, Samples
from voice.brain import Brain
from voice.history import History, Item
from voice.listening import InputBuffer
from voice.persona import INSTRUCTIONS
from voice.stages import Stages
from voice.timeline import Timeline
from voice.turn import (
    Action,
    AnswerUnwanted,
    AnswerWanted,
    BeginTurn,
    DropTurn,
    EndTurn,
    Event,
    FirstSound,
    HandedOver,
    PlayedOut,
    StartAnswer,
    StopAnswer,
    TurnRules,
    TurnState,
    Understood,
    User,
    Withdrawn,
    step,
)
from voice.vad import SpeechDetector

_log = logging.getLogger("rejoinder.voice")

_PENDING_TURNS = 4
"""Turns of one conversation that may wait for transcription; recordings sent much faster than real time queue up."""

_TAIL_MS = 100
"""Sound kept behind the last voiced window for transcription: soft last consonants."""


class Refused(ValueError):
    """A request that makes no sense now; `code` is the Realtime protocol's name for it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Settings:
    """What a client may choose about its conversation.

    Attributes:
        detect_turns: whether silence ends a turn; otherwise the client hands turns over.
        speak: whether answers are spoken; otherwise they are written.
        speed: pace of the voice, 1 is its own.
        max_tokens: the longest answer, None for what the context leaves.
    """

    instructions: str = INSTRUCTIONS
    rules: TurnRules = field(default_factory=TurnRules)
    detect_turns: bool = True
    speak: bool = True
    speed: float = 1.0
    max_tokens: int | None = None


class Session:
    """One conversation.

    Args:
        brain: this conversation's language model.
        stages: the shared models.
        emit: told everything that happens, on the event loop.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        brain: Brain,
        stages: Stages,
        emit: Callable[[events.SessionEvent], None],
        settings: Settings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or Settings()
        self.history = History()
        self.state = TurnState()
        self._brain, self._stages, self._emit, self._clock = brain, stages, emit, clock
        self._detector = SpeechDetector(stages.silero)
        self._resampler: tuple[int, Resampler] = (HEARING_RATE, Resampler(HEARING_RATE, HEARING_RATE))
        self._input = InputBuffer()
        self._utterance: Utterance | None = None
        self._utterance_ms = 0
        self._item_id = ""
        self._partial: asyncio.Task[None] | None = None
        self._partial_samples = self._partial_voiced_ms = 0
        self._understanding: set[asyncio.Task[None]] = set()
        self._answer: Answer | None = None
        self._wanted: Settings | None = None
        self._timeline = Timeline(_new_id("turn"))
        self._played_out: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        brain.prepare(self.history.messages(self.settings.instructions))

    # What the client does.

    def configure(self, settings: Settings) -> None:
        """Change the settings; they hold from the next turn or answer on."""
        if settings.detect_turns != self.settings.detect_turns:
            self._apply(Withdrawn())
        if settings.instructions != self.settings.instructions and self._answering is None:
            self._brain.prepare(self.history.messages(settings.instructions))
        self.settings = settings

    def append(self, samples: Samples, rate: int) -> None:
        """Take sound from the microphone, as it comes.

        Args:
            samples: [T] float32.
            rate: Hz, one of `voice.audio.INPUT_RATES`.

        Raises:
            Refused: more sound than a turn may hold has come without being handed over.
        """
        if self._resampler[0] != rate:
            self._resampler = (rate, Resampler(rate, HEARING_RATE))
        heard = self._resampler[1].push(samples)
        if not self.settings.detect_turns and self._input.held_ms > self.settings.rules.timing.longest_turn_ms:
            raise Refused(
                "input_audio_buffer_full",
                f"{self._input.held_ms / 1000:.0f} s of audio wait to be committed, and a turn holds at most "
                f"{self.settings.rules.timing.longest_turn_ms / 1000:.0f} s: commit or clear the buffer",
            )
        self._input.add(heard, self._clock())
        if self._utterance is not None:
            self._utterance.add(heard)
        # The detector always hears, so that its windows stay on the audio clock.
        frames = self._detector.push(heard)
        if not self.settings.detect_turns:
            return
        for frame in frames:
            self._apply(frame)
        if self.state.user is User.QUIET:
            self._input.keep_last(self.settings.rules.timing.prefix_ms + 1000)
        self._consider_partial()

    async def room(self) -> None:
        """Wait until more audio can be taken: sound that comes much faster than real time is held back here, so
        that its transcription does not keep other conversations waiting."""
        while len(self._understanding) >= _PENDING_TURNS:
            await asyncio.wait(set(self._understanding), return_when=asyncio.FIRST_COMPLETED)

    def commit(self) -> None:
        """The user's turn is over (push-to-talk).

        Raises:
            Refused: there is next to no audio, or earlier turns still wait to be transcribed.
        """
        if len(self._understanding) >= _PENDING_TURNS:
            raise Refused(
                "too_many_pending_turns",
                f"{len(self._understanding)} turns still wait to be transcribed: wait for their transcripts",
            )
        least = self.settings.rules.timing.shortest_commit_ms
        held = self._input.end_ms - self._utterance_ms if self._utterance else self._input.held_ms
        if held < least:
            raise Refused(
                "input_audio_buffer_commit_empty",
                f"the input audio buffer holds {held} ms of audio and at least {least} ms "
                "are needed: append audio first",
            )
        self._apply(HandedOver(self._input.end_ms))

    def clear(self) -> None:
        """Forget the audio that was not handed over."""
        self._apply(Withdrawn())
        self._input.clear()

    def respond(self, settings: Settings | None = None) -> None:
        """Answer the conversation as it stands.

        Args:
            settings: for this answer only; the session's own when not given.

        Raises:
            Refused: an answer is under way.
        """
        if self._answering is not None:
            raise Refused(
                "conversation_already_has_active_response",
                f"{self._answering.response_id} is still in progress: wait for its response.done or cancel it",
            )
        self._wanted = settings
        self._apply(AnswerWanted())

    def cancel(self, response_id: str | None = None) -> None:
        """Stop the answer under way.

        Raises:
            Refused: none is, or another one.
        """
        if self._answering is None or response_id not in (None, self._answering.response_id):
            raise Refused("response_cancel_not_active", "there is no such response in progress to cancel")
        self._apply(AnswerUnwanted())

    def truncate(self, item_id: str, heard_ms: float) -> None:
        """The user heard only the first `heard_ms` of this answer. Raises UnknownItem, ValueError."""
        self.history.truncate(item_id, heard_ms)

    async def close(self) -> None:
        """End the conversation: whatever is under way is dropped."""
        self._brain.cancel()
        if self._played_out is not None:
            self._played_out.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _answering(self) -> Answer | None:
        """The answer of which more is to be sent; one that only plays is not."""
        return self._answer if self._answer is not None and not self._answer.done else None

    # What the turn machine decides.

    def _apply(self, event: Event) -> None:
        before = self.state.phase
        self.state, actions = step(self.state, event, self.settings.rules)
        for action in actions:
            self._carry_out(action)
        if self.state.phase != before:
            self._emit(events.PhaseChanged(self.state.phase))

    def _carry_out(self, action: Action) -> None:
        match action:
            case BeginTurn():
                self._begin_turn(action)
            case EndTurn():
                self._end_turn(action)
            case DropTurn():
                self._utterance = None
            case StartAnswer():
                self._start_answer()
            case StopAnswer():
                self._stop_answer(action)

    def _begin_turn(self, action: BeginTurn) -> None:
        self._utterance_ms = max(self._input.start_ms, action.at_ms - self.settings.rules.timing.prefix_ms)
        self._utterance = Utterance(self._stages.recognizer)
        self._utterance.add(self._input.since(self._utterance_ms))
        self._partial_samples = 0
        self._item_id = _new_id("item")
        self._emit(events.SpeechStarted(self._item_id, self._utterance_ms))
        if self._answering is None:
            self._brain.prepare(self.history.messages(self.settings.instructions))

    def _end_turn(self, action: EndTurn) -> None:
        utterance, start_ms = self._utterance, self._utterance_ms
        if utterance is None:  # handed over without detected speech: all the audio that is held
            start_ms = self._input.start_ms
            utterance = Utterance(self._stages.recognizer)
            utterance.add(self._input.since(start_ms))
            self._item_id = _new_id("item")
        self._utterance = None
        now = self._clock()
        self._timeline = Timeline(_new_id("turn"))
        self._timeline.stamp("speech_end", min(now, self._input.time_of(action.at_ms)))
        self._timeline.stamp("end_decided", now)
        item = Item(self._item_id, "user")
        previous = self.history.add(item)
        if not action.by_hand:
            self._emit(events.SpeechStopped(item.id, action.at_ms))
        self._emit(events.InputCommitted(item, previous))
        end_ms = action.at_ms if action.by_hand else action.at_ms + _TAIL_MS
        self._input.forget_before(end_ms)
        task = self._spawn(self._understand(action, utterance, end_ms - start_ms, item, self._timeline))
        self._understanding.add(task)
        task.add_done_callback(self._understanding.discard)

    async def _understand(
        self, ended: EndTurn, utterance: Utterance, length_ms: int, item: Item, timeline: Timeline
    ) -> None:
        loop = asyncio.get_running_loop()
        samples = min(length_ms * HEARING_RATE // 1000, utterance.samples)
        try:
            item.text = await loop.run_in_executor(self._stages.hearing, utterance.final, samples)
        except Exception as error:
            _log.exception("a turn could not be transcribed")
            self._emit(events.TranscriptionFailed(item.id, f"the turn could not be transcribed: {error}"))
            self._understood(ended, said=False)
            return
        item.complete = True
        timeline.stamp("transcript_final", self._clock())
        self._emit(events.FinalTranscript(item.id, item.text, samples / HEARING_RATE))
        self._understood(ended, said=bool(item.text))

    def _understood(self, ended: EndTurn, *, said: bool) -> None:
        if not ended.by_hand:
            self._apply(Understood(ended.turn, said))

    def _consider_partial(self) -> None:
        utterance = self._utterance
        if utterance is None or (self._partial is not None and not self._partial.done()):
            return
        if self.state.last_voiced_ms == self._partial_voiced_ms:
            return  # silence since the last one: the final text should not have to wait for another
        wanted = self.settings.rules.timing.partial_every_ms * HEARING_RATE // 1000
        if utterance.samples - self._partial_samples < wanted:
            return
        self._partial_samples, self._partial_voiced_ms = utterance.samples, self.state.last_voiced_ms
        self._partial = self._spawn(self._make_partial(utterance, self._item_id))

    async def _make_partial(self, utterance: Utterance, item_id: str) -> None:
        loop = asyncio.get_running_loop()
        partial = await loop.run_in_executor(self._stages.hearing, utterance.partial)
        if utterance is self._utterance:
            self._emit(events.PartialTranscript(item_id, partial.stable, partial.unstable))

    def _start_answer(self) -> None:
        if self._played_out is not None:
            self._played_out.cancel()
        settings, self._wanted = self._wanted or self.settings, None
        answer = Answer(
            response_id=_new_id("resp"),
            item=Item(_new_id("item"), "assistant", spoken=settings.speak),
            timeline=self._timeline,
            stages=self._stages,
            emit=self._emit,
            sounding=lambda: self._apply(FirstSound()),
            clock=self._clock,
            speed=settings.speed,
            not_before=self._answer.played_until if self._answer else 0.0,
        )
        self._timeline = Timeline(_new_id("turn"))  # an answer that no turn asked for has a timeline of its own
        self._answer = answer
        previous = self.history.add(answer.item)
        self._emit(events.AnswerStarted(answer.response_id, answer.item, previous))
        answer.task = self._spawn(self._run_answer(answer, settings))

    async def _run_answer(self, answer: Answer, settings: Settings) -> None:
        if self._understanding:
            await asyncio.wait(set(self._understanding))  # unlike gather, this does not cancel them with us
        messages = self.history.messages(settings.instructions)
        deadline = time.monotonic() + self.settings.rules.timing.clause_within_ms / 1000 if settings.speak else None
        await answer.run(self._brain, messages, settings.max_tokens, deadline)
        slack = self.settings.rules.timing.playback_slack_ms / 1000 if answer.item.audio_ms else 0
        wait = max(0.0, answer.played_until + slack - self._clock())
        self._played_out = asyncio.get_running_loop().call_later(wait, self._apply, PlayedOut())

    def _stop_answer(self, action: StopAnswer) -> None:
        if self._played_out is not None:
            self._played_out.cancel()
        if self._answer is not None:
            self._brain.cancel()
            self._answer.stop(action.reason)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _new_id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:20]}"

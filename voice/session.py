"""One conversation: drives the turn machine with the real stages.

Everything here runs on one event loop; transcription and synthesis run on their own threads. Decisions are the turn
machine's: this file feeds it events and carries out its actions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from voice import endpoint, events
from voice.answer import Answer
from voice.asr import Utterance
from voice.audio import HEARING_RATE, TELEPHONE_RATE, Resampler, Samples
from voice.brain import Brain, Message
from voice.echo import EchoGuard
from voice.history import History, Item
from voice.listening import InputBuffer
from voice.lowband import LowBand
from voice.partials import Partials
from voice.speaking import Settings, Speaking, new_id
from voice.speculation import Speculation
from voice.stages import Stages
from voice.timeline import Timeline
from voice.turn import (
    Action,
    AnswerUnwanted,
    AnswerWanted,
    Assistant,
    BeginTurn,
    DropGuess,
    DropTurn,
    EndTurn,
    Event,
    Guess,
    HandedOver,
    HoldAnswer,
    Judged,
    PlayedOut,
    Ready,
    ResumeAnswer,
    StartAnswer,
    StopAnswer,
    TurnState,
    Understood,
    User,
    Withdrawn,
    step,
)
from voice.vad import SpeechDetector

_log = logging.getLogger("rejoinder.voice")

T = TypeVar("T")

_PENDING_TURNS = 4
"""Turns of one conversation that may wait for transcription; recordings sent much faster than real time queue up."""

_READ_AHEAD_WORDS = 8
"""Stable words that are worth a pass of their own; fewer are read just as quickly with the rest."""


class Refused(ValueError):
    """A request that makes no sense now; `code` is the Realtime protocol's name for it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


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
        self._brain, self._stages, self._listener, self._clock = brain, stages, emit, clock
        self._detector, self._low_band = SpeechDetector(stages.silero), LowBand()
        self._resampler: tuple[int, Resampler] = (HEARING_RATE, Resampler(HEARING_RATE, HEARING_RATE))
        self._input = InputBuffer()
        self._echo = EchoGuard()
        self._utterance: Utterance | None = None
        self._utterance_ms = 0
        self._item_id = ""
        self._partial: asyncio.Task[None] | None = None
        self._partials = Partials()
        self._read_ahead = 0
        self._understanding: set[asyncio.Task[None]] = set()
        self._pauses = endpoint.Pauses()
        self._speculation: Speculation | None = None
        self._guesses = 0
        self._speaking = Speaking(brain, stages, self.history, self._emit, self._apply, self._spawn, clock)
        self._wanted: Settings | None = None
        self._timeline = Timeline(new_id("turn"))
        self._tasks: set[asyncio.Task[Any]] = set()
        brain.prepare(self.history.messages(self.settings.instructions))

    # What the client does.

    def configure(self, settings: Settings) -> None:
        """Change the settings; they hold from the next turn or answer on."""
        if settings.detect_turns != self.settings.detect_turns:
            self._apply(Withdrawn())
        if settings.instructions != self.settings.instructions and not self._thinking:
            self._forget_guess()
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
        frames = self._detector.push(self._low_band.push(heard) if rate == TELEPHONE_RATE else heard)
        if not self.settings.detect_turns:
            return
        for frame in frames:
            self._apply(self._echo.filter(frame, self._input, self.settings.rules.threshold))
        if self.state.user is User.QUIET:
            self._input.keep_last(self.settings.rules.timing.prefix_ms + 1000)
        self._consider_partial()

    def _emit(self, event: events.SessionEvent) -> None:
        if isinstance(event, events.AnswerAudio):
            self._echo.play(event.samples, self._clock())
        self._listener(event)

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
        under_way = self._speaking.sending
        if under_way is not None:
            raise Refused(
                "conversation_already_has_active_response",
                f"{under_way.response_id} is still in progress: wait for its response.done or cancel it",
            )
        self._wanted = settings
        self._apply(AnswerWanted())

    def cancel(self, response_id: str | None = None) -> None:
        """Stop the answer under way.

        Raises:
            Refused: none is, or another one.
        """
        under_way = self._speaking.sending
        if under_way is None or response_id not in (None, under_way.response_id):
            raise Refused("response_cancel_not_active", "there is no such response in progress to cancel")
        self._apply(AnswerUnwanted())

    def truncate(self, item_id: str, heard_ms: float) -> None:
        """The user heard only the first `heard_ms` of this answer. Raises UnknownItem, ValueError."""
        self.history.truncate(item_id, heard_ms)
        if self.state.assistant is Assistant.ANSWERING and self._speaking.only_plays(item_id):
            self._echo.cut(self._clock())
            self._apply(PlayedOut())  # the client plays no more of it

    def play_aside(self, samples: Samples) -> None:
        """The client was sent sound that is no answer, [T] float32 at 24 kHz: it may come back as an echo all the same.
        None at all: the client fell silent."""
        if len(samples):
            self._echo.play(samples, self._clock())
        else:
            self._echo.cut(self._clock())

    async def close(self) -> None:
        """End the conversation: whatever is under way is dropped."""
        self._speaking.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _thinking(self) -> bool:
        """Whether the brain works on an answer that somebody may still hear."""
        return self.state.assistant in (Assistant.ANSWERING, Assistant.HELD)

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
            case Guess():
                self._guess(action)
            case DropGuess():
                self._drop_guess(action)
            case EndTurn():
                self._end_turn(action)
            case DropTurn():
                self._utterance = None
            case StartAnswer():
                self._start_answer()
            case HoldAnswer():
                self._echo.cut(self._clock())
                self._speaking.hold()
            case ResumeAnswer():
                self._speaking.resume(self.settings)
            case StopAnswer():
                self._echo.cut(self._clock())
                self._speaking.stop(action.reason)

    def _begin_turn(self, action: BeginTurn) -> None:
        prefix = action.at_ms - self.settings.rules.timing.prefix_ms
        self._utterance_ms = max(self._input.start_ms, prefix, min(self._echo.until_ms, action.at_ms))
        self._utterance = Utterance(self._stages.recognizer)
        self._utterance.add(self._input.since(self._utterance_ms))
        self._read_ahead = self._guesses = 0
        self._partials.begin()
        self._pauses.begin()
        self._forget_guess()
        self._item_id = new_id("item")
        self._emit(events.SpeechStarted(self._item_id, self._utterance_ms))
        if not self._thinking:
            self._brain.prepare(self.history.messages(self.settings.instructions))

    # Work on a guess.

    def _guess(self, action: Guess) -> None:
        """The user may have finished: transcribe, think and speak, behind a closed gate."""
        utterance, now = self._utterance, self._clock()
        assert utterance is not None
        self._guesses += 1
        timeline = Timeline(new_id("turn"), guesses=self._guesses)
        timeline.stamp("speech_end", min(now, self._input.time_of(action.at_ms)))
        timeline.stamp("soft_end", now)
        transcript = self._spawn(
            self._transcribe(utterance, action.at_ms - self._utterance_ms, self.settings.rules.timing.tail_ms)
        )
        sound = asyncio.get_running_loop().run_in_executor(
            self._stages.judging, self._stages.ending.ends, self._input.since(self._utterance_ms)
        )
        made = Speculation(action.revision, action.at_ms, timeline, self.settings, transcript)
        self._speculation = made
        made.work = self._spawn(self._speculate(made, sound))

    async def _speculate(self, made: Speculation, sound: asyncio.Future[float | None]) -> None:
        try:
            text = await made.transcript
        except Exception:
            return  # said when the turn ends, if it does
        timing = made.settings.rules.timing
        made.timeline.stamp("transcript_final", self._clock())
        aside = self._is_aside(text)
        self._think_ahead(made, text)
        words = None
        if text and not made.settings.rules.by_silence:
            if made.answer is not None:
                await made.answer.asked.wait()  # both then share a pass
            words = await self._brain.ends(text)
        verdict = endpoint.judge(text, timing, words=words, sound=await sound, pauses=self._pauses, asked=self._asked())
        made.timeline.over = verdict.over
        wait, answering = timing.soft_end_ms if aside else verdict.wait_ms, made.answer is not None
        if made.settings.rules.by_silence:
            wait, answering = timing.end_silence_ms, False
        self._apply(Judged(made.revision, wait, aside, answering))
        if self._speculation is made:  # an answer that was held back may have been given up by now
            self._think_ahead(made, text)

    def _asked(self) -> bool:
        """Whether the newest words before this turn are a question of ours."""
        newest = self.history.messages(self.settings.instructions)[-1]
        return newest.role == "assistant" and newest.content.endswith("?")

    def _think_ahead(self, made: Speculation, text: str) -> None:
        if not text or made.answer is not None or self._thinking or not made.settings.rules.create_response:
            return
        made.assumed = [*self.history.messages(made.settings.instructions), Message("user", text)]
        made.answer = self._speaking.new(made.settings, made.timeline)
        made.answer.think(self._brain, made.assumed, made.settings.deadline)
        self._spawn(self._tell_ready(made, made.answer))

    async def _tell_ready(self, made: Speculation, answer: Answer) -> None:
        await answer.ready.wait()
        if self._speculation is made:
            self._apply(Ready(made.revision))

    def _is_aside(self, text: str) -> bool:
        """Whether what was said over the answer wants no answer of its own. A cough has no words at all."""
        if self.state.assistant is not Assistant.HELD:
            return False
        return not text or (
            endpoint.is_aside(text) and self._speaking.unheard_ms >= self.settings.rules.timing.aside_left_ms
        )

    def _drop_guess(self, action: DropGuess) -> None:
        if self._speculation is not None:
            if action.resumed_ms is not None:
                self._pauses.note(action.resumed_ms - self._speculation.at_ms)
            self._speculation.transcript.cancel()
        self._forget_guess()

    def _forget_guess(self) -> None:
        made, self._speculation = self._speculation, None
        if made is not None:
            made.drop()
            if made.answer is not None:
                self._brain.cancel()

    # The end of a turn.

    def _end_turn(self, action: EndTurn) -> None:
        utterance, start_ms = self._utterance, self._utterance_ms
        if utterance is None:  # handed over without detected speech: all the audio that is held
            start_ms = self._input.start_ms
            utterance = Utterance(self._stages.recognizer)
            utterance.add(self._input.since(start_ms))
            self._item_id = new_id("item")
        made, now = self._speculation, self._clock()
        if made is not None:
            self._timeline = made.timeline
            self._timeline.waited_ms = self.state.heard_ms - action.at_ms
        else:
            self._timeline = Timeline(new_id("turn"), guesses=self._guesses)
            self._timeline.stamp("speech_end", min(now, self._input.time_of(action.at_ms)))
            self._timeline.stamp("soft_end", now)
        self._timeline.stamp("end_decided", now)
        item = Item(self._item_id, "user")
        previous = self.history.add(item)
        if not action.by_hand:
            self._emit(events.SpeechStopped(item.id, action.at_ms))
        self._emit(events.InputCommitted(item, previous))
        end_ms = action.at_ms if action.by_hand else action.at_ms + self.settings.rules.timing.tail_ms
        if made is not None:
            transcript = made.transcript
        else:
            transcript = self._spawn(self._transcribe(utterance, end_ms - start_ms))
        self._utterance = None
        self._input.forget_before(end_ms)
        seconds = (end_ms - start_ms) / 1000
        task = self._spawn(self._understand(action, transcript, seconds, item, self._timeline))
        self._understanding.add(task)
        task.add_done_callback(self._understanding.discard)

    async def _transcribe(self, utterance: Utterance, voiced_ms: int, tail_ms: int = 0) -> str:
        """What was said in the first `voiced_ms` of a turn and the little sound behind it."""
        voiced = voiced_ms * HEARING_RATE // 1000
        until = min(voiced + tail_ms * HEARING_RATE // 1000, utterance.samples)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._stages.hearing, utterance.final, until, min(voiced, until), utterance.newest
        )

    async def _understand(
        self, ended: EndTurn, transcript: asyncio.Task[str], seconds: float, item: Item, timeline: Timeline
    ) -> None:
        try:
            item.text = await transcript
        except Exception as error:
            _log.exception("a turn could not be transcribed")
            self._emit(events.TranscriptionFailed(item.id, f"the turn could not be transcribed: {error}"))
            self._understood(ended, said=False)
            return
        item.complete = True
        timeline.stamp("transcript_final", self._clock())
        self._emit(events.FinalTranscript(item.id, item.text, seconds))
        self._understood(ended, said=bool(item.text), aside=self._is_aside(item.text))

    def _understood(self, ended: EndTurn, *, said: bool, aside: bool = False) -> None:
        if not ended.by_hand:
            self._apply(Understood(ended.turn, said, aside))
        if self.state.user is User.QUIET:
            self._forget_guess()  # it was not what is answered, if anything is

    def _consider_partial(self) -> None:
        utterance = self._utterance
        if utterance is None:
            return
        busy = self._partial is not None and not self._partial.done()
        spoken_ms = utterance.samples * 1000 // HEARING_RATE
        wish = self._partials.wish(spoken_ms, self.state, self.settings.rules.timing, busy=busy)
        if wish is not None:
            self._partial = self._spawn(self._make_partial(utterance, utterance.ask(), ahead=wish == "ahead"))

    async def _make_partial(self, utterance: Utterance, number: int, *, ahead: bool) -> None:
        item_id, began, loop = self._item_id, self._clock(), asyncio.get_running_loop()
        heard = await loop.run_in_executor(self._stages.hearing, partial(utterance.partial, number, ahead=ahead))
        if heard is None or utterance is not self._utterance:
            return
        if not ahead:
            self._partials.took_ms = (self._clock() - began) * 1000
        self._emit(events.PartialTranscript(item_id, heard.stable, heard.unstable))
        stable = len(heard.stable.split())
        if stable >= self._read_ahead + _READ_AHEAD_WORDS and not self._thinking and not self.state.guessing:
            self._read_ahead = stable
            said = Message("user", heard.stable)
            self._brain.prepare([*self.history.messages(self.settings.instructions), said])

    # Answers.

    def _start_answer(self) -> None:
        settings, self._wanted = self._wanted or self.settings, None
        made, messages = self._speculation, self.history.messages(settings.instructions)
        if made is not None and made.answer is not None and (made.settings, made.assumed) == (settings, messages):
            self._speculation, answer = None, made.answer
            answer.timeline.guess_kept = True
        else:
            self._forget_guess()
            answer = self._speaking.new(settings, self._timeline)
        self._timeline = Timeline(new_id("turn"))  # an answer that no turn asked for has a timeline of its own
        self._speaking.start(answer, settings, self._words_known)

    async def _words_known(self) -> None:
        """All that the user said by now has been transcribed."""
        if self._understanding:
            await asyncio.wait(set(self._understanding))  # unlike gather, this does not cancel them with us

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

"""One conversation: drives the turn machine with the real models. Everything runs on one event loop but recognition and
synthesis. The turn machine decides; a session feeds it events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from agent.background_tasks import BackgroundTasks
from agent.capture.commands import is_filler
from agent.capture.form_runner import FormRunner
from agent.language_model import LanguageModel
from agent.planner import Planner
from agent.tool_runs import ToolRuns
from agent.tools.conversation_tools import ConversationTools
from agent.words.names import names_in
from chat.types import Message
from voice import endpointing, events, turn_actions, turn_machine
from voice.asr import Utterance
from voice.audio.codec import RECOGNITION_RATE, TELEPHONE_RATE, Samples
from voice.audio.echo import EchoDetector
from voice.audio.input_buffer import InputBuffer
from voice.audio.resampling import InputResampler, resample
from voice.audio.telephone_band import TelephoneBandRestorer
from voice.audio.vad import SpeechDetector
from voice.context import SessionContext
from voice.continued_turns import LONGEST_BREAK_MS
from voice.endpoint_evidence import EndpointEvidence
from voice.history import History, Item, new_id, silent_turn
from voice.interim_transcripts import InterimTranscriber
from voice.out_of_band import OutOfBandResponses
from voice.playback import Playback, SessionSettings
from voice.response import Response
from voice.response_request import PendingRequests, RequestError, ResponseRequest
from voice.speculation import Speculation
from voice.speech_models import SpeechModels
from voice.turn_actions import Action
from voice.turn_machine import Assistant, Event, TurnState, User, step
from voice.turn_metrics import TurnMetrics
from voice.turn_transcripts import UNKNOWN_WORDS, TurnTranscripts
from voice.unprompted import UnpromptedResponses

if TYPE_CHECKING:
    from agent.documents.evidence import DocumentEvidence
    from agent.remote.remote_llm import RemoteLLM

_NAMED_MESSAGES = 40
"""The newest ones, besides the instructions, whose names the user may say."""

_MIN_PREFILL_WORDS = 3
"""New words of an interim transcript that are worth a forward pass of their own. Those left for the end of the turn
delay the response: on a CPU each is a row more in the forward pass that yields its first token."""


class VoiceSession:
    """One conversation.

    Args:
        language_model: this conversation's language model.
        speech_models: the shared models.
        on_event: called with every session event, on the event loop.
        clock: seconds, monotonic.
        tools: the functions that run here; the settings declare which of them responses may call.
        documents, remote: what responses are based on, and the bigger model; None if there is none.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        speech_models: SpeechModels,
        on_event: Callable[[events.SessionEvent], None],
        settings: SessionSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        history: History | None = None,
        tools: ConversationTools | None = None,
        documents: DocumentEvidence | None = None,
        remote: RemoteLLM | None = None,
    ) -> None:
        self.settings = settings or SessionSettings()
        self.history = history or History()
        self._speech_models = speech_models
        self.state, self._on_event, self._clock = TurnState(), on_event, clock
        self._resampler, self._input, self._band_restorer = InputResampler(), InputBuffer(), TelephoneBandRestorer()
        self._utterance: Utterance | None = None
        self._echo, self._utterance_start_ms, self._item = EchoDetector(), 0, Item("", "user")
        self._tasks, self._requests = BackgroundTasks(), PendingRequests()
        context = SessionContext(speech_models, self._emit, self._tasks.spawn, clock)
        self._interim = InterimTranscriber(context, self._on_interim_transcript, lambda: self._utterance)
        self._transcripts = TurnTranscripts(context)
        self.check_capacity = self._transcripts.check_capacity
        self.wait_for_capacity = self._transcripts.wait_for_capacity
        self._speculation: Speculation | None = None
        self._num_speculations = self._prefilled_words = 0
        self._unprompted = UnpromptedResponses(self._respond_unprompted)
        self.announce = self._unprompted.announce
        self._forms = FormRunner(lambda: self.history.messages(""), self._unprompted.add_result)
        self._endpoint_evidence = EndpointEvidence(language_model, speech_models, self._forms)
        runs = None if tools is None else ToolRuns(tools, self._tasks.spawn, self._unprompted.add_result, self._forms)
        self._planner = Planner(language_model, runs, documents, remote)
        self._playback = Playback(context, self._planner, self.history, self._apply)
        self.heard_ms = self._playback.heard_ms
        self._out_of_band = OutOfBandResponses(context, self._planner)
        self._away = False  # the connection has dropped: nobody hears what would be said
        self._metrics = TurnMetrics(new_id("turn"))
        self._prepare()

    @cached_property
    def _detector(self) -> SpeechDetector:
        return SpeechDetector(self._speech_models.silero)

    # Client requests.

    def configure(self, settings: SessionSettings) -> None:
        """Change the settings, from the next turn or response on."""
        if settings.detect_turns != self.settings.detect_turns:
            self._apply(turn_machine.Cleared())
        self._planner.limit_context(settings.truncation)
        changed = (settings.instructions, settings.tools) != (self.settings.instructions, self.settings.tools)
        self.settings = settings
        if changed and not self._responding:
            self._discard_speculation()
            self._prepare()

    def append(self, samples: Samples, rate: int) -> None:
        """Take audio from the microphone as it arrives.

        Args:
            samples: [T] float32.
            rate: Hz, one of `voice.audio.codec.INPUT_RATES`.

        Raises:
            RequestError: more audio than a turn may hold has arrived without a commit.
        """
        audio = self._resampler.push(samples, rate)
        if not self.settings.detect_turns and self._input.buffered_ms > self.settings.rules.timing.max_turn_ms:
            raise RequestError(
                "input_audio_buffer_full",
                f"{self._input.buffered_ms / 1000:.0f} s of audio wait to be committed, and a turn holds at most "
                f"{self.settings.rules.timing.max_turn_ms / 1000:.0f} s: commit or clear the buffer",
            )
        self._input.add(audio, self._clock())
        if self._utterance is not None:
            self._utterance.add(audio)
        # The detector gets all audio, even without turn detection, so that its windows stay on the audio clock.
        frames = self._detector.push(self._band_restorer.push(audio) if rate == TELEPHONE_RATE else audio)
        if not self.settings.detect_turns:
            return
        for frame in frames:
            self._apply(self._echo.suppress_echo(frame, self._input, self.settings.rules.threshold))
        if self.state.user is User.QUIET:
            self._input.keep_last(self.settings.rules.timing.prefix_ms + 1000)
        self._interim.update(self._item.id, self.state, self.settings.rules.timing)

    def _emit(self, event: events.SessionEvent) -> None:
        if isinstance(event, events.ResponseAudio):
            self._echo.add_playback(event.samples, self._clock())
        self._on_event(event)
        if isinstance(event, events.ResponseDone):
            self._unprompted.sent(event)

    def commit(self) -> None:
        """End the user's turn (push-to-talk). Raises RequestError if there is too little audio, or if too many earlier
        turns still wait for transcription."""
        self.check_capacity()
        min_ms = self.settings.rules.timing.min_commit_ms
        audio_ms = self._input.end_ms - self._utterance_start_ms if self._utterance else self._input.buffered_ms
        if audio_ms < min_ms:
            message = (
                f"the input audio buffer holds {audio_ms} ms of audio, at least {min_ms} ms are needed: append more"
            )
            raise RequestError("input_audio_buffer_commit_empty", message)
        self._apply(turn_machine.Committed(self._input.end_ms))

    def clear(self) -> None:
        """Discard the audio that was not committed."""
        self._apply(turn_machine.Cleared())
        self._input.clear()

    def interrupt(self) -> None:
        """Fall silent, and forget what was not heard or not committed: the client has gone."""
        self._away, self._requests = True, PendingRequests()
        self.clear()
        self._apply(turn_machine.ResponseCancelled())
        self._unprompted.drop_announcements()

    def resume(self) -> None:
        """The client is back: say what waits to be said."""
        self._away = False
        self._respond_unprompted()

    def respond(self, request: ResponseRequest | None = None) -> None:
        """Respond to the conversation as it stands. Raises RequestError if a response is in progress."""
        if request is not None and not request.in_conversation:
            self._out_of_band.start(request, partial(self._complete_messages, request))
            return
        active = self._playback.active
        if active is not None or self._requests.waiting is not None:
            waiting = active.response_id if active is not None else "the response that was requested before"
            raise RequestError(
                "conversation_already_has_active_response",
                f"{waiting} is still in progress: wait for its response.done or cancel it",
            )
        self._requests.waiting = request
        self._apply(turn_machine.ResponseRequested())

    def open_with(self, tool: str) -> None:
        """Begin the conversation with a call of one of the tools, which takes no arguments."""
        if self._planner.runs is not None:
            self._planner.runs.open_with(tool)

    def cancel(self, response_id: str | None = None) -> None:
        """Stop the active response, or the out-of-band response with this id.

        Raises:
            RequestError: no response is active, or another one.
        """
        if response_id is not None and self._out_of_band.cancel(response_id):
            return
        active = self._playback.active
        waits = self._requests.any or self.state.assistant is Assistant.PAUSED
        if response_id not in (None, active and active.response_id) or not (active or waits):
            raise RequestError("response_cancel_not_active", "Cancellation failed: no such response is in progress")
        self._requests.drop()
        self._apply(turn_machine.ResponseCancelled())

    def truncate(self, item_id: str, heard_ms: float) -> None:
        """The user heard only the first `heard_ms` of this response. Raises UnknownItem, ValueError."""
        self.history.truncate(item_id, heard_ms)
        if self.state.assistant is Assistant.RESPONDING and self._playback.finished_sending(item_id):
            self._echo.stop_playback(self._clock())
            self._playback.end()  # the client plays no more of it
            self._apply(turn_machine.PlaybackDone())

    def add_recording(self, item: Item, samples: Samples, rate: int) -> None:
        """Transcribe a message of the user that is a recording, [T] float32 at `rate` Hz. Responses wait for it."""
        utterance = self._new_utterance()
        utterance.add(resample(samples, rate, RECOGNITION_RATE))
        self._transcripts.add_recording(item, utterance, word_details=self.settings.word_details)

    def announcement_sent(self, samples: Samples) -> None:
        """The client was sent audio outside of any response, [T] float32 at 24 kHz, which may come back as an echo.
        Empty if the client stopped playing it."""
        if len(samples):
            self._echo.add_playback(samples, self._clock())
        else:
            self._echo.stop_playback(self._clock())

    async def close(self) -> None:
        """End the conversation and cancel everything in progress."""
        self._unprompted.close(self.heard_ms())
        self._playback.close()
        self._out_of_band.close()
        await self._tasks.close()

    def _prepare(self, saying: str = "") -> None:
        """Let the language model read ahead: the conversation, and what the user has said of the next turn."""
        if self.settings.read_ahead:
            self._planner.prepare(self.settings.ask(self._messages(self.settings, saying)))

    def _messages(self, settings: SessionSettings, saying: str) -> list[Message]:
        """The conversation, and what the user has said of the next turn."""
        return self.history.messages(settings.instructions, [replace(self._item, text=saying)] if saying else [])

    @property
    def _responding(self) -> bool:
        """Whether the language model works on a response that the user may still hear."""
        return self.state.assistant in (Assistant.RESPONDING, Assistant.PAUSED)

    # The turn machine's actions.

    def _apply(self, event: Event) -> None:
        phase_before = self.state.phase
        rules = replace(self.settings.rules, create_response=False) if self._away else self.settings.rules
        self.state, actions = step(self.state, event, rules)
        for action in actions:
            self._carry_out(action)
        if self.state.phase != phase_before:
            self._emit(events.PhaseChanged(self.state.phase))
        self._respond_unprompted()

    def _respond_unprompted(self) -> None:
        """Say what waits for both sides to be silent: what was requested, or what nobody has asked for."""
        if not self.state.silent or self._away:
            return
        if self._requests.waiting is None:
            self._forms.settle()
            self._requests.waiting = self._unprompted.next_request(self.settings)
        if self._requests.waiting is not None:
            self._apply(turn_machine.ResponseRequested())

    def _carry_out(self, action: Action) -> None:
        match action:
            case turn_actions.BeginTurn():
                self._begin_turn(action)
            case turn_actions.StartSpeculation():
                self._start_speculation(action)
            case turn_actions.CancelSpeculation():
                self._cancel_speculation(action)
            case turn_actions.EndTurn():
                self._end_turn(action)
            case turn_actions.DropTurn():
                self._utterance = None
            case turn_actions.CommitSilence():
                self._commit_silence(action)
            case turn_actions.StartResponse():
                self._start_response()
            case turn_actions.PauseResponse():
                self._echo.stop_playback(self._clock())
                self._playback.pause()
            case turn_actions.ResumeResponse():
                self._playback.resume(self.settings)
            case turn_actions.StopResponse():
                self._echo.stop_playback(self._clock())
                self._playback.stop(action.reason)
                if action.reason == "turn_detected" and self.state.unanswered and not self.state.sent_some:
                    self._requests.repeat()

    def _begin_turn(self, action: turn_actions.BeginTurn) -> None:
        prefix_start_ms = action.at_ms - self.settings.rules.timing.prefix_ms
        echo_end_ms = min(self._echo.last_echo_end_ms, action.at_ms)
        self._utterance_start_ms = max(self._input.start_ms, prefix_start_ms, echo_end_ms)
        self._utterance = self._new_utterance()
        self._utterance.add(self._input.since(self._utterance_start_ms))
        self._prefilled_words = self._num_speculations = 0
        self._interim.begin_turn()
        paused = self.state.assistant is Assistant.PAUSED
        after_ms = self._endpoint_evidence.begin_turn(action.at_ms, over_response=paused)
        self._discard_speculation()
        self._item = Item(new_id("item"), "user", goes_on=after_ms <= LONGEST_BREAK_MS)
        self._emit(events.SpeechStarted(self._item.id, self._utterance_start_ms))
        if not self._responding:
            self._prepare()

    # Speculation.

    def _start_speculation(self, action: turn_actions.StartSpeculation) -> None:
        """The user may have finished: transcribe the turn and start a response, whose output is buffered."""
        utterance = self._utterance
        assert utterance is not None
        self._num_speculations += 1
        metrics = self._turn_metrics(action.at_ms)
        voiced_ms = action.at_ms - self._utterance_start_ms
        transcript = self._transcripts.start(utterance, voiced_ms, self.settings.rules.timing.tail_ms)
        audio_probability = self._endpoint_evidence.judge_audio(self._input.since(self._utterance_start_ms))
        speculation = Speculation(action.revision, action.at_ms, metrics, self.settings, transcript)
        self._speculation = speculation
        speculation.work = self._tasks.spawn(self._speculate(speculation, audio_probability))

    async def _speculate(self, speculation: Speculation, audio_probability: asyncio.Future[float | None]) -> None:
        try:
            text = await asyncio.shield(speculation.transcript)  # the end of the turn waits for it, too
        except Exception:
            return  # reported when the turn ends, if it does
        rules = speculation.settings.rules
        speculation.metrics.stamp("transcript_final", self._clock())
        backchannel = self._is_backchannel(text)
        self._start_speculative_response(speculation, text)
        prompt, noisy = self._messages(self.settings, text), self._detector.is_noisy
        prediction = await self._endpoint_evidence.predict(prompt, text, speculation, audio_probability, noisy=noisy)
        speculation.metrics.end_probability = prediction.end_probability
        wait_ms = rules.timing.soft_end_ms if backchannel else prediction.wait_ms
        response_pending = speculation.response is not None
        if rules.silence_only:
            wait_ms, response_pending = rules.timing.end_silence_ms, False
        self._apply(turn_machine.EndpointDecision(speculation.revision, wait_ms, backchannel, response_pending))
        if self._speculation is speculation:  # the decision may have stopped a paused response
            self._start_speculative_response(speculation, text)

    def _start_speculative_response(self, speculation: Speculation, text: str) -> None:
        settings = speculation.settings
        if not text or speculation.response is not None or self._responding or not settings.rules.create_response:
            return
        speculation.messages = self._messages(settings, text)
        speculation.response = self._playback.create(settings, speculation.metrics)
        speculation.response.generate(self._planner, speculation.messages, settings.deadline)
        self._tasks.spawn(self._report_ready(speculation, speculation.response))

    async def _report_ready(self, speculation: Speculation, response: Response) -> None:
        await response.ready.wait()
        if self._speculation is speculation:
            self._apply(turn_machine.ResponseReady(speculation.revision))

    def _is_backchannel(self, text: str) -> bool:
        """Whether speech over a response needs no response of its own. A cough has no words at all."""
        if self.state.assistant is not Assistant.PAUSED:
            return False
        if self._forms.active.is_set():
            return not text or is_filler(text)  # "oh" is a zero then, and "yes" an answer
        min_remaining_ms = self.settings.rules.timing.backchannel_remaining_ms
        return not text or (endpointing.is_backchannel(text) and self._playback.unheard_ms >= min_remaining_ms)

    def _cancel_speculation(self, action: turn_actions.CancelSpeculation) -> None:
        if self._speculation is not None:
            if action.resumed_ms is not None:
                self._endpoint_evidence.pauses.add(action.resumed_ms - self._speculation.speech_end_ms)
            self._speculation.transcript.cancel()
        self._discard_speculation()

    def _discard_speculation(self) -> None:
        speculation, self._speculation = self._speculation, None
        if speculation is not None:
            speculation.cancel()
            if speculation.response is not None:
                self._planner.cancel()

    def _new_utterance(self) -> Utterance:
        instructions, *said = self.history.messages(self.settings.instructions)
        texts = [message.content for message in (instructions, *said[-_NAMED_MESSAGES:])]
        others = self._planner.names()
        return self._speech_models.new_utterance(
            self.settings.language, lambda: [*names_in(texts), *others], captions=self.settings.captions
        )

    # The end of a turn.

    def _end_turn(self, action: turn_actions.EndTurn) -> None:
        utterance, start_ms = self._utterance, self._utterance_start_ms
        if utterance is None:  # committed without detected speech: the turn is all the buffered audio
            start_ms = self._input.start_ms
            utterance = self._new_utterance()
            utterance.add(self._input.since(start_ms))
            self._item = Item(new_id("item"), "user")
        speculation = None if action.manual else self._speculation
        self._metrics = speculation.metrics if speculation is not None else self._turn_metrics(action.at_ms)
        if speculation is not None:
            self._metrics.waited_ms = self.state.received_ms - action.at_ms
        self._metrics.stamp("end_decided", self._clock())
        self._metrics.spoken_over_after_ms = self._endpoint_evidence.end_turn(action.at_ms)
        item, previous = self._item, self.history.add(self._item)
        if not action.manual:
            self._emit(events.SpeechStopped(item.id, action.at_ms))
        self._emit(events.InputCommitted(item, previous))
        end_ms = action.at_ms if action.manual else action.at_ms + self.settings.rules.timing.tail_ms
        transcript = speculation.transcript if speculation else self._transcripts.start(utterance, end_ms - start_ms)
        self._utterance = None
        self._input.discard_before(end_ms)
        seconds, on_text = (end_ms - start_ms) / 1000, partial(self._on_transcript, action)
        details = utterance if self.settings.word_details else None
        self._transcripts.finish(item, transcript, seconds, self._metrics, on_text, details)

    def _commit_silence(self, action: turn_actions.CommitSilence) -> None:
        item = silent_turn((action.end_ms - action.start_ms) / 1000)
        self._emit(events.IdleTimeout(item.id, action.start_ms, action.end_ms))
        self._emit(events.InputCommitted(item, self.history.add(item)))

    def _turn_metrics(self, speech_end_ms: int) -> TurnMetrics:
        metrics, now = TurnMetrics(new_id("turn"), speculations=self._num_speculations), self._clock()
        metrics.stamp("speech_end", min(now, self._input.time_of(speech_end_ms)))
        metrics.stamp("soft_end", now)
        return metrics

    def _on_transcript(self, end: turn_actions.EndTurn, text: str) -> None:
        self._requests.hear(text)
        if not end.manual:
            backchannel = bool(text) and text != UNKNOWN_WORDS and self._is_backchannel(text)
            self._apply(turn_machine.TranscriptReady(end.turn, bool(text), backchannel))
        if self.state.user is User.QUIET:
            self._discard_speculation()  # if a response has started, it is not this one

    def _on_interim_transcript(self, text: str) -> None:
        num_words = len(text.split())
        worthwhile = num_words >= self._prefilled_words + _MIN_PREFILL_WORDS
        if worthwhile and not self._responding and not self.state.speculating:
            self._prefilled_words = num_words
            self._prepare(text)

    # Responses.

    def _start_response(self) -> None:
        request = self._requests.take(self.settings)
        settings, messages = request.settings, request.messages(self.history)
        speculation, prompt = self._speculation, (settings, messages)
        response = None
        if speculation is not None and (speculation.settings, speculation.messages) == prompt and not request.text:
            response = speculation.response
        if response is not None:
            self._speculation = None
            response.metrics.speculation_used = True
            self._planner.commit(messages)
        else:
            self._discard_speculation()
            response = self._playback.create(settings, self._metrics, request.text)
        self._metrics = TurnMetrics(new_id("turn"))  # a response that no turn caused has metrics of its own
        self._unprompted.started(request, response)
        self._playback.start(response, settings, partial(self._complete_messages, request), request.tag)

    async def _complete_messages(self, request: ResponseRequest, response: Response) -> list[Message]:
        """The prompt of a response, once every turn that has ended is transcribed and its tools are known."""
        await self._transcripts.wait(*request.needs_transcripts)
        response.metrics.stamp("transcript_final", self._clock())  # of typed text, it is there at once
        if request.final_settings is not None:
            response.options = await request.final_settings()
        messages = request.messages(self.history)
        if request.to_conversation and not response.done:
            self._planner.commit(messages)
        return messages

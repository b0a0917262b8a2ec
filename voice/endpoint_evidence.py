"""Collects, for one conversation, the evidence on whether a pause ends the user's turn. `endpointing` weighs it."""

from __future__ import annotations

import asyncio
import logging

from agent.capture.form import Pause
from agent.capture.form_runner import FormRunner
from agent.language_model import LanguageModel
from agent.matched_text import for_patterns
from chat.types import Message
from voice import endpointing
from voice.audio.codec import Samples
from voice.endpointing import EndpointPrediction, PauseHistory
from voice.speculation import Speculation
from voice.speech_models import SpeechModels
from voice.timing import Timing

_log = logging.getLogger("rejoinder.voice")


class EndpointEvidence:
    """The endpointer of one conversation.

    Args:
        forms: knows when the user has to say more.

    Attributes:
        pauses: how the user pauses within a turn.
    """

    def __init__(self, language_model: LanguageModel, speech_models: SpeechModels, forms: FormRunner) -> None:
        self.pauses = PauseHistory()
        self._language_model, self._speech_models, self._forms = language_model, speech_models, forms
        self._turn_end_ms = 0
        self._spoken_over_after_ms: int | None = None

    def begin_turn(self, at_ms: int, *, over_response: bool) -> int:
        """A turn of the user begins, perhaps over a response. Times are on the audio clock. Returns how long after the
        end of the turn before it, in ms."""
        self.pauses.begin_turn()
        after_ms = at_ms - self._turn_end_ms
        self._spoken_over_after_ms = after_ms if over_response else None
        return after_ms

    def end_turn(self, at_ms: int) -> int | None:
        """A turn has ended. Returns, if it began over a response, how long after the end of the turn before it, in
        ms."""
        after_ms, self._spoken_over_after_ms, self._turn_end_ms = self._spoken_over_after_ms, None, at_ms
        return after_ms

    def judge_audio(self, audio: Samples) -> asyncio.Future[float | None]:
        """The probability, by its sound, that a turn is over. `audio`: [T] at 16 kHz."""
        models = self._speech_models
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(models.turn_detection_executor, models.audio_turn_completion, audio)

    async def predict(
        self,
        prompt: list[Message],
        said: str,
        speculation: Speculation,
        audio_probability: asyncio.Future[float | None],
        *,
        noisy: bool,
    ) -> EndpointPrediction:
        """Predict whether a turn is over.

        Args:
            prompt: the conversation; its last message ends with what the user has said in this turn.
            said: that; empty if it has no words.
            noisy: there is noise around the user.
        """
        rules, text_probability = speculation.settings.rules, None
        pause = self._forms.pause_after(prompt) if said else None
        if pause is not None:
            return _dictation(pause, rules.timing)
        if said and not rules.silence_only and speculation.settings.read_ahead:
            if speculation.response is not None:
                await speculation.response.requested.wait()  # so that both share a forward pass
            text_probability = await self._judge_words(prompt[-1].content)
        before = prompt[-2] if len(prompt) > 1 else None
        return endpointing.predict_endpoint(
            for_patterns(said, end=True),
            rules.timing,
            text_probability=text_probability,
            audio_probability=await audio_probability,
            pauses=self.pauses,
            answers_question=before is not None and before.role == "assistant" and before.content.endswith("?"),
            noisy=noisy,
        )

    async def _judge_words(self, text: str) -> float | None:
        """The probability, by the language model's judgement of its words, that a turn is over. If the language model
        has none, or fails, the form of the words decides."""
        try:
            return await self._language_model.turn_completion(text)
        except Exception:
            _log.exception("the turn-completion classifier failed; the form of the words decides")
            return None


def _dictation(pause: Pause, timing: Timing) -> EndpointPrediction:
    """What follows from how much of a form's field is known."""
    match pause:
        case Pause.SHORT:
            return EndpointPrediction(0.95, timing.shortest_wait_ms)
        case Pause.DICTATION:
            return EndpointPrediction(0.5, timing.dictation_wait_ms)
        case Pause.PATIENT:
            return EndpointPrediction(0.05, timing.patient_wait_ms)

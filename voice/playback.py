"""The assistant's side of one conversation: the current response, and when its audio has been played."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from agent.instructions import INSTRUCTIONS
from agent.planner import Planner
from chat.types import Message, Truncation
from voice import events
from voice.clause_pace import ClausePace
from voice.context import SessionContext
from voice.history import History, new_id
from voice.manner import SpeakingManner
from voice.response import Response
from voice.response_options import ResponseOptions
from voice.turn_machine import Event, FirstSent, PlaybackDone, TurnRules
from voice.turn_metrics import TurnMetrics


@dataclass(frozen=True)
class SessionSettings(ResponseOptions):
    """Settings that a client may choose for its conversation: the options of its responses, and how it proceeds.

    Attributes:
        language: of the user, as a two-letter code.
        word_details: whether final transcripts come with the times and probabilities of their words.
        captions: whether interim transcripts do, too.
        detect_turns: whether silence ends a turn; otherwise the client commits turns.
        read_ahead: whether the language model reads along; it need not where nobody will request a response.
        truncation: what happens when the conversation outgrows the language model's context.
    """

    instructions: str = INSTRUCTIONS
    rules: TurnRules = field(default_factory=TurnRules)
    language: str = "en"
    word_details: bool = False
    captions: bool = False
    detect_turns: bool = True
    read_ahead: bool = True
    truncation: Truncation = field(default_factory=Truncation)

    @property
    def deadline(self) -> float | None:
        """When a response that starts now needs its first clause, on `time.monotonic`."""
        return time.monotonic() + self.rules.timing.first_clause_ms / 1000 if self.speak else None


Prompt = Callable[[Response], Awaitable[Sequence[Message]]]
"""Returns the conversation that a response answers, once it is known. Raises RuntimeError if it never will be."""


async def generate_when_known(response: Response, planner: Planner, prompt: Prompt, settings: SessionSettings) -> None:
    """Start to generate a response as soon as its prompt is known, unless it was stopped meanwhile."""
    try:
        messages = await prompt(response)
    except RuntimeError as error:
        response.fail(str(error))
        return
    if not response.done:
        response.generate(planner, messages, settings.deadline)


class Playback:
    """Starts, pauses, resumes and stops responses, one at a time.

    Args:
        on_event: called with events for the turn machine.
    """

    def __init__(
        self, context: SessionContext, planner: Planner, history: History, on_event: Callable[[Event], None]
    ) -> None:
        self._context, self._planner, self._history, self._on_event = context, planner, history, on_event
        self._response: Response | None = None
        self._report_start: Callable[[], str] | None = None
        """Of that response, which is announced in the same way when it resumes."""
        self._playing: list[Response] = []
        self._heard = False
        """Whether the paused response had been heard to its end: nothing of it is left to resume."""
        self._pace = ClausePace()
        self._done_timer: asyncio.TimerHandle | None = None

    @property
    def active(self) -> Response | None:
        """The response that has more to send; one that only plays is not active."""
        return self._response if self._response is not None and not self._response.done else None

    def finished_sending(self, item_id: str) -> bool:
        """Whether this item is the newest response and all of it was sent."""
        return self._response is not None and self._response.done and self._response.item.id == item_id

    @property
    def unheard_ms(self) -> float:
        """How much of a paused response the user has not heard."""
        return self._response.unheard_ms if self._response is not None else 0.0

    def heard_ms(self) -> dict[str, float]:
        """How much the user has heard by now of each message that is being sent or played, by item id. Those that are
        missing were heard as their items say."""
        now, heard = self._context.clock(), dict[str, float]()
        for response in (*self._playing, *([self._response] if self._response is not None else [])):
            item, unheard_ms = response.item, max(0.0, response.played_until - now) * 1000
            if item.spoken and item.heard_ms is None and (unheard_ms or not response.done):
                heard[item.id] = max(0.0, item.audio_ms - unheard_ms)
        return heard

    def create(self, settings: SessionSettings, metrics: TurnMetrics, text: str = "") -> Response:
        """A new response, buffered until `start`. It says `text`, or what the language model decides."""
        return Response(
            self._context,
            settings,
            metrics,
            self._pace,
            partial(self._on_event, FirstSent()),
            self._planner.runs,
            text,
            SpeakingManner() if self._response is None else self._response.manner,
        )

    def start(self, response: Response, settings: SessionSettings, prompt: Prompt, tag: object = None) -> None:
        """Release a response, whose audio follows that of earlier ones. If its generation has not started, it does.

        Args:
            tag: for `ResponseStarted`.
        """
        self._stop_done_timer()
        not_before = 0.0
        if self._response is not None:
            not_before = self._response.played_until
            self._playing = [earlier for earlier in (*self._playing, self._response) if self._is_playing(earlier)]
        self._response, self._report_start = response, partial(self._report, settings, tag)
        sending = response.release(self._report_start(), self._history, not_before)
        self._context.spawn(self._run(response, settings, sending, prompt))

    def _is_playing(self, response: Response) -> bool:
        return response.done and response.played_until > self._context.clock()

    def _report(self, settings: SessionSettings, tag: object) -> str:
        """Report that a response starts. Returns its id."""
        response_id = new_id("resp")
        self._context.emit(events.ResponseStarted(response_id, settings.speak, tag=tag))
        return response_id

    def pause(self) -> None:
        """Fall silent; the response may resume."""
        self._stop_done_timer()
        self._stop_earlier()
        if self._response is not None:
            self._heard = self._response.done and not self._is_playing(self._response)
            self._response.pause("turn_detected")

    def resume(self, settings: SessionSettings) -> None:
        """Resume the paused response."""
        response = self._response
        assert response is not None
        if self._heard and response.item.heard_ms is None:  # nor has the client said otherwise
            self._report_done_after(0)
            return
        assert self._report_start is not None, "it was started"
        sending = response.resume(self._report_start(), self._history, TurnMetrics(new_id("turn")))
        self._context.spawn(self._run(response, settings, sending))

    def stop(self, reason: str) -> None:
        """Stop the response for good, a paused one included."""
        self._stop_done_timer()
        self._stop_earlier()
        if self._response is not None:
            self._planner.cancel()
            self._response.stop(reason)

    def _stop_earlier(self) -> None:
        """Responses that were all sent fall silent as well: what was not heard of them leaves the history."""
        for response in filter(self._is_playing, self._playing):
            response.pause("turn_detected")
        self._playing = []

    def end(self) -> None:
        """The client has stopped what was sent, and has reported how much of it was heard."""
        self._stop_done_timer()
        for response in (*self._playing, *([self._response] if self._response is not None else [])):
            response.played_until = min(response.played_until, self._context.clock())

    def close(self) -> None:
        """End the conversation."""
        self._planner.cancel()
        self._stop_done_timer()

    async def _run(
        self,
        response: Response,
        settings: SessionSettings,
        sending: asyncio.Task[None],
        prompt: Prompt | None = None,
    ) -> None:
        if not response.started and prompt is not None:
            await generate_when_known(response, self._planner, prompt, settings)
        await asyncio.wait([sending])
        if sending.cancelled() or not response.done or response is not self._response:
            return
        slack = settings.rules.timing.playback_slack_ms / 1000 if response.item.audio_ms else 0
        self._report_done_after(max(0.0, response.played_until + slack - self._context.clock()))

    def _report_done_after(self, seconds: float) -> None:
        self._stop_done_timer()
        self._done_timer = asyncio.get_running_loop().call_later(seconds, self._on_event, PlaybackDone())

    def _stop_done_timer(self) -> None:
        if self._done_timer is not None:
            self._done_timer.cancel()
            self._done_timer = None

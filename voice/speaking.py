"""The assistant's side of one conversation: which answer is under way, and when the last of it has been played."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from voice import events
from voice.answer import Answer, Wanted
from voice.brain import Brain
from voice.history import History, Item
from voice.persona import INSTRUCTIONS
from voice.stages import Stages
from voice.timeline import Timeline
from voice.turn import Event, FirstSound, PlayedOut, TurnRules


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

    @property
    def wanted(self) -> Wanted:
        """How answers are made."""
        return Wanted(self.speak, self.speed, self.max_tokens)

    @property
    def deadline(self) -> float | None:
        """When the first clause of an answer that is begun now is wanted, on `time.monotonic`."""
        return time.monotonic() + self.rules.timing.clause_within_ms / 1000 if self.speak else None


class Speaking:
    """Opens, holds back and stops answers, one at a time.

    Args:
        tell: takes the turn machine's events.
        spawn: starts a task of the conversation's.
    """

    def __init__(
        self,
        brain: Brain,
        stages: Stages,
        history: History,
        emit: Callable[[events.SessionEvent], None],
        tell: Callable[[Event], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        clock: Callable[[], float],
    ) -> None:
        self._brain, self._stages, self._history, self._emit = brain, stages, history, emit
        self._tell, self._spawn, self._clock = tell, spawn, clock
        self._answer: Answer | None = None
        self._played_out: asyncio.TimerHandle | None = None

    @property
    def sending(self) -> Answer | None:
        """The answer of which more is to be sent; one that only plays is not."""
        return self._answer if self._answer is not None and not self._answer.done else None

    def only_plays(self, item_id: str) -> bool:
        """Whether this is the newest answer, and all of it was sent."""
        return self._answer is not None and self._answer.done and self._answer.item.id == item_id

    @property
    def unheard_ms(self) -> float:
        """How much of an answer that is held back nobody has heard."""
        return self._answer.unheard_ms if self._answer is not None else 0.0

    def new(self, settings: Settings, timeline: Timeline) -> Answer:
        """An answer behind a closed gate."""
        sounded = partial(self._tell, FirstSound())
        return Answer(settings.wanted, timeline, self._stages, self._emit, sounded, self._spawn, self._clock)

    def start(self, answer: Answer, settings: Settings, ready: Callable[[], Awaitable[object]]) -> None:
        """Open an answer; one that was not thought about yet is, once `ready`."""
        self._stop_clock()
        not_before = self._answer.played_until if self._answer else 0.0
        self._answer = answer
        item, response_id = self._announce(settings.speak)
        self._spawn(self._run(answer, settings, answer.open(response_id, item, not_before), ready))

    def hold(self) -> None:
        """Fall silent; the answer may go on."""
        self._stop_clock()
        if self._answer is not None:
            self._answer.hold("turn_detected")

    def resume(self, settings: Settings) -> None:
        """Go on with the answer that is held back."""
        answer = self._answer
        assert answer is not None
        item, response_id = self._announce(spoken=True)
        sending = answer.resume(response_id, item, Timeline(new_id("turn")))
        self._spawn(self._run(answer, settings, sending))

    def stop(self, reason: str) -> None:
        """Give the answer up, one that is held back, too."""
        self._stop_clock()
        if self._answer is not None:
            self._brain.cancel()
            self._answer.stop(reason)

    def close(self) -> None:
        """The conversation is over."""
        self._brain.cancel()
        self._stop_clock()

    def _announce(self, spoken: bool) -> tuple[Item, str]:
        """A place in the history for an answer, and its name on the wire."""
        item, response_id = Item(new_id("item"), "assistant", spoken=spoken), new_id("resp")
        previous = self._history.add(item)
        self._emit(events.AnswerStarted(response_id, item, previous))
        return item, response_id

    async def _run(
        self,
        answer: Answer,
        settings: Settings,
        sending: asyncio.Task[None],
        ready: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        if not answer.begun and ready is not None:
            await ready()
            if answer.done:
                return
            answer.think(self._brain, self._history.messages(settings.instructions), settings.deadline)
        await asyncio.wait([sending])
        if sending.cancelled() or not answer.done or answer is not self._answer:
            return
        slack = settings.rules.timing.playback_slack_ms / 1000 if answer.item.audio_ms else 0
        wait = max(0.0, answer.played_until + slack - self._clock())
        self._stop_clock()
        self._played_out = asyncio.get_running_loop().call_later(wait, self._tell, PlayedOut())

    def _stop_clock(self) -> None:
        if self._played_out is not None:
            self._played_out.cancel()
            self._played_out = None


def new_id(kind: str) -> str:
    """An id of the Realtime protocol's form, `kind_` and 20 hexadecimal digits."""
    return f"{kind}_{uuid.uuid4().hex[:20]}"

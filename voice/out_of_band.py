"""Responses that are not part of the conversation: they read it, or items of their own, and leave no trace in it. They
run in parallel with the conversation's own response."""

from __future__ import annotations

from agent.planner import Planner
from voice import events
from voice.clause_pace import ClausePace
from voice.context import SessionContext
from voice.history import new_id
from voice.playback import Prompt, generate_when_known
from voice.response import Response
from voice.response_request import RequestError, ResponseRequest
from voice.turn_metrics import TurnMetrics

MAX_OUT_OF_BAND = 4
"""Out-of-band responses of one conversation at the same time. Each has a cache of its own."""


class OutOfBandResponses:
    """The out-of-band responses of one conversation.

    Args:
        planner: the conversation's; each response gets a fork of it, and so reads what is new only.
    """

    def __init__(self, context: SessionContext, planner: Planner) -> None:
        self._context, self._planner = context, planner
        self._active: dict[str, tuple[Response, Planner]] = {}
        self._pace = ClausePace()

    def start(self, request: ResponseRequest, prompt: Prompt) -> None:
        """Start a response to what `prompt` returns.

        Raises:
            RequestError: too many are in progress.
        """
        if len(self._active) >= MAX_OUT_OF_BAND:
            raise RequestError(
                "too_many_responses",
                f"{len(self._active)} responses with `conversation: none` are in progress: wait for one to end",
            )
        response = Response(self._context, request.settings, TurnMetrics(new_id("turn")), self._pace)
        response_id, planner = new_id("resp"), self._planner.fork()
        self._active[response_id] = (response, planner)
        self._context.emit(
            events.ResponseStarted(response_id, request.settings.speak, in_conversation=False, tag=request.tag)
        )
        sending = response.release(response_id, None, self._context.clock())
        sending.add_done_callback(lambda _: self._forget(response_id))
        self._context.spawn(generate_when_known(response, planner, prompt, request.settings))

    def _forget(self, response_id: str) -> None:
        """A response has ended, and with it what its language model read ahead."""
        if response_id in self._active:
            self._active.pop(response_id)[1].cancel()

    def cancel(self, response_id: str) -> bool:
        """Stop a response; whether it was in progress."""
        if response_id not in self._active:
            return False
        response, planner = self._active.pop(response_id)
        planner.cancel()
        response.stop("client_cancelled")
        return True

    def close(self) -> None:
        """The conversation has ended."""
        for _, planner in self._active.values():
            planner.cancel()

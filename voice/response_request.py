"""A client's request for a response, and what is wrong with a request that cannot be carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chat.types import Message
from voice.history import History, HistoryItem, Item
from voice.playback import SessionSettings


class RequestError(ValueError):
    """A client request that is not possible now; `code` is the Realtime protocol's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class ResponseRequest:
    """A request for one response.

    Attributes:
        settings: for this response only.
        items: what to respond to; None for the conversation.
        in_conversation: whether the response becomes part of the conversation.
        tag: any value of the client's; `ResponseStarted` carries it.
        text: what the response says; empty if the language model decides.
        final_settings: awaited before generation starts, where not all tools are known yet.
    """

    settings: SessionSettings
    items: tuple[HistoryItem, ...] | None = None
    in_conversation: bool = True
    tag: object = None
    text: str = ""
    final_settings: Callable[[], Awaitable[SessionSettings]] | None = None

    @property
    def to_conversation(self) -> bool:
        """Whether it is answered from the conversation as it stands."""
        return self.in_conversation and self.items is None and not self.text

    @property
    def needs_transcripts(self) -> tuple[bool, bool]:
        """Whether it fails if what it reads could not be transcribed, the user's last turn or recordings of its own,
        and whether no other request then fails because of them."""
        if self.items is None:
            return True, self.in_conversation
        reads = any(isinstance(item, Item) and not item.complete for item in self.items)
        return reads, reads

    def messages(self, conversation: History) -> list[Message]:
        """The prompt."""
        history = conversation if self.items is None else History(self.items)
        return history.messages(self.settings.instructions)


class PendingRequests:
    """Requests for the responses of one conversation that have not been carried out.

    Attributes:
        waiting: starts once the user has finished; None if there is none.
    """

    def __init__(self) -> None:
        self.waiting: ResponseRequest | None = None
        self._started: ResponseRequest | None = None
        self._repeated: ResponseRequest | None = None

    def take(self, settings: SessionSettings) -> ResponseRequest:
        """The request of the response that starts now; one with these settings if nobody has made any."""
        request = self.waiting or self._repeated
        self._started = None if request is None or request.text else request
        self.waiting = self._repeated = None
        return request or ResponseRequest(settings)

    def repeat(self) -> None:
        """The response that has started was interrupted before anything of it was heard."""
        self._repeated = self._started

    @property
    def any(self) -> bool:
        """Whether a response is still to come that somebody has requested."""
        return self.waiting is not None or self._repeated is not None

    def drop(self) -> None:
        """None is wanted any more."""
        self.waiting = self._repeated = None

    def hear(self, text: str) -> None:
        """What the user said meanwhile; empty for a noise. Words are answered in place of what they interrupted."""
        if text:
            self._repeated = None

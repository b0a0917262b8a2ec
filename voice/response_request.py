"""A client's request for a response, and what is wrong with a request that cannot be carried out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chat.types import Message
from voice.history import History, HistoryItem
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

    def messages(self, conversation: History) -> list[Message]:
        """The prompt."""
        history = conversation if self.items is None else History(self.items)
        return history.messages(self.settings.instructions)

"""What the assistant says when nobody has just spoken: that a slow tool has returned, and announcements, such as that
of a timer. It waits until both sides are silent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.tools.protocol import Announcement
from voice import events
from voice.playback import SessionSettings
from voice.response import Response
from voice.response_options import choice_after_output
from voice.response_request import ResponseRequest


class UnpromptedResponses:
    """What one conversation has yet to say unprompted.

    Args:
        on_added: called when there is something to say.
    """

    def __init__(self, on_added: Callable[[], None]) -> None:
        self._on_added = on_added
        self._announcements: deque[Announcement] = deque()
        self._current: tuple[Announcement, Response] | None = None
        self._has_result = False

    def announce(self, announcement: Announcement) -> None:
        """Say a text as soon as both sides are silent, after those before it. One that nobody heard, because it was
        interrupted, is said again."""
        self._announcements.append(announcement)
        self._on_added()

    def add_result(self) -> None:
        """The conversation has the output of a tool that no response has read."""
        self._has_result = True
        self._on_added()

    def next_request(self, settings: SessionSettings) -> ResponseRequest | None:
        """The response to start now, as both sides are silent."""
        self._settle()
        if self._has_result:
            return ResponseRequest(replace(settings, tool_choice=choice_after_output(settings.tool_choice)))
        if self._announcements and self._current is None:
            return ResponseRequest(settings, text=self._announcements[0].text)
        return None

    def started(self, request: ResponseRequest, response: Response) -> None:
        """A response of the conversation starts."""
        if not request.text:
            self._has_result = False
        elif self._announcements:
            self._current = (self._announcements.popleft(), response)

    def sent(self, done: events.ResponseDone) -> None:
        """A response has ended. What was sent of it may still be played, unless it failed."""
        if self._current is not None and self._current[1].item is done.item and done.status == "failed":
            self._current = None

    def drop_announcements(self) -> None:
        """The client has gone. Whoever announces something does so again once it is back."""
        self._settle()
        self._announcements.clear()

    def close(self, heard_ms: Mapping[str, float]) -> None:
        """The conversation ends.

        Args:
            heard_ms: as `Playback.heard_ms` returns it.
        """
        if self._current is not None and heard_ms.get(self._current[1].item.id, 1.0) > 0:
            self._settle()

    def _settle(self) -> None:
        """What was being announced has been played or stopped: it was heard, or it is said again."""
        if self._current is None or not self._current[1].done:
            return
        (announcement, response), self._current = self._current, None
        if response.item.heard_text.strip():
            announcement.on_heard()
        else:
            self._announcements.appendleft(announcement)

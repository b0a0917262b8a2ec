"""Sends the captions of a session to its client, and to the listeners that its client allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from server.api_errors import APIError, guarded
from server.auth import offered_keys
from server.caption_broadcasts import CaptionBroadcast, CaptionBroadcasts, TooManyListeners
from server.context import ServerContext
from server.server_sent_events import event_response
from voice import events
from voice.captions import CaptionChange, CaptionTrack
from voice.word_alignment import Word

CAPTION, LISTENERS = "rejoinder.caption", "rejoinder.listeners"

_MAX_TRACKS = 8
"""Turns whose final transcripts may be missing. Discarded turns have none."""


class CaptionWriter:
    """The captions of one session.

    Args:
        send: sends an event of a type to the client, if it asked for that type.
    """

    def __init__(self, send: Callable[..., None], broadcasts: CaptionBroadcasts) -> None:
        self._send, self._broadcasts = send, broadcasts
        self._broadcast: CaptionBroadcast | None = None
        self._tracks: dict[str, CaptionTrack] = {}
        self._corrected = 0  # of turns that have ended

    def share(self) -> None:
        """Let listeners read along, and tell the client how they can."""
        if self._broadcast is None:
            self._broadcast = self._broadcasts.open(self._tell)
            self._tell(0)

    def close(self) -> None:
        """The session has ended."""
        if self._broadcast is not None:
            self._broadcasts.close(self._broadcast)

    def write(self, event: events.SessionEvent) -> None:
        """Send what an event changes."""
        match event:
            case events.SpeechStarted(item_id=item_id, audio_start_ms=start_ms):
                self._tracks[item_id] = CaptionTrack(start_ms / 1000)
                if len(self._tracks) > _MAX_TRACKS:
                    del self._tracks[next(iter(self._tracks))]
            case events.PartialTranscript(item_id=item_id) if track := self._tracks.get(item_id):
                self._write(item_id, track, track.update(event.words, event.num_stable))
            case events.FinalTranscript(item_id=item_id) if track := self._tracks.pop(item_id, None):
                self._write(item_id, track, track.finish(event.words))
            case events.TranscriptionFailed(item_id=item_id) if track := self._tracks.pop(item_id, None):
                self._write(item_id, track, track.abandon())

    def _write(self, item_id: str, track: CaptionTrack, change: CaptionChange) -> None:
        body, whole = ({"item_id": item_id, **_body(one, self._corrected)} for one in (change, track.whole))
        if change.final:
            self._corrected += change.corrected
        self._send(CAPTION, **body)
        if self._broadcast is not None:
            named = {"type": CAPTION}
            self._broadcast.publish(item_id, named | body, named | whole, final=change.final)

    def _tell(self, listeners: int) -> None:
        if self._broadcast is not None:
            self._send(LISTENERS, captions=self._broadcast.id, ticket=self._broadcast.ticket, listeners=listeners)


def _body(change: CaptionChange, corrected_before: int) -> dict[str, Any]:
    return {
        "first": change.first,
        "stable": [_word(word) for word in change.stable],
        "provisional": [_word(word) for word in change.provisional],
        "final": change.final,
        "corrected": corrected_before + change.corrected,
    }


def _word(word: Word) -> Mapping[str, Any]:
    start, end, confidence = round(word.start_s, 2), round(word.end_s, 2), round(word.confidence, 2)
    return {"word": word.text, "start": start, "end": end, "confidence": confidence}


def captions_route(context: ServerContext) -> Route:
    """`GET /v1/captions/ID`: the captions of a session as server-sent events."""

    async def listen(request: Request) -> Response:
        broadcast = context.captions.find(request.path_params["id"], offered_keys(request))
        if broadcast is None:
            message = "there are no such captions, or this is not their ticket: ask the speaker for a new link"
            raise APIError(404, message, code="captions_not_found")
        try:
            listening = broadcast.listen()
        except TooManyListeners as error:
            raise APIError(503, str(error), code="too_many_listeners", retry_after_s=30) from None
        return event_response(listening)

    return Route("/v1/captions/{id}", guarded(context.check_origin, listen))

"""Turns a client's observations of one turn into that turn's measurements. Pure: no clock, no socket.

Moments are in seconds of one clock, measurements in ms.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from lab.report.corpus import SpokenTurn
from lab.simulator.player import Player

_NATURAL_END_S = 1.5
"""A response that ends by itself this soon after the user speaks over it says nothing about how it handles
interruptions."""

_OPEN_GAP_S = 0.1
"""A player that has been empty for this long during an unfinished response has underrun. A shorter gap may just be the
end of the response."""

_CONTINUED_S = 1.0
"""A response that is still audible this long after the start of a backchannel was not stopped by it."""


Backchannel = Literal["survived", "resumed", "broken"]


@dataclass
class ResponseObservation:
    """What the client observed of one response.

    Attributes:
        created_at: moment of `response.created`.
        done_at, status: moment and status of `response.done`.
        cancelled_by_client: the client cancelled it after it had measured what it needed.
        text: the text received so far.
    """

    id: str
    created_at: float
    done_at: float | None = None
    status: str = ""
    cancelled_by_client: bool = False
    text: str = ""


@dataclass
class TurnObservation:
    """What the client observed of one turn.

    Attributes:
        speech_start, speech_end: moments of the first and last sample of the user's speech.
        committed_at: moments at which the server declared the end of a turn.
        turn_events: `rejoinder.turn` events by response id.
        overlap_start: moment of the first sample of speech over the response, or None.
        measured_until: when the client had heard enough; it then ends the response.
        max_lateness_s: how far the microphone fell behind its schedule.
    """

    turn: SpokenTurn
    speech_start: float
    speech_end: float
    player: Player = field(default_factory=Player)
    responses: list[ResponseObservation] = field(default_factory=list)
    committed_at: list[float] = field(default_factory=list)
    turn_events: dict[str, dict[str, Any]] = field(default_factory=dict)
    overlap_start: float | None = None
    transcript: str = ""
    response_text: str = ""
    measured_until: float = float("inf")
    max_lateness_s: float = 0.0


@dataclass(frozen=True)
class Measurement:
    """One measured turn.

    Attributes:
        expected: `answer` or `none`.
        latency_ms: from the last sample of speech to the first audible sample of the response; None if the turn was cut
            off or missed, or no response was expected.
        first_audio_ms: from the last sample of speech to the arrival of the first audio, audible or not.
        cut_off: the response started before the user's last sample.
        early_commit: the server declared the end of the turn before the user's last sample, but sent no audio by then.
        missed: no audible response came.
        unasked: a response came where none was expected.
        barge_in_stop_ms: from the first sample over the response to the last audible sample played of it.
        barge_in_sent_ms: from the first sample over the response to the last audio received of it.
        backchannel: whether the response continued without a pause, paused and resumed, or broke off.
        pause_ms: how long the response paused before it resumed.
        broken_off: the response stopped although nobody spoke over it.
        underruns, underrun_ms: how often and how long the player ran empty within a response.
        stages_ms: the server's latency stages, if it reports them.
        server_latency_ms: latency as measured by the server.
        speculations: how often a speculative response was started.
        speculation_used: whether the response that was heard was speculative.
        waited_ms: the silence that ended the turn.
        end_probability: the endpointer's probability that the turn was over.
        steps: forward passes of the language model that generated the response.
        drafts_spoken, drafts_dropped: first clauses synthesized from a draft that were used, and discarded.
        drafts_shown, drafts_kept: draft tokens that were reported, and those of them that became final.
        drafted_by: what drafted them.
        transcript: of the user's speech, by the server.
        from_turn_log: the turn comes from a turn log, which lacks everything that only a client can observe.
        late_ms: how far the microphone fell behind its schedule; above about 20 ms this machine was too busy.
        voice: the synthesized voice that spoke; empty for a recording and for a real user.
        sessions: conversations that the client held at the same time.
        corpus: what the turn is a part of.
    """

    name: str
    kind: str
    text: str
    expected: str = "answer"
    latency_ms: float | None = None
    first_audio_ms: float | None = None
    cut_off: bool = False
    early_commit: bool = False
    missed: bool = False
    unasked: bool = False
    barge_in_stop_ms: float | None = None
    barge_in_sent_ms: float | None = None
    backchannel: Backchannel | None = None
    pause_ms: float | None = None
    broken_off: bool = False
    underruns: int = 0
    underrun_ms: float = 0.0
    stages_ms: dict[str, float] = field(default_factory=dict)
    server_latency_ms: float | None = None
    speculations: int | None = None
    speculation_used: bool | None = None
    waited_ms: float | None = None
    end_probability: float | None = None
    steps: int | None = None
    drafts_spoken: int | None = None
    drafts_dropped: int | None = None
    drafts_shown: int | None = None
    drafts_kept: int | None = None
    drafted_by: list[str] = field(default_factory=list)
    transcript: str = ""
    response_text: str = ""
    from_turn_log: bool = False
    late_ms: float = 0.0
    voice: str = ""
    sessions: int = 1
    corpus: str = ""

    @classmethod
    def from_json(cls, payload: dict[str, Any]) -> Measurement:
        """Parse what `to_json` wrote. Unknown keys are ignored: an older or newer version may have written them.

        Raises:
            TypeError: the name, kind or text is missing.
        """
        names = {_JSON_KEYS.get(field.name, field.name): field.name for field in fields(cls)}
        return cls(**{names[key]: value for key, value in payload.items() if key in names})

    def to_json(self) -> dict[str, Any]:
        """As `rejoinder report --json` writes it."""
        return {_JSON_KEYS.get(name, name): value for name, value in asdict(self).items()}


_JSON_KEYS = {
    "speculations": "guesses",
    "speculation_used": "guess_kept",
    "end_probability": "over",
    "transcript": "heard",
    "response_text": "answer",
    "from_turn_log": "live",
}
"""Keys of the JSON file that differ from the field names."""

_TURN_EVENT_KEYS = {
    "speculations": "guesses",
    "speculation_used": "guess_kept",
    "end_probability": "over",
    **{
        name: name
        for name in (
            "waited_ms",
            "steps",
            "drafts_spoken",
            "drafts_dropped",
            "drafts_shown",
            "drafts_kept",
            "drafted_by",
        )
    },
}
"""Fields of a measurement that come from an optional field of the `rejoinder.turn` event."""


RESPONSE_TIMEOUT_S = 15.0
"""A turn without an audible response for so long after the user's last sample is missed."""

UNKNOWN = "unknown"
"""Status of a response whose end only its silence shows: a call without marks does not tell a stop from an end."""


def turn_event_fields(event: dict[str, Any]) -> dict[str, Any]:
    """The optional fields of a `rejoinder.turn` event, under the names that `Measurement` uses."""
    return {name: event[key] for name, key in _TURN_EVENT_KEYS.items() if key in event}


def measure(observation: TurnObservation) -> Measurement:
    """The measurements of a turn."""
    turn, player = observation.turn, observation.player
    first = player.chunks[0] if player.chunks else None
    response_expected = turn.expected == "answer"
    cut_off = response_expected and first is not None and first.arrived < observation.speech_end
    audible = None if cut_off or not response_expected else player.first_audible(observation.speech_end)
    if audible is not None and audible > min(observation.measured_until, observation.speech_end + RESPONSE_TIMEOUT_S):
        audible = None  # it came while the client silenced the server
    missed = response_expected and not cut_off and audible is None
    response_id = None if first is None or cut_off or missed else first.response_id
    event = observation.turn_events.get(response_id or "", {})
    underruns = _underruns(observation)
    stop, sent = _barge_in(observation) if turn.overlap is not None and turn.overlap.interrupts else (None, None)
    backchannel, pause = (
        _backchannel(observation) if turn.overlap is not None and not turn.overlap.interrupts else (None, None)
    )
    return Measurement(
        turn.name,
        turn.kind,
        turn.text,
        turn.expected,
        latency_ms=_ms(audible, observation.speech_end),
        first_audio_ms=_ms(
            None if cut_off or missed or first is None or not response_expected else first.arrived,
            observation.speech_end,
        ),
        cut_off=cut_off,
        early_commit=not cut_off and any(moment < observation.speech_end for moment in observation.committed_at),
        missed=missed,
        unasked=not response_expected and first is not None,
        barge_in_stop_ms=stop,
        barge_in_sent_ms=sent,
        backchannel=backchannel,
        pause_ms=pause,
        broken_off=turn.overlap is None and not cut_off and _was_stopped(observation),
        underruns=len(underruns),
        underrun_ms=round(1000 * sum(underruns), 1),
        stages_ms=dict(event.get("stages_ms") or {}),
        server_latency_ms=event.get("latency_ms"),
        **turn_event_fields(event),
        transcript=observation.transcript,
        response_text=observation.response_text,
        late_ms=round(1000 * observation.max_lateness_s, 1),
        voice=turn.voice,
        corpus=turn.corpus,
    )


def _ms(moment: float | None, since: float) -> float | None:
    return None if moment is None else round(1000 * (moment - since), 1)


def _overlapped_response(observation: TurnObservation) -> ResponseObservation | None:
    """The response that the user spoke over, if it was audible and did not end by itself soon after."""
    start = observation.overlap_start
    if start is None:
        return None
    for response in observation.responses:
        last = observation.player.last_audible(response.id)
        if response.created_at < start and last is not None and last >= start:
            if response.status == UNKNOWN:
                return None
            ended_soon = last < start + _NATURAL_END_S
            ended_by_itself = response.status == "completed" and ended_soon and not _was_cleared(observation, response)
            return None if ended_by_itself else response
    return None


def _was_cleared(observation: TurnObservation, response: ResponseObservation) -> bool:
    """Whether the player was cleared before the response was played to its end."""
    return any(chunk.cut for chunk in observation.player.chunks if chunk.response_id == response.id)


def _underruns(observation: TurnObservation) -> list[float]:
    """Seconds of each underrun before the user spoke over the response; the last one may not have ended by then."""
    until = min(observation.measured_until, observation.overlap_start or float("inf"))
    underruns = [min(length, until - moment) for moment, length in observation.player.gaps if moment < until]
    last = observation.player.chunks[-1] if observation.player.chunks else None
    if last is None or last.cut or last.end >= until - _OPEN_GAP_S:
        return underruns
    unfinished = any(
        response.id == last.response_id
        and (response.done_at is None or response.done_at > until)
        and response.status != UNKNOWN
        for response in observation.responses
    )
    return [*underruns, until - last.end] if unfinished else underruns


def _was_stopped(observation: TurnObservation) -> bool:
    """Whether the server cancelled the response, or had the player cleared, while the client was still measuring."""
    cleared = any(chunk.cut and chunk.end < observation.measured_until for chunk in observation.player.chunks)
    return cleared or any(
        response.status == "cancelled"
        and not response.cancelled_by_client
        and observation.player.last_arrival(response.id) is not None
        for response in observation.responses
    )


def _barge_in(observation: TurnObservation) -> tuple[float | None, float | None]:
    """Ms from the user's first sample over the response to its last audible sample, and to the last audio received."""
    response, start = _overlapped_response(observation), observation.overlap_start
    if response is None or start is None:
        return None, None
    stop, sent = observation.player.last_audible(response.id), observation.player.last_arrival(response.id)
    return tuple(None if moment is None else max(0.0, _ms(moment, start) or 0.0) for moment in (stop, sent))  # type: ignore[return-value]


def _backchannel(observation: TurnObservation) -> tuple[Backchannel | None, float | None]:
    """Whether the response survived the backchannel, and how long it paused; None if no response was playing."""
    response, start, player = _overlapped_response(observation), observation.overlap_start, observation.player
    if response is None or start is None:
        return None, None
    last = player.last_audible(response.id)
    stopped = response.status == "cancelled" and not response.cancelled_by_client
    if last is not None and last >= start + _CONTINUED_S and not stopped:
        return "survived", None
    for later in observation.responses:
        audible = player.first_audible_of(later.id)
        if later.created_at <= start or audible is None or last is None:
            continue
        continues = _continues_previous_response(later, observation)
        if continues is None:
            return None, None
        if continues:
            return "resumed", _ms(audible, last)
    return "broken", None


def _continues_previous_response(response: ResponseObservation, observation: TurnObservation) -> bool | None:
    """Whether a response is the rest of the previous one, not a response to the words in between; None if nothing shows
    that, as in a call. Rejoinder reports no latency for a continuation, since it answers no turn; with other servers, a
    continuation starts mid-sentence."""
    event = observation.turn_events.get(response.id)
    if event is not None:
        return event.get("latency_ms") is None
    return response.text.lstrip()[0].islower() if response.text.strip() else None

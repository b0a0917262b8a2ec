"""From what a client saw of one turn to the turn's figures. Pure: no clock, no socket.

Moments are seconds of one clock, figures are ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from server.report.corpus import SpokenTurn
from server.report.player import Player

_OWN_END_S = 1.5
"""An answer that ends by itself this soon after words over it says nothing about giving way."""

_OPEN_GAP_S = 0.1
"""A player that has been dry for so long, while the answer is not over, ran dry; sooner, the answer may just have been
sent to its end."""

_WENT_ON_S = 1.0
"""An answer that is heard this long after a backchannel began went on."""


Backchannel = Literal["survived", "resumed", "broken"]


@dataclass
class Reply:
    """One response of the server.

    Attributes:
        done: when `response.done` came, and with which status.
        ours: this client cancelled it, having measured what it wanted.
        text: what it says, as far as it came.
    """

    id: str
    begun: float
    done: float | None = None
    status: str = ""
    ours: bool = False
    text: str = ""


@dataclass
class Sighting:
    """What was seen of one turn.

    Attributes:
        began, ended: moments of the first and last sample of the user's speech.
        over_began: moment of the first sample of speech over the answer, or None.
        committed: when turns were said to be over.
        timelines: `rejoinder.turn` events, by response.
        finished: when enough was heard; the client ends the answer then.
        late_s: how far the microphone fell behind its schedule.
    """

    turn: SpokenTurn
    began: float
    ended: float
    player: Player = field(default_factory=Player)
    replies: list[Reply] = field(default_factory=list)
    committed: list[float] = field(default_factory=list)
    timelines: dict[str, dict[str, Any]] = field(default_factory=dict)
    over_began: float | None = None
    heard: str = ""
    answer: str = ""
    finished: float = float("inf")
    late_s: float = 0.0


@dataclass(frozen=True)
class Measurement:
    """One measured turn.

    Attributes:
        expected: `answer` or `none`.
        latency_ms: last sample of speech to the first audible one of the answer; None when it was cut off or missed.
        first_audio_ms: last sample of speech to the arrival of the answer's first sound, audible or not.
        cut_off: sound came before the user's last sample.
        early_commit: the turn was said to be over before the user's last sample, and nothing was heard.
        missed: no audible answer came.
        unasked: an answer came where none should.
        barge_in_stop_ms: first sample over the answer to the last audible one that is played of it.
        barge_in_sent_ms: the same to the last sound of it that came.
        backchannel: what became of the answer: never silent, silent and then resumed, or broken off.
        pause_ms: how long it was silent before it was resumed.
        broken_off: the answer was stopped although nobody spoke over it.
        underruns, underrun_ms: times that the player ran dry within an answer, and for how long in all.
        stages_ms: the server's own stages, when it tells them.
        server_latency_ms: as the server sees it.
        guesses: how often work was begun because the user might have finished.
        guess_kept: whether one of those answered.
        waited_ms: the silence that ended the turn; over: how likely it was thought to be over.
        drafts_spoken, drafts_dropped: first clauses synthesized from a draft, used and thrown away.
        live: from the timeline of a real conversation: what only a client hears is not known.
        late_ms: how far the microphone fell behind; above some 20 ms this machine was too busy to measure.
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
    guesses: int | None = None
    guess_kept: bool | None = None
    waited_ms: float | None = None
    over: float | None = None
    drafts_spoken: int | None = None
    drafts_dropped: int | None = None
    heard: str = ""
    answer: str = ""
    live: bool = False
    late_ms: float = 0.0

    @classmethod
    def read(cls, said: dict[str, Any]) -> Measurement:
        """From JSON; what it does not know is left out, as an older or newer report may have it.

        Raises:
            TypeError: it has no name, kind or text.
        """
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in said.items() if name in known})


TOLD = ("guesses", "guess_kept", "waited_ms", "over", "drafts_spoken", "drafts_dropped")
"""Optional fields of `rejoinder.turn`, of the same name in a measurement."""


def measure(seen: Sighting) -> Measurement:
    """The turn's figures."""
    turn, player = seen.turn, seen.player
    first = player.pieces[0] if player.pieces else None
    cut_off = first is not None and first.arrived < seen.ended
    audible = None if cut_off else player.first_audible(seen.ended)
    expected = turn.expected == "answer"
    answered = None if first is None or cut_off else first.response_id
    told = seen.timelines.get(answered or "", {})
    gaps = _gaps(seen)
    stop, sent = _barge_in(seen) if turn.over is not None and turn.over.interrupts else (None, None)
    outcome, pause = _backchannel(seen) if turn.over is not None and not turn.over.interrupts else (None, None)
    return Measurement(
        turn.name,
        turn.kind,
        turn.text,
        turn.expected,
        latency_ms=_ms(audible, seen.ended),
        first_audio_ms=_ms(None if cut_off or first is None else first.arrived, seen.ended),
        cut_off=cut_off,
        early_commit=not cut_off and any(at < seen.ended for at in seen.committed),
        missed=expected and not cut_off and audible is None,
        unasked=not expected and first is not None,
        barge_in_stop_ms=stop,
        barge_in_sent_ms=sent,
        backchannel=outcome,
        pause_ms=pause,
        broken_off=turn.over is None and not cut_off and _stopped(seen),
        underruns=len(gaps),
        underrun_ms=round(1000 * sum(gaps), 1),
        stages_ms=dict(told.get("stages_ms") or {}),
        server_latency_ms=told.get("latency_ms"),
        **{name: told[name] for name in TOLD if name in told},
        heard=seen.heard,
        answer=seen.answer,
        late_ms=round(1000 * seen.late_s, 1),
    )


def _ms(at: float | None, since: float) -> float | None:
    return None if at is None else round(1000 * (at - since), 1)


def _spoken_over(seen: Sighting) -> Reply | None:
    """The response that the user spoke over, if it was sounding and did not end by itself soon after."""
    if seen.over_began is None:
        return None
    for reply in seen.replies:
        last = seen.player.last_audible(reply.id)
        if reply.begun < seen.over_began and last is not None and last >= seen.over_began:
            soon = last < seen.over_began + _OWN_END_S
            return None if reply.status == "completed" and soon and not _cleared(seen, reply) else reply
    return None


def _cleared(seen: Sighting, reply: Reply) -> bool:
    """Whether the player fell silent before the response was played to its end."""
    return any(piece.cut for piece in seen.player.pieces if piece.response_id == reply.id)


def _gaps(seen: Sighting) -> list[float]:
    """Seconds of each underrun before words over the answer; the last one may still have gone on then."""
    until = min(seen.finished, seen.over_began or float("inf"))
    gaps = [gap for when, gap in seen.player.gaps if when < until]
    last = seen.player.pieces[-1] if seen.player.pieces else None
    waiting = last is not None and not last.cut and last.end < until - _OPEN_GAP_S
    if (
        last is not None
        and waiting
        and any(reply.id == last.response_id and (reply.done is None or reply.done > until) for reply in seen.replies)
    ):
        gaps.append(until - last.end)
    return gaps


def _stopped(seen: Sighting) -> bool:
    """Whether the server ended the answer, or had the player fall silent, while it was listened to."""
    cut = any(piece.cut and piece.end < seen.finished for piece in seen.player.pieces)
    return cut or any(
        reply.status == "cancelled" and not reply.ours and seen.player.last_arrival(reply.id) is not None
        for reply in seen.replies
    )


def _barge_in(seen: Sighting) -> tuple[float | None, float | None]:
    """Last audible sample played, and last sound received, after the user's first sample over the answer."""
    reply = _spoken_over(seen)
    if reply is None or seen.over_began is None:
        return None, None
    stop, sent = seen.player.last_audible(reply.id), seen.player.last_arrival(reply.id)
    return tuple(None if at is None else max(0.0, _ms(at, seen.over_began) or 0.0) for at in (stop, sent))  # type: ignore[return-value]


def _backchannel(seen: Sighting) -> tuple[Backchannel | None, float | None]:
    """Whether the answer went on, and how long it was silent before; None when there was none to break."""
    reply = _spoken_over(seen)
    if reply is None or seen.over_began is None:
        return None, None
    last = seen.player.last_audible(reply.id)
    stopped = reply.status == "cancelled" and not reply.ours
    if last is not None and last >= seen.over_began + _WENT_ON_S and not stopped:
        return "survived", None
    for later in seen.replies:
        heard = seen.player.first_audible_of(later.id)
        if later.begun > seen.over_began and heard is not None and last is not None and _goes_on(later, seen):
            return "resumed", _ms(heard, last)
    return "broken", None


def _goes_on(reply: Reply, seen: Sighting) -> bool:
    """Whether a response is the rest of the one before, not an answer to the words between: our server has no latency
    to tell of it then, since it answers nothing; from others it is known by beginning inside a sentence."""
    told = seen.timelines.get(reply.id)
    if told is not None:
        return told.get("latency_ms") is None
    return reply.text.lstrip()[:1].islower()

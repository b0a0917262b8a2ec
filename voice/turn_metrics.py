"""Timestamps and counts of one turn, from the user's last spoken sample to the first audio sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent.language_model import RemoteRequest
from agent.plan import Decision
from chat.progress import Progress

Stamp = Literal[
    "speech_end",
    "soft_end",
    "end_decided",
    "transcript_final",
    "first_committed",
    "first_clause",
    "first_audio",
    "first_sent",
]

STAGES: tuple[tuple[str, Stamp, Stamp], ...] = (
    ("soft_end", "speech_end", "soft_end"),
    ("transcription", "soft_end", "transcript_final"),
    ("first_token", "transcript_final", "first_committed"),
    ("first_clause", "first_committed", "first_clause"),
    ("synthesis", "first_clause", "first_audio"),
    ("sending", "first_audio", "first_sent"),
)
"""The consecutive stages of a turn's latency: name, start, end. Work starts at the soft end; the time for which its
result was held back until the end of the turn was certain is part of `sending`."""

END_OF_TURN: tuple[str, Stamp, Stamp] = ("end_of_turn", "speech_end", "end_decided")
"""The wait for the end of the turn, which runs in parallel with those stages."""


@dataclass(frozen=True)
class ToolStep:
    """A call of a tool in a turn.

    Attributes:
        ms: how long it took; None if it was still running when the response ended.
    """

    name: str
    ms: float | None
    status: Literal["returned", "failed", "running"]


@dataclass
class TurnMetrics:
    """Timestamps and counts of one turn.

    `server.realtime.event_writer` writes these to the `rejoinder.turn` event, some under other names.

    Attributes:
        turn_id: the turn's id, the same everywhere.
        stamps: seconds on `time.monotonic`.
        steps, tokens: denoising steps and tokens of the response.
        prompt_tokens, cached_tokens: tokens of the prompt, and how many of them were in the cache.
        speculations: how often a speculative response was started in this turn.
        speculation_used: whether the response that the user heard was speculative.
        waited_ms: the silence that ended the turn.
        spoken_over_after_ms: the turn began over a response, so long after the user's last words before it; None if it
            did not. If that is short, the user had not finished, and the response cut them off.
        end_probability: the endpointer's probability that the turn was over.
        drafts_spoken, drafts_dropped: first clauses synthesized from a draft that were used, and discarded.
        drafts_shown, drafts_kept: draft tokens that were reported, and those of them that became final.
        drafted_by: what drafted them (`chat.progress.DraftOrigin`), in the order of first use.
        decided: what was decided, in this order: a task, for example, first asks a language model, then for a program.
        tools: the calls of the conversation's tools.
        remote: the requests to a language model elsewhere, whose steps and tokens are counted there only.
    """

    turn_id: str
    stamps: dict[Stamp, float] = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    speculations: int = 0
    speculation_used: bool = False
    waited_ms: int | None = None
    spoken_over_after_ms: int | None = None
    end_probability: float | None = None
    drafts_spoken: int = 0
    drafts_dropped: int = 0
    drafts_shown: int = 0
    drafts_kept: int = 0
    drafted_by: list[str] = field(default_factory=list)
    decided: list[Decision] = field(default_factory=list)
    tools: list[ToolStep] = field(default_factory=list)
    remote: list[RemoteRequest] = field(default_factory=list)

    def count(self, progress: Progress, before: TurnMetrics) -> None:
        """Count what the language model has generated.

        Args:
            before: the metrics before this text of it began: a turn may have several.
        """
        self.steps, self.tokens = before.steps + progress.step, before.tokens + progress.tokens
        self.drafts_shown = before.drafts_shown + progress.drafts_shown
        self.drafts_kept = before.drafts_kept + progress.drafts_kept
        if progress.draft_origin and progress.draft_origin not in self.drafted_by:
            self.drafted_by.append(progress.draft_origin)
        if progress.prompt_tokens:
            self.prompt_tokens, self.cached_tokens = progress.prompt_tokens, progress.cached_tokens

    @property
    def remote_leads(self) -> bool:
        """Whether the last step came from a language model elsewhere. If it was a call, it may go on to another one."""
        return bool(self.remote) and self.remote[-1].status == "answered"

    def stamp(self, name: Stamp, time: float) -> None:
        """Record when something first happened; later calls for the same name are ignored."""
        self.stamps.setdefault(name, time)

    def stages_ms(self) -> dict[str, float]:
        """Length of each stage that started and ended."""
        return {
            name: round((self.stamps[end] - self.stamps[start]) * 1000, 1)
            for name, start, end in (*STAGES, END_OF_TURN)
            if start in self.stamps and end in self.stamps
        }

    def latency_ms(self) -> float | None:
        """From the last spoken sample to the first sample sent, which is audible: leading silence has been trimmed."""
        if "speech_end" not in self.stamps or "first_sent" not in self.stamps:
            return None
        return round((self.stamps["first_sent"] - self.stamps["speech_end"]) * 1000, 1)

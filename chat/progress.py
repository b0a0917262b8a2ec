"""What a language model reports while it generates a response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from chat.types import HandedOver, ToolCallDelta

DraftOrigin = Literal["diffusion", "recurrent", "masked", "copied", "grammar", ""]
"""What made a draft: a block drafter, a recurrent head, masked rows of the forward pass itself, the conversation, from
which it is copied, or a guess that follows the grammar."""

MASK_CHARACTER = "▒"
"""Stands for a masked token in `Progress.denoised`."""


@dataclass(frozen=True)
class LikelyToken:
    """A token and how likely it was.

    Attributes:
        text: the token alone; a part of a character is `\ufffd`.
        data: its bytes.
        log_probability: its natural logarithm, before sampling changes it.
    """

    text: str
    data: bytes
    log_probability: float


@dataclass(frozen=True)
class ScoredToken(LikelyToken):
    """A committed token.

    Attributes:
        length: characters of the committed text that it completed.
        top: the most likely tokens in its place.
    """

    length: int
    top: tuple[LikelyToken, ...]


@dataclass(frozen=True)
class Progress:
    """What one step of a response changed. It reports what it commits at once, and what has been drafted after that a
    moment later.

    Attributes:
        committed: text that is now final, to be appended to what was committed before.
        draft: text that may follow and may still change. It is shown, but never spoken as final and never remembered.
        step: forward passes of this response so far, without those that read the prompt.
        tokens: tokens committed so far.
        finished: why the response ended (`stop`, `length`, `tool_calls`, or the kind of request of `Ask.task` and
            `Ask.verdicts`); only in its last progress.
        prompt_tokens, cached_tokens: length of the prompt, and how much of it was in the cache already.
        confidence: probability of each draft token, provided that those before it are right.
        draft_ends: where the text of each draft token ends in `draft`.
        draft_origin: what drafted it.
        draft_masked: whether each draft token is still masked; empty where drafts are verified.
        drafts_shown, drafts_kept: draft tokens of this response that were reported so far, and that became final.
        tool_calls: pieces of tool calls that are now final.
        scores: of each token of `committed`, if log probabilities were asked for. Where tool calls are separated from
            the text, they still are of all tokens.
    """

    committed: str = ""
    draft: str = ""
    step: int = 0
    tokens: int = 0
    finished: Literal["stop", "length", "tool_calls"] | HandedOver | None = None
    confidence: tuple[float, ...] = ()
    draft_ends: tuple[int, ...] = ()
    draft_origin: DraftOrigin = ""
    drafts_shown: int = 0
    drafts_kept: int = 0
    draft_masked: tuple[bool, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tool_calls: tuple[ToolCallDelta, ...] = ()
    scores: tuple[ScoredToken, ...] = ()

    @property
    def denoised(self) -> str:
        """The draft with `MASK_CHARACTER` in place of each token that is still masked; empty if drafts are verified."""
        spans = zip(self.draft_masked, (0, *self.draft_ends), self.draft_ends, strict=False)
        return "".join(MASK_CHARACTER if masked else self.draft[start:end] for masked, start, end in spans)

    def with_text(self, committed: str, **changes: Any) -> Progress:
        """The same with other text, whose draft nobody has read.

        Args:
            changes: other fields that differ.
        """
        return replace(self, **{**_NO_TEXT, "committed": committed, **changes})

    def with_draft_until(self, length: int) -> Progress:
        """The same with the draft's tokens that end within its first `length` characters."""
        ends = tuple(end for end in self.draft_ends if end <= length)
        draft = self.draft[: ends[-1]] if ends else ""
        origin = self.draft_origin if draft else ""
        confidence, masked = self.confidence[: len(ends)], self.draft_masked[: len(ends)]
        return replace(
            self, draft=draft, confidence=confidence, draft_ends=ends, draft_origin=origin, draft_masked=masked
        )


_NO_TEXT: Mapping[str, Any] = {
    "draft": "", "confidence": (), "draft_ends": (), "draft_origin": "", "draft_masked": (), "scores": (),
}  # fmt: skip
"""What says something of the text of a progress."""

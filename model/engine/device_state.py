"""What the steps of a batch leave for the next ones on the device, for the conversation of each slot: the length of its
text, its last token, its drafts and what was looked up. Nothing here waits for the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from chat.progress import DraftOrigin
from model.decode.draft import NO_DRAFT, Draft
from model.decode.ngram import NGRAM_SIZE
from model.decode.verify import VerificationResult

CONFIDENCE_UNIT = 1_000_000
"""Confidence is copied to the host as an integer in these parts, among the token ids."""


@dataclass(frozen=True)
class Accepted:
    """What a step has accepted.

    Attributes:
        result: [batch, 2 + max_tokens + 2 × max_drafts] int64, for the host: how many drafts or copied tokens were
            accepted, whether copied tokens were, the base model's tokens along them, drafts, and their confidence.
        row: [batch] int64, which clean row of its conversation predicted the newest token.
    """

    result: Tensor
    row: Tensor


class DeviceState:
    """The state of all slots, one row each. The last slot belongs to nobody and fills up batches.

    Args:
        keys_values: the slab, [2, layers, slots, kv_heads, capacity, head_dim].
        max_drafts, num_copies: drafts and copied tokens that a step verifies at most.

    Attributes:
        keys_values: the same.
        past_length: [slots] int64, tokens whose keys and values are final.
        last: [slots] int64, the last committed token.
        drafts: [slots, max_drafts] int64; missing ones are zeros, which are verified like any others.
        copied: [slots, num_copies] int64, likewise.
        drafting: [slots] bool, whether drafts and copies may be accepted.
        history: [slots, capacity + max_tokens] int64: every token of the conversation, the last one at `past_length`.
        max_tokens: tokens that a step commits at most.
    """

    def __init__(self, keys_values: Tensor, max_drafts: int, num_copies: int) -> None:
        self.keys_values = keys_values
        slots, capacity, device = keys_values.shape[2], keys_values.shape[4], keys_values.device
        self.max_drafts, self.num_copies = max_drafts, num_copies
        self.max_tokens = max(max_drafts, num_copies) + 1

        def integers(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.long, device=device)

        self.past_length, self.last = integers(slots), integers(slots)
        self.drafts, self.copied = integers(slots, max_drafts), integers(slots, num_copies)
        self.history = integers(slots, capacity + self.max_tokens)
        self.drafting = torch.zeros(slots, dtype=torch.bool, device=device)
        self._numbers = torch.arange(self.history.shape[1], device=device)
        """0, 1, 2, …: parts of it are views, so they take no kernel."""

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All of it."""
        return (self.past_length, self.last, self.drafts, self.copied, self.drafting, self.history)

    @torch.inference_mode()
    def set(self, slot: int, tokens: list[int], draft: Draft, *, drafting: bool) -> None:
        """Set a conversation's state.

        Args:
            tokens: all of them, the last one not in the cache yet.
        """
        count, drafts = len(tokens) - 1, draft.tokens[: self.max_drafts]
        row = torch.tensor(tokens, dtype=torch.long)
        padded = torch.tensor((*drafts, *[0] * (self.max_drafts - len(drafts))), dtype=torch.long)
        self.past_length[slot] = count
        self.last[slot] = tokens[-1]
        self.drafts[slot].copy_(padded)
        self.drafting[slot] = drafting
        self.history[slot, : count + 1].copy_(row)
        self.look_up(torch.tensor([slot], device=self.last.device), self.history.shape[1] - self.max_tokens)

    def accept(
        self, slots: Tensor, past: Tensor, verified: Tensor, tokens: Tensor, confidence: Tensor, num_drafts: int
    ) -> Accepted:
        """Find how many drafts the base model agrees with, or copied tokens if those are more. Its next token, and the
        drafts of the branch that saw exactly the accepted ones, go into the state.

        Args:
            slots, past: [batch] int64, the conversations, and the length of their texts before the step.
            verified: [batch, drafts + copies] int64, the drafts and copied tokens that the step verified.
            tokens, confidence: [rows], what the rows of the step predict and how likely it is. The clean rows of all
                conversations come first: that of the last token, and of those that it verified. Then a branch of
                `num_drafts` rows for each number of accepted drafts, or nothing: then nothing is drafted here.
            num_drafts: drafts of each conversation.
        """
        batch, k, c = len(slots), num_drafts, verified.shape[1] - num_drafts
        num_clean = batch * (1 + k + c)
        clean = tokens[:num_clean].view(batch, -1)
        along_drafts, along_copies = clean[:, : k + 1], torch.cat((clean[:, :1], clean[:, k + 1 :]), 1)
        may_accept = self.drafting[slots]
        accepted_drafts = _accepted_length(verified[:, :k], along_drafts) * may_accept
        accepted_copies = _accepted_length(verified[:, k:], along_copies) * may_accept
        use_copies = accepted_copies > accepted_drafts
        accepted = torch.where(use_copies, accepted_copies, accepted_drafts)
        base = torch.where(
            use_copies[:, None], _padded(along_copies, self.max_tokens), _padded(along_drafts, self.max_tokens)
        )
        if len(tokens) > num_clean:
            branch = self._numbers[: batch * (k + 1) : k + 1] + accepted_drafts
            drafts, likely = (part[num_clean:].view(batch * (k + 1), k)[branch] for part in (tokens, confidence))
            drafts = torch.where(use_copies[:, None], 0, drafts)  # no branch saw the copied ones
            drafts, likely = _padded(drafts, self.max_drafts), _padded(_stored(likely), self.max_drafts)
        else:
            drafts = likely = torch.zeros_like(self.drafts[slots])
        result = torch.cat((accepted[:, None], use_copies[:, None].long(), base, drafts, likely), 1)
        if c:
            self._move_copies(slots, past, use_copies, k, c)
        new = past[:, None] + self._numbers[1 : self.max_tokens + 1]
        self.history[slots[:, None], new] = base
        self.last[slots] = base.gather(1, accepted[:, None])[:, 0]
        self.drafts[slots] = drafts
        self.past_length[slots] = past + accepted + 1
        self.past_length[-1:].zero_()  # nobody's text does not grow
        return Accepted(result, torch.where(use_copies, accepted + k, accepted))

    def set_drafts(self, slots: Tensor, drafts: Tensor, confidence: Tensor, result: Tensor) -> None:
        """Set what a draft head has drafted after the newest tokens, [batch, drafts] each, here and in a result."""
        padded = _padded(drafts, self.max_drafts)
        self.drafts[slots] = padded
        result[:, 2 + self.max_tokens :] = torch.cat((padded, _padded(_stored(confidence), self.max_drafts)), 1)

    @torch.inference_mode()
    def replace_drafts(self, slots: list[int], drafts: list[list[int]]) -> None:
        """Give conversations other drafts for their next step, equally many each."""
        device, count = self.drafts.device, len(drafts[0])
        self.drafts[torch.tensor(slots, device=device), :count] = torch.tensor(drafts, device=device).view(-1, count)

    def look_up(self, slots: Tensor, bucket: int) -> None:
        """Copy what followed the newest n-gram's previous occurrence (as `NgramLookup` does on the host), among the
        first `bucket` tokens of the conversations."""
        c = self.num_copies
        if not c:
            return
        history, past = self.history[slots], self.past_length[slots][:, None]
        positions = self._numbers[:bucket]
        start = past + 1 - NGRAM_SIZE
        matches = positions < start
        for n in range(NGRAM_SIZE):
            matches = matches & (history[:, n : bucket + n] == history.gather(1, (start + n).clamp(min=0)))
        previous = torch.where(matches, positions, -1).amax(1, keepdim=True)
        following = previous + self._numbers[NGRAM_SIZE : NGRAM_SIZE + c]
        valid = (previous >= 0) & (following <= past)
        following = following.clamp(max=history.shape[1] - 1)
        self.copied[slots] = torch.where(valid, history.gather(1, following), 0)

    def _move_copies(self, slots: Tensor, past: Tensor, use_copies: Tensor, num_drafts: int, num_copies: int) -> None:
        """Where copied tokens were accepted, move their keys and values to where the drafts' were."""
        targets = past[:, None] + self._numbers[1 : num_copies + 1]
        sources = targets + use_copies[:, None] * num_drafts
        slots = slots[:, None]
        self.keys_values[:, :, slots, :, targets] = self.keys_values[:, :, slots, :, sources]


def read_result(
    row: list[int], num_drafts: int, state: DeviceState, origin: DraftOrigin = "masked"
) -> VerificationResult:
    """A conversation's row of `Accepted.result`, with the first `num_drafts` drafts."""
    accepted, copies_accepted = row[0], row[1]
    tokens, rest = row[2 : 2 + state.max_tokens], row[2 + state.max_tokens :]
    confidence = (part / CONFIDENCE_UNIT for part in rest[state.max_drafts :][:num_drafts])
    drafted = num_drafts and not (copies_accepted and origin == "masked")
    draft = Draft(tuple(rest[:num_drafts]), tuple(confidence), origin) if drafted else NO_DRAFT
    return VerificationResult(tuple(tokens[: accepted + 1]), tuple(range(accepted + 1)), draft)


def _stored(confidence: Tensor) -> Tensor:
    return (confidence * CONFIDENCE_UNIT).long()


def _accepted_length(candidates: Tensor, best: Tensor) -> Tensor:
    """How many candidate tokens, from the first, are what the rows before them predict: [batch]."""
    return (candidates == best[:, : candidates.shape[1]]).long().cumprod(1).sum(1)


def _padded(tokens: Tensor, length: int) -> Tensor:
    missing = length - tokens.shape[1]
    return torch.nn.functional.pad(tokens, (0, missing)) if missing else tokens

"""How the device chooses the tokens of a step where the likeliest ones will not do: among those that a grammar allows,
at random, or with their log probabilities. What the host knows is in tensors that a captured step reads.

`choose` says in plain PyTorch what is chosen; `nn/gpu/choice_kernels.py` does the same in one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from model.decode.constraint import RowRule
from model.decode.device_steps import MAX_TOP, TokenSettings
from model.decode.log_probabilities import TokenLogProbability
from model.decode.sampling import token_at
from model.decode.token_set import TokenSet
from model.engine.device_state import DeviceState
from model.engine.fused_bookkeeping import Launch
from model.nn.step_pass import Predictions

_BLOCK = 4096
"""Tokens that a program of the kernel reads at a time."""

ANY = -1
"""The rule of a row that may choose any token. A mask's number is its rule, and -2 - t allows token t alone."""

_MASK_SETS = 2
"""Masks beside those of the rows: which tokens are lowered at the end of a string, and of another value."""


class TokenChoice:
    """Chooses tokens for the conversation of each slot. The last slot is nobody's, and takes the likeliest ones.

    Args:
        rows: rows of a step that can have a rule, at most.

    Attributes:
        launch: starts kernels; plain PyTorch chooses without it.
        temperature, top_p: [slots] float32.
        top_k, num_top: [slots] int64; 0 for all tokens, and for no log probabilities.
        uniforms: [slots, positions] float32, the random number of each position of the text.
        masks: [rows + 2, vocabulary / 32] int32: bit t % 32 of number t // 32 stands for token t.
        rules: [rows] int64, what each row may choose: a mask, or see `ANY`.
        lowered, by: [rows] int64 and float32, whose logits are lowered (a mask, or -1), and how much.
    """

    def __init__(self, state: DeviceState, vocabulary: int, rows: int, launch: Launch | None = None) -> None:
        self.launch = launch
        slots, positions = state.history.shape
        self._device = device = state.history.device
        self.temperature, self.top_p = (torch.zeros(slots, device=device) for _ in range(2))
        self.top_k, self.num_top = (torch.zeros(slots, dtype=torch.long, device=device) for _ in range(2))
        self.uniforms = torch.zeros(slots, positions, device=device)
        pinned = device.type == "cuda"
        shapes = (
            ((rows + _MASK_SETS, -(-vocabulary // 32)), torch.int32),
            ((2, rows), torch.long),
            ((rows,), torch.float32),
        )
        self.masks, numbers, self.by = (torch.zeros(size, dtype=kind, device=device) for size, kind in shapes)
        self.rules, self.lowered = numbers.fill_(ANY)
        self._numbers, self._vocabulary, self._has_rules = numbers, vocabulary, False
        self._host = [torch.zeros(size, dtype=kind, pin_memory=pinned) for size, kind in shapes]

    @torch.inference_mode()
    def set(self, slot: int, settings: TokenSettings | None) -> None:
        """Say how the tokens of a conversation are chosen."""
        sampling = None if settings is None else settings.sampler.sampling
        self.temperature[slot] = 0.0 if sampling is None else sampling.temperature
        self.num_top[slot] = 0 if settings is None or settings.num_top is None else 1 + settings.num_top
        if settings is not None and sampling is not None and sampling.temperature:
            self.top_k[slot], self.top_p[slot] = sampling.top_k, sampling.top_p
            positions = self.uniforms.shape[1]
            self.uniforms[slot].copy_(settings.sampler.uniforms(positions)[:positions])

    @torch.inference_mode()
    def fill(self, rules: Sequence[Sequence[RowRule]], rows_each: int) -> None:
        """Set the rules of a step, [conversations][rows], before it starts. Those that are missing allow any token.

        Args:
            rows_each: clean rows of a conversation.
        """
        if not any(rules):
            if self._has_rules:
                self._numbers.fill_(ANY)
                self._has_rules = False
            return
        masks, numbers, by = (part.numpy() for part in self._host)
        numbers.fill(ANY)
        places: dict[int, int] = {}

        def mask(tokens: TokenSet) -> int:
            if id(tokens) not in places:
                place = places[id(tokens)] = len(places)
                masks[place] = tokens.view(np.int32)
            return places[id(tokens)]

        for conversation, own in enumerate(rules):
            for row, rule in enumerate(own, conversation * rows_each):
                if isinstance(rule.allowed, int):
                    numbers[0, row] = -2 - rule.allowed
                elif rule.allowed is not None:
                    numbers[0, row] = mask(rule.allowed)
                if rule.lowered is not None:
                    numbers[1, row], by[row] = mask(rule.lowered), rule.by
        self._has_rules = True
        self.masks[: len(places)].copy_(self._host[0][: len(places)], non_blocking=True)
        self._numbers.copy_(self._host[1], non_blocking=True)
        self.by.copy_(self._host[2], non_blocking=True)

    def choose(self, logits: Tensor, slots: Tensor, positions: Tensor, scores: Tensor) -> Predictions:
        """What each row of a step chooses. The first rows are clean; noise rows after them take the likeliest token.

        Args:
            logits: [rows, vocabulary] float32. They may be changed.
            slots, positions: [rows] int64, of the rows' tokens.
            scores: [clean rows, 1 + 2 × MAX_TOP] int32, gets of each clean row the bits of its token's log probability
                and of the highest ones, and their tokens, if its conversation wants them.
        """
        if self.launch is None:
            return self.in_pytorch(logits, slots, positions, scores)
        from model.nn.gpu import choice_kernels

        tokens, confidence = torch.empty_like(slots), logits.new_empty(len(slots))
        self.launch(
            choice_kernels.choose, (len(slots),),
            logits, slots, positions, self.masks, self.rules, self.lowered, self.by, self.temperature, self.top_k,
            self.top_p, self.num_top, self.uniforms, tokens, confidence, scores, self._vocabulary, self.masks.shape[1],
            self.uniforms.shape[1], len(scores), TOP=MAX_TOP, BLOCK=_BLOCK, num_warps=8,
        )  # fmt: skip
        return Predictions(tokens, confidence)

    def in_pytorch(self, logits: Tensor, slots: Tensor, positions: Tensor, scores: Tensor) -> Predictions:
        """`choose` without the kernel. Scores are of all conversations."""
        clean, most = len(scores), min(MAX_TOP, self._vocabulary)
        rules, lowered, slots = self.rules[:clean], self.lowered[:clean], slots[:clean]
        rows = logits[:clean] - torch.where(lowered >= 0, self.by[:clean], 0.0)[:, None] * self._bits(lowered)
        allowed = self._bits(rules) | (rules == ANY)[:, None]
        ids = torch.arange(self._vocabulary, device=logits.device)
        allowed = torch.where((rules < ANY)[:, None], ids == -2 - rules[:, None], allowed)
        rows = rows.masked_fill(~allowed, -torch.inf)
        temperature = self.temperature[slots]
        likely = _distributions(rows, temperature, self.top_k[slots], self.top_p[slots])
        sampled = token_at(likely, self.uniforms[slots, positions[:clean] + 1])
        tokens = torch.where(temperature > 0, sampled, rows.argmax(-1))
        chances = rows.log_softmax(-1)
        chosen, best = chances.gather(1, tokens[:, None]), chances.topk(most)
        scores[:, 0] = chosen[:, 0].view(torch.int32)
        scores[:, 1 : 1 + most] = best.values.view(torch.int32)
        scores[:, 1 + MAX_TOP : 1 + MAX_TOP + most] = best.indices.int()
        noise = logits[clean:].max(-1)
        confidence = (noise.values - logits[clean:].logsumexp(-1)).exp()
        return Predictions(torch.cat((tokens, noise.indices)), torch.cat((chosen[:, 0].exp(), confidence)))

    @torch.inference_mode()
    def agrees(self) -> bool:
        """Whether the kernel chooses what plain PyTorch does, for random logits, rules and settings. Resets them."""
        if self.launch is None:
            return True
        draw, rows, slots = torch.Generator().manual_seed(0), min(16, len(self.rules)), len(self.temperature)
        settings = (self.temperature, self.top_p, self.top_k, self.num_top)
        for part, values in zip(settings, ((0.7, 0.0, 1.3), (0.9, 1.0, 1.0, 0.4), (0, 40), (4, 1)), strict=True):
            part.copy_(torch.tensor([values[slot % len(values)] for slot in range(slots)]))
        self.uniforms.copy_(torch.rand(self.uniforms.shape, generator=draw))
        self.masks.copy_(torch.randint(-(2**31), 2**31, self.masks.shape, generator=draw))
        self.rules[:rows] = torch.tensor([(ANY, 0, -7, 1)[row % 4] for row in range(rows)])
        self.lowered[:rows], self.by[:rows] = (torch.arange(rows) % 3 - 1).to(self._device), 1.5
        logits = 3 * torch.randn(rows, self._vocabulary, generator=draw).to(self._device)
        of_rows, positions = (torch.arange(rows, device=self._device) % size for size in (slots, 7))
        found = []
        try:
            for choose in (self.choose, self.in_pytorch):
                scores = torch.zeros(rows, 1 + 2 * MAX_TOP, dtype=torch.int32, device=self._device)
                made = choose(logits.clone(), of_rows, positions, scores)
                found.append((made.tokens, torch.stack((made.confidence, scores[:, 0].view(torch.float32)))))
        finally:
            for part in (*settings, self.uniforms, self.masks, self.by):
                part.zero_()
            self._numbers.fill_(ANY)
        (tokens, chances), (expected, expected_chances) = found
        same = tokens == expected  # sums in another order may choose a neighbouring token
        close = torch.isclose(chances, expected_chances, rtol=1e-3, atol=1e-5)[:, same]
        return int((~same).sum()) <= rows // 8 and bool(close.all())

    def _bits(self, masks: Tensor) -> Tensor:
        """The tokens of masks [rows]: [rows, vocabulary] bool."""
        words = self.masks[masks.clamp(min=0)]
        bits = words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=words.device) & 1
        return bits.flatten(1)[:, : self._vocabulary].bool()


def read_scores(scores: Tensor, tokens: Sequence[int], num_top: int) -> tuple[TokenLogProbability, ...]:
    """The log probabilities of tokens, from their rows of `TokenChoice.choose`'s scores on the host."""
    found = []
    for token, row in zip(tokens, scores, strict=False):
        value, *values = row[: 1 + num_top].view(torch.float32).tolist()
        top = zip(row[1 + MAX_TOP :].tolist(), values, strict=False)
        found.append(TokenLogProbability(token, value, tuple((one, high) for one, high in top if high > -torch.inf)))
    return tuple(found)


def forbidden_token(rule: RowRule) -> int:
    """A token that a row cannot choose; 0 if it may choose any."""
    if rule.allowed is None:
        return 0
    if isinstance(rule.allowed, int):
        return int(rule.allowed == 0)
    place = int((rule.allowed != 255).argmax())
    return 8 * place + next((bit for bit in range(8) if not rule.allowed[place] >> bit & 1), 0)


def _distributions(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """What `probabilities` computes, with settings of its own for each row [rows]; not for a temperature of 0."""
    size = logits.shape[-1]
    scaled = logits / torch.where(temperature > 0, temperature, 1.0)[:, None]
    last = torch.where(top_k > 0, top_k, size).clamp(max=size)[:, None] - 1
    floor = scaled.sort(descending=True).values.gather(1, last)
    distribution = scaled.masked_fill(scaled < floor, -torch.inf).softmax(-1)
    ordered = distribution.sort(descending=True).values
    likely = ordered.cumsum(-1) - ordered < torch.where(top_p < 1, top_p, 2.0)[:, None]
    floor = ordered.masked_fill(~likely, torch.inf).amin(-1, keepdim=True)
    return distribution.masked_fill(distribution < floor, 0.0)

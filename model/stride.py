"""A pass of draft and verify as one piece of work for a GPU: rows, layers, acceptance and the next pass's drafts are
computed from what the pass before left on the device, captured once as a CUDA graph and replayed.

For one conversation that speaks greedily; what is shared by several, or sampled, goes through `Decoder.run`. All
shapes are fixed: k drafts, c tokens copied from the conversation, a branch of k noise rows for each outcome of the
drafts, (k + 1)² + c rows. The device looks copies up itself, because the host is a pass behind. Drafts and copies that
nobody made are zeros, which are checked like any others. The host gets one small copy a pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.adapter import Adapter
from model.attention import attend, mask_behind
from model.cache import KeyValueCache
from model.decode.draft import NOTHING, Draft
from model.decode.lookup import NEWEST
from model.decode.verify import Outcome, sees
from model.sampling import chances
from model.transformer import Decoder, Gate

_BUCKETS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Attention looks at so many positions: one graph for each."""

_SURE = 1_000_000
"""Confidence is copied in such parts, among the token ids."""


@dataclass
class _State:
    """What one pass leaves for the next, on the device."""

    past: Tensor
    last: Tensor
    drafts: Tensor
    copied: Tensor
    history: Tensor
    """[room] int64, every token of the conversation, the last one at `past`."""
    said: Tensor
    """int64, the one thing that is copied to the host: how many drafts or copies were accepted, whether copies were,
    the base model's tokens along them (max(k, c) + 1), k drafts, and their confidence in millionths."""


@dataclass(frozen=True)
class _Flight:
    """A pass under way: where its copy arrives, and when."""

    said: Tensor
    landed: torch.cuda.Event | None


class Strider:
    """Runs one conversation's passes at a time.

    Args:
        decoder: the model.
        adapter: what drafts; without one the model's own mask token does, if it has one.
        slots: drafts of a pass.
        context: tokens that a conversation may span.
        copies: tokens of a pass that are copied from the conversation.
    """

    def __init__(self, decoder: Decoder, adapter: Adapter | None, slots: int, context: int, copies: int = 0) -> None:
        drafts = adapter is not None or decoder.mask_token is not None
        self._decoder, self._adapter, self._slots = decoder, adapter, slots if drafts else 0
        device, k, c = decoder.device, self._slots, copies
        self._copies, self._most = c, max(k, c) + 1
        self.rows = (k + 1) ** 2 + c
        length = next((size for size in _BUCKETS if size >= context + self.rows), context + self.rows)
        shape = (2, len(decoder.layers), decoder.config.kv_heads, length, decoder.config.head_dim)
        self._stored = torch.zeros(shape, dtype=decoder.dtype, device=device)
        self._keys, self._values = ([*part] for part in self._stored)
        self._length = length
        branches = [r + 1 + s for r in range(k + 1) for s in range(k)]
        self._offsets = torch.tensor([*range(k + 1), *range(1, c + 1), *branches], device=device)
        self._sees = sees(k, c, k).to(device)

        def numbers(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.long, device=device)

        self._state = _State(
            past=numbers(1), last=numbers(1), drafts=numbers(k), copied=numbers(c),
            history=numbers(length + self._most), said=numbers(2 + self._most + 2 * k),
        )  # fmt: skip
        self._ahead: _Flight | None = None
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None
        self._cache: KeyValueCache | None = None
        self._began = 0

    def begin(self, cache: KeyValueCache, last: int, draft: Draft) -> None:
        """Take a conversation aboard: what it holds, its last committed token, its drafts."""
        count = len(cache.tokens)
        for mine, theirs in zip((*self._keys, *self._values), cache.stored(), strict=True):
            mine[:, :count] = theirs[:, :count]
        drafts = (*draft.tokens[: self._slots], *[0] * (self._slots - len(draft.tokens)))
        self._state.past.fill_(count)
        self._state.last.fill_(last)
        self._state.drafts.copy_(torch.tensor(drafts, dtype=torch.long))
        self._state.history[: count + 1].copy_(torch.tensor([*cache.tokens, last], dtype=torch.long))
        self._look_up(self._length)
        self._cache, self._began, self._ahead = cache, count, None
        cache.aboard_from = count

    def land(self) -> None:
        """Give the conversation's keys and values back to its own cache, up to what it knows to be committed."""
        cache = self._cache
        if cache is None:
            return
        count, start = len(cache.tokens), self._began
        self._cache = self._ahead = cache.aboard_from = None
        try:
            cache.store(start, count, [mine[:, start:count] for mine in (*self._keys, *self._values)])
        except Exception:  # no memory for them: they are read again
            cache.truncate(start)
            raise

    def warm_up(self) -> None:
        """Capture every graph, the largest first: later ones take its memory, and no answer waits for them."""
        if self._decoder.device.type == "cuda":
            for bucket in sorted({*(size for size in _BUCKETS if size < self._length), self._length}, reverse=True):
                self._graph(bucket)

    def fits(self, cache: KeyValueCache) -> bool:
        """Whether there is room for two more passes, and the model has positions for them."""
        count, positions = len(cache.tokens), self._decoder.config.context_length
        reach = self._most + max(2 * self._slots, self._copies) + 1
        return count + 2 * self.rows <= self._length and count + reach <= positions

    @torch.inference_mode()
    def step(self) -> Outcome:
        """What the next pass comes to. The tokens that are kept are noted in the cache by the caller; their keys stay
        here. The pass behind it is already under way when this returns, so the device does not wait for the host."""
        flight = self._ahead or self._launch(self.rows)
        self._ahead = self._launch(2 * self.rows)
        if flight.landed is not None:
            flight.landed.synchronize()
        (accepted, copied), said = (all_ := flight.said.tolist())[:2], all_[2:]
        base, drafts, sure = said[: self._most], said[self._most :][: self._slots], said[self._most + self._slots :]
        draft = NOTHING if copied else Draft(tuple(drafts), None, tuple(part / _SURE for part in sure))
        return Outcome(tuple(base[: accepted + 1]), tuple(range(accepted + 1)), draft)

    def _launch(self, needed: int) -> _Flight:
        """Start a pass, and the copy of what it comes to."""
        assert self._cache is not None
        needed += len(self._cache.tokens)
        bucket = next((size for size in _BUCKETS if needed <= size <= self._length), self._length)
        if self._decoder.device.type != "cuda":
            self._run(bucket)
            return _Flight(self._state.said.clone(), None)
        self._graph(bucket).replay()
        said = self._state.said.to("cpu", non_blocking=True)
        landed = torch.cuda.Event()  # type: ignore[no-untyped-call]
        landed.record()
        return _Flight(said, landed)

    def _graph(self, bucket: int) -> torch.cuda.CUDAGraph:
        """The captured pass for a bucket. Capturing runs it, so the state is put back."""
        if bucket not in self._graphs:
            state = self._state
            parts = (state.past, state.last, state.drafts, state.copied, state.history, state.said)
            kept = [part.clone() for part in parts]
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self._run(bucket)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                self._run(bucket)
            self._pool = graph.pool()
            for part, old in zip(parts, kept, strict=True):
                part.copy_(old)
            self._graphs[bucket] = graph
        return self._graphs[bucket]

    def _run(self, bucket: int) -> None:
        """The pass itself: fixed shapes, no word from or to the host."""
        decoder, adapter, state = self._decoder, self._adapter, self._state
        clean = self._slots + 1 + self._copies
        positions = state.past + self._offsets
        places = state.past + torch.arange(self.rows, device=positions.device)
        mask = mask_behind(state.past, self._sees, bucket)
        spare = state.last.expand(self.rows - clean)
        x = decoder.embedding(torch.cat((state.last, state.drafts, state.copied, spare)))
        if self._slots:
            x[clean:] = self._mask_embedding()
        gate = None if adapter is None else Gate(adapter, slice(clean, self.rows))
        turns = decoder.turns(positions)
        for number, layer in enumerate(decoder.layers):
            keys, values = self._keys[number], self._values[number]

            def attention(
                query: Tensor, key: Tensor, value: Tensor, keys: Tensor = keys, values: Tensor = values
            ) -> Tensor:
                keys.index_copy_(1, places, key.transpose(0, 1))
                values.index_copy_(1, places, value.transpose(0, 1))
                return attend(query, keys[:, :bucket], values[:, :bucket], mask)

            x = decoder.run_layer(layer, x, turns, attention, None if gate is None else gate.on(number))
        logits = decoder.head(decoder.normalize(x, decoder.norm))
        if decoder.mask_token is not None:
            logits[:, decoder.mask_token] = -torch.inf
        self._accept(logits, logits.argmax(-1))
        self._look_up(bucket)

    def _accept(self, logits: Tensor, best: Tensor) -> None:
        """How many drafts, or copies where those are more, are what the base model says; what it says next; the branch
        that saw exactly that."""
        state, k, c = self._state, self._slots, self._copies
        drafted, along = _agreed(state.drafts, best[: k + 1]), torch.cat((best[:1], best[k + 1 : k + 1 + c]))
        copied = _agreed(state.copied, along)
        use = copied > drafted
        accepted = torch.where(use, copied, drafted)
        base = torch.where(use, _padded(along, self._most), _padded(best[: k + 1], self._most))
        branch = k + 1 + c + drafted * k + torch.arange(k, device=best.device)
        drafts = torch.where(use, 0, best[branch])  # no branch saw the copies
        sure = chances(logits[branch], best[branch])
        state.said.copy_(torch.cat((accepted, use.long(), base, drafts, (sure * _SURE).long())))
        if c:
            self._move(use)
        new = torch.arange(1, self._most + 1, device=best.device)
        state.history.index_copy_(0, state.past + new, base)
        state.last.copy_(base[accepted])
        state.drafts.copy_(drafts)
        state.past.add_(accepted + 1)

    def _move(self, use: Tensor) -> None:
        """Where copies were accepted, their keys and values take the drafts' places."""
        to = torch.arange(1, self._copies + 1, device=use.device)
        kept = self._stored.index_select(3, self._state.past + to + use * self._slots)
        self._stored.index_copy_(3, self._state.past + to, kept)

    def _look_up(self, bucket: int) -> None:
        """What followed the last place where the newest tokens stood before (`lookup.LookUp`)."""
        state, c = self._state, self._copies
        if not c:
            return
        place = torch.arange(bucket, device=state.past.device)
        start = state.past + 1 - NEWEST
        same = place < start
        for n in range(NEWEST):
            newest = state.history[(start + n).clamp(min=0)]
            same &= state.history[n : bucket + n] == newest
        found = torch.where(same, place, -1).amax(0, keepdim=True)
        after = (found + NEWEST + torch.arange(c, device=place.device)).clamp(max=len(state.history) - 1)
        known = (found >= 0) & (after <= state.past)
        state.copied.copy_(torch.where(known, state.history[after], 0))

    def _mask_embedding(self) -> Tensor:
        """What noise rows enter with."""
        if self._adapter is not None:
            return self._adapter.mask
        return self._decoder.embedding(torch.full_like(self._state.last, self._decoder.mask_token or 0))


def _agreed(chain: Tensor, best: Tensor) -> Tensor:
    """How many tokens of a chain are what the rows before them say: [1]."""
    return (chain == best[: len(chain)]).long().cumprod(0).sum(0, keepdim=True)


def _padded(tokens: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(tokens, (0, size - len(tokens)))

"""A pass of draft and verify as one piece of work for a GPU: rows, layers, acceptance and the next pass's drafts are
computed from what the pass before left on the device, captured once as a CUDA graph and replayed.

For one conversation that speaks greedily; what is shared by several, or sampled, goes through `Decoder.run`. All
shapes are fixed: k drafts, a branch of k noise rows for each outcome, (k + 1)² rows. Nothing is copied from the
conversation meanwhile: the host, which would look it up, is a pass behind. Drafts that nobody made are zeros, which
are checked like any others. The host gets one small copy a pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.adapter import Adapter
from model.attention import attend, mask_behind
from model.cache import KeyValueCache
from model.decode.draft import Draft
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
    said: Tensor
    """[3k + 2] int64, the one thing that is copied to the host: how many drafts were accepted, k + 1 base tokens, k
    drafts, and their confidence in millionths."""


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
    """

    def __init__(self, decoder: Decoder, adapter: Adapter | None, slots: int, context: int) -> None:
        drafts = adapter is not None or decoder.mask_token is not None
        self._decoder, self._adapter, self._slots = decoder, adapter, slots if drafts else 0
        device, k = decoder.device, self._slots
        self.rows = (k + 1) ** 2
        length = next((size for size in _BUCKETS if size >= context + self.rows), context + self.rows)
        shape = (decoder.config.kv_heads, length, decoder.config.head_dim)
        self._keys = [torch.zeros(shape, dtype=decoder.dtype, device=device) for _ in decoder.layers]
        self._values = [torch.zeros(shape, dtype=decoder.dtype, device=device) for _ in decoder.layers]
        self._length = length
        offsets = [*range(k + 1), *(r + 1 + s for r in range(k + 1) for s in range(k))]
        self._offsets = torch.tensor(offsets, device=device)
        self._sees = sees(k, 0, k).to(device)
        self._state = _State(
            past=torch.zeros(1, dtype=torch.long, device=device),
            last=torch.zeros(1, dtype=torch.long, device=device),
            drafts=torch.zeros(k, dtype=torch.long, device=device),
            said=torch.zeros(3 * k + 2, dtype=torch.long, device=device),
        )
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
        return count + 2 * self.rows <= self._length and count + 3 * self._slots + 2 <= positions

    @torch.inference_mode()
    def step(self) -> Outcome:
        """What the next pass comes to. The tokens that are kept are noted in the cache by the caller; their keys stay
        here. The pass behind it is already under way when this returns, so the device does not wait for the host."""
        flight = self._ahead or self._launch(self.rows)
        self._ahead = self._launch(2 * self.rows)
        if flight.landed is not None:
            flight.landed.synchronize()
        k = self._slots
        said = flight.said.tolist()
        accepted, base, drafts, sure = said[0], said[1 : k + 2], said[k + 2 : 2 * k + 2], said[2 * k + 2 :]
        draft = Draft(tuple(drafts), None, tuple(part / _SURE for part in sure))
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
            parts = (state.past, state.last, state.drafts, state.said)
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
        decoder, adapter, state, k = self._decoder, self._adapter, self._state, self._slots
        clean = k + 1
        positions = state.past + self._offsets
        places = state.past + torch.arange(self.rows, device=positions.device)
        mask = mask_behind(state.past, self._sees, bucket)
        x = decoder.embedding(torch.cat((state.last, state.drafts, state.last.expand(self.rows - clean))))
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

    def _accept(self, logits: Tensor, best: Tensor) -> None:
        """How many drafts are what the base model says; what it says next; the branch that saw exactly that."""
        state, k = self._state, self._slots
        accepted = (state.drafts == best[:k]).long().cumprod(0).sum(0, keepdim=True)
        branch = k + 1 + accepted * k + torch.arange(k, device=best.device)
        drafts = best[branch]
        sure = chances(logits[branch], drafts)
        state.said.copy_(torch.cat((accepted, best[: k + 1], drafts, (sure * _SURE).long())))
        state.last.copy_(best[accepted])
        state.drafts.copy_(drafts)
        state.past.add_(accepted + 1)

    def _mask_embedding(self) -> Tensor:
        """What noise rows enter with."""
        if self._adapter is not None:
            return self._adapter.mask
        return self._decoder.embedding(torch.full_like(self._state.last, self._decoder.mask_token or 0))

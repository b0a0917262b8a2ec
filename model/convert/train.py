"""`rejoinder convert train`: a frozen base model, an adapter that learns to draft, a budget of steps or of time.

Every draw of a step follows from the seed and the step's number, so a run that was stopped goes on exactly as it
would have. With a budget of steps two runs on one device are the same; with a budget of time the schedule follows
the clock, so that the learning rate has come down when the time is over.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from model.adapter import Adapter, LowRank, random_adapter
from model.convert.corpus import Corpus, Text
from model.convert.generate import likeliest
from model.convert.lanes import Instructions, Lanes, padded_together
from model.convert.student import Blocks, Loss, draw_blocks, first_blocks, learn, noise_states, refined
from model.engine import LoadedModel
from model.gguf_file import BadModelFile
from model.store import write_whole
from model.transformer import Decoder

_SAVE_EVERY = 120.0
"""Seconds between two checkpoints: what a crash or an end of the machine may cost."""

_HELD_OUT = 48
"""Texts that are never trained on and tell how many drafts would be accepted."""

_PROBE_BLOCKS = 24
"""Blocks of each held-out text that are looked at."""

_RANDOM_TOKENS = 4096
"""Where probabilities are compared over the text's own tokens, this many others are drawn anew at each step, so that
none of them can grow unseen."""


_WINDOW = 8
"""Steps whose texts are sorted by length together."""


@dataclass(frozen=True)
class Plan:
    """How to train.

    Attributes:
        minutes, steps: the budget; the one that is not None counts.
        seed: of the adapter's beginning and of all draws.
        rank: of the low-rank changes.
        texts, rows: texts of a step, and noise rows of each; shorter blocks are more.
        curriculum: pairs of a share of the budget and the size of blocks from there on.
        rate: peak learning rate of A; B learns twice as fast (LoRA+, arXiv 2402.12354).
        refined: share of blocks that hold some tokens already, as a second pass meets them.
        variation: weight of the total variation.
        first_cross_entropy, cross_entropy: weight beside it, in the first 15 % of the budget and after.
        decay: weight of a row against the one before it.
        whole_vocabulary: compare probabilities over the whole vocabulary, not over the tokens of the text and some
            thousand others. The head is a quarter of the work.
    """

    minutes: float | None = 90.0
    steps: int | None = None
    seed: int = 1
    rank: int = 32
    texts: int = 12
    rows: int = 96
    curriculum: tuple[tuple[float, int], ...] = ((0.0, 2), (0.2, 4))
    rate: float = 1e-3
    refined: float = 0.15
    variation: float = 1.0
    first_cross_entropy: float = 1.0
    cross_entropy: float = 0.2
    decay: float = 0.8
    whole_vocabulary: bool = False

    @property
    def slots(self) -> int:
        """Rows of the largest block."""
        return max(size for _, size in self.curriculum)


@dataclass(frozen=True)
class Moment:
    """Where the training stands; one line of the log.

    Attributes:
        done: share of the budget.
        noise_tokens: rows that were learned from.
        acceptance: on held-out text, how often the first, the first two, … drafts are all what the base model says;
            None where it was not looked at.
    """

    step: int
    seconds: float
    done: float
    noise_tokens: int
    loss: float
    variation: float
    tokens_per_second: float
    acceptance: tuple[float, ...] | None = None


def train(
    model: LoadedModel,
    corpus: Corpus,
    plan: Plan,
    folder: Path,
    *,
    base_bytes: int = 0,
    report: Callable[[Moment], None] = lambda moment: None,
    probe_every: float | None = 300.0,
) -> Adapter:
    """Train, or go on with what `folder` holds.

    Writes `state.pt` (to resume), `adapter.safetensors` and `log.jsonl` into `folder` every two minutes.

    Args:
        model: the base model, with float weights.
        base_bytes: size of the model's file, by which a shipped adapter is found.
        probe_every: seconds between two looks at the held-out text; None for one at the end.

    Raises:
        BadModelFile: the folder holds another training, or the corpus is too small.
    """
    return _Training(model, corpus, plan, folder, base_bytes).run(report, probe_every)


class _Training:
    def __init__(self, model: LoadedModel, corpus: Corpus, plan: Plan, folder: Path, base_bytes: int) -> None:
        decoder = model.decoder
        texts = [text for text in corpus.texts if any(end - begin > 2 for begin, end in text.spans)]
        if len(texts) < 2 * plan.texts:
            raise BadModelFile(
                f"{len(texts)} texts are too few to learn from: write more with `rejoinder convert data`"
            )
        held = min(_HELD_OUT, len(texts) // 4)
        self._held, self._texts = texts[:held], texts[held:]
        self._decoder, self._plan, self._folder, self._base = decoder, plan, folder, corpus.base
        self._about, self._base_bytes = corpus.about, base_bytes
        longest = max(len(text.tokens) for text in texts)
        self._lanes = Lanes(decoder, plan.texts, longest + plan.slots)
        self._instructions = Instructions(self._lanes, model.stop_tokens)
        self._rest = [len(text.tokens) - self._instructions.count(text.tokens) for text in self._texts]
        self._adapter = _beginning(decoder, plan)
        self._leaves = _leaves(self._adapter)
        ups = [low.b for layer in self._adapter.layers for low in layer.values()]
        others = [leaf for leaf in self._leaves if all(leaf is not up for up in ups)]
        groups = [{"params": others, "scale": 1.0}, {"params": ups, "scale": 2.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0)
        seen = _unique(torch.tensor([token for text in texts for token in text.tokens]))
        self._seen = None if plan.whole_vocabulary else seen.to(decoder.device)
        self._step = self._noise_tokens = 0
        self._seconds = 0.0
        self._acceptance: tuple[float, ...] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def run(self, report: Callable[[Moment], None], probe_every: float | None) -> Adapter:
        saved = self._seconds
        probed = -math.inf
        log = (self._folder / "log.jsonl").open("a", encoding="utf-8")
        with log:
            while self._done() < 1:
                began, before = time.monotonic(), self._noise_tokens
                loss, variation = self._learn()
                self._seconds += time.monotonic() - began
                acceptance = None
                due = probe_every is not None and self._seconds - probed >= probe_every
                if due or self._done() >= 1:
                    acceptance = self._acceptance = self.probe()
                    probed = self._seconds
                speed = (self._noise_tokens - before) / (time.monotonic() - began)
                moment = Moment(
                    self._step, round(self._seconds, 1), min(self._done(), 1.0), self._noise_tokens,
                    round(loss, 4), round(variation, 4), round(speed, 1), acceptance,
                )  # fmt: skip
                log.write(json.dumps(asdict(moment)) + "\n")
                log.flush()
                report(moment)
                if self._seconds - saved >= _SAVE_EVERY:
                    self._save()
                    saved = self._seconds
        self._save()
        return self._finished()

    def _done(self) -> float:
        plan = self._plan
        if plan.steps is not None:
            return self._step / plan.steps
        return self._seconds / (60 * (plan.minutes or 0.001))

    def _learn(self) -> tuple[float, float]:
        """One step: loss and total variation."""
        plan, done = self._plan, self._done()
        draw = torch.Generator().manual_seed(plan.seed * 1_000_003 + self._step)
        size = next(size for since, size in reversed(plan.curriculum) if done >= since)
        texts = self._pick()
        blocks = _moved(draw_blocks(texts, size, plan.rows // size, draw), self._decoder.device)
        padded, states, starts = self._read(texts)
        adapter = self._adapter.to(self._decoder.device, self._decoder.dtype)
        seen = padded.shape[1]
        if plan.refined:
            first = first_blocks(blocks, max(1, round(plan.refined * plan.rows / size)))
            with torch.no_grad():
                guesses = self._guesses(noise_states(self._decoder, adapter, self._lanes, seen, first))
            blocks = refined(blocks, guesses, padded, draw)
        teacher = _at(states, blocks.positions - starts)
        student = noise_states(self._decoder, adapter, self._lanes, seen, blocks)
        entropy = plan.first_cross_entropy if done < 0.15 else plan.cross_entropy
        loss = Loss(entropy, plan.variation, plan.decay, self._vocabulary(draw))
        gradient, value, variation = learn(self._decoder, student, teacher, blocks, loss)
        torch.autograd.backward([student], [gradient])
        torch.nn.utils.clip_grad_norm_(self._leaves, 1.0)
        for group in self._optimizer.param_groups:
            group["lr"] = plan.rate * group["scale"] * _rate(done)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        self._noise_tokens += int(blocks.counts.sum())
        return value, variation

    def _pick(self) -> list[Text]:
        """The texts of this step: every one once, in another order each time around. Those of a step are of like
        length, since all are padded to the longest."""
        count, plan = self._plan.texts, self._plan
        a_round = len(self._texts) // count
        draw = random.Random(f"{plan.seed} {self._step // a_round}")
        order = list(range(len(self._texts)))
        draw.shuffle(order)
        windows = [order[at : at + _WINDOW * count] for at in range(0, len(order), _WINDOW * count)]
        alike = [n for window in windows for n in sorted(window, key=lambda n: self._rest[n])]
        at = draw.sample(range(a_round), a_round)[self._step % a_round] * count
        return [self._texts[n] for n in alike[at : at + count]]

    def _read(self, texts: Sequence[Text]) -> tuple[Tensor, Tensor, Tensor]:
        """The clean half, read once for all blocks of these texts.

        Returns:
            The texts padded [texts, tokens]; the base model's states behind their instructions; and at which
            position those begin, [texts, 1].
        """
        device = self._decoder.device
        heads = [self._instructions.put(lane, text.tokens) for lane, text in enumerate(texts)]
        padded = padded_together([text.tokens for text in texts])
        rest = padded_together([text.tokens[head:] for text, head in zip(texts, heads, strict=True)])
        starts, lanes = torch.tensor(heads, device=device), torch.arange(len(texts), device=device)
        states = self._lanes.read(rest.to(device), starts, lanes, seen=padded.shape[1])
        return padded.to(device), states, starts[:, None]

    def _guesses(self, states: Tensor) -> Tensor:
        return likeliest(self._decoder, states.flatten(0, 1), 1)[1].view(states.shape[:2])

    def _vocabulary(self, draw: torch.Generator) -> Tensor | None:
        if self._seen is None:
            return None
        others = torch.randint(self._decoder.config.vocab_size, (_RANDOM_TOKENS,), generator=draw)
        return _unique(torch.cat((self._seen, others.to(self._seen.device))))

    @torch.no_grad()
    def probe(self) -> tuple[float, ...]:
        """Acceptance on the held-out texts, slot by slot, all drafts made in one pass."""
        draw = torch.Generator().manual_seed(self._plan.seed)
        adapter = self._adapter.to(self._decoder.device, self._decoder.dtype)
        slots = self._plan.slots
        agreed = torch.zeros(slots)
        tried = torch.zeros(slots)
        for at in range(0, len(self._held), self._plan.texts):
            texts = self._held[at : at + self._plan.texts]
            blocks = _moved(draw_blocks(texts, slots, _PROBE_BLOCKS, draw), self._decoder.device)
            padded, states, starts = self._read(texts)
            teacher = self._guesses(_at(states, blocks.positions - starts))
            student = self._guesses(noise_states(self._decoder, adapter, self._lanes, padded.shape[1], blocks))
            shape = (*blocks.starts.shape, slots)
            counts = blocks.counts.view(shape)
            same = ((student == teacher).view(shape) & counts).cumprod(-1)
            agreed += same.sum((0, 1)).cpu()
            tried += counts.sum((0, 1)).cpu()
        return tuple(round(float(part), 4) for part in agreed / tried.clamp(min=1))

    def _finished(self) -> Adapter:
        """The adapter as it is now, with what there is to know about it."""
        plan, about = self._plan, self._about
        said = {
            "recipe": json.dumps({k: v for k, v in asdict(plan).items() if k != "seed"}),
            "seed": str(plan.seed),
            "base_bytes": str(self._base_bytes),
            "noise_tokens": str(self._noise_tokens),
            "steps": str(self._step),
            "minutes": str(round(self._seconds / 60, 1)),
            "device": _device_name(self._decoder.device),
            "slot_acceptance": json.dumps(self._acceptance),
            "text": json.dumps(about),
        }
        plain = self._adapter.to(torch.device("cpu"), torch.float32)
        layers = tuple(
            {n: LowRank(low.a.detach(), low.b.detach()) for n, low in layer.items()} for layer in plain.layers
        )
        return Adapter(plain.mask.detach(), layers, self._base, plan.slots, said)

    def _save(self) -> None:
        state = {
            "plan": json.dumps(asdict(self._plan)),
            "base": self._base,
            "leaves": self._leaves,
            "optimizer": self._optimizer.state_dict(),
            "step": self._step,
            "noise_tokens": self._noise_tokens,
            "seconds": self._seconds,
            "acceptance": self._acceptance,
        }
        write_whole(self._folder / "state.pt", lambda partial: torch.save(state, partial))
        self._finished().save(self._folder / "adapter.safetensors")

    def _resume(self) -> None:
        path = self._folder / "state.pt"
        if not path.exists():
            return
        try:
            state = torch.load(path, map_location=self._decoder.device, weights_only=True)
            theirs = json.loads(state["plan"])
        except Exception as error:  # torch.load raises whatever unpickling does
            raise BadModelFile(f"{path} cannot be read ({error}): remove it to start over") from None
        mine, usual = (json.loads(json.dumps(asdict(plan))) for plan in (self._plan, Plan()))
        theirs = {**usual, **theirs}  # what an older plan does not say came later, and was then as is usual now
        differs = [key for key in mine if mine[key] != theirs[key] and key not in ("minutes", "steps")]
        if state["base"] != self._base or differs:
            what = ", ".join(differs) or "other weights"
            raise BadModelFile(f"{self._folder} holds a training with another plan ({what}): choose another folder")
        with torch.no_grad():
            for leaf, old in zip(self._leaves, state["leaves"], strict=True):
                leaf.copy_(old)
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._noise_tokens = int(state["step"]), int(state["noise_tokens"])
        self._seconds = float(state["seconds"])
        self._acceptance = state.get("acceptance")


def _beginning(decoder: Decoder, plan: Plan) -> Adapter:
    """An adapter that changes nothing yet; a masked row enters as the mean of all embeddings."""
    device = decoder.device
    start = random_adapter(decoder.config, plan.rank, plan.slots, plan.seed, spread=0.0).to(device, torch.float32)
    every = torch.arange(decoder.config.vocab_size, device=device)
    mean = torch.stack([decoder.embedding(part).float().sum(0) for part in torch.split(every, 8192)]).sum(0) / len(
        every
    )
    adapter = replace(start, mask=mean)
    for leaf in _leaves(adapter):
        leaf.requires_grad_()
    return adapter


def _leaves(adapter: Adapter) -> list[Tensor]:
    lows = [low for layer in adapter.layers for low in layer.values()]
    return [adapter.mask, *(low.a for low in lows), *(low.b for low in lows)]


def _at(states: Tensor, positions: Tensor) -> Tensor:
    """The states [texts, tokens, hidden] at positions [texts, rows]."""
    where = positions.clamp(max=states.shape[1] - 1)
    return states.gather(1, where[..., None].expand(-1, -1, states.shape[-1]))


def _moved(blocks: Blocks, device: torch.device) -> Blocks:
    return Blocks(blocks.size, blocks.starts.to(device), blocks.tokens.to(device), blocks.counts.to(device))


def _rate(done: float) -> float:
    """Up within 2 % of the budget, then down to a tenth along a cosine."""
    if done < 0.02:
        return max(done / 0.02, 0.02)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, (done - 0.02) / 0.98)))


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} CPU cores"


def _unique(ids: Tensor) -> Tensor:
    found: Tensor = torch.unique(ids)
    return found

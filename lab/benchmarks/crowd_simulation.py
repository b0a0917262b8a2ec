"""Plans how many conversations a GPU holds, without a GPU: the engine's scheduler on a virtual clock.

    python -m lab.benchmarks.crowd_simulation [--gpu H200] [--model 0.5b|1.5b] [--grammars] [--seed 1]

**Its figures are simulated.** A step of the language model costs what its bytes, its arithmetic and its graph nodes
take, as far as a GPU attains them, or the host's part, if that is longer. `python -m lab.benchmarks.gpu_acceptance`
measures steps and crowds, with which to correct these costs. Speech recognition and synthesis are not part of it
(`lab.benchmarks.speech_cost`).
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B
from lab.benchmarks.gpu_acceptance.roofline import (
    BANDWIDTH,
    DRAFTER_BYTES,
    NODE_US,
    OTHER_KERNELS,
    STORED_BYTES,
    drafter_kernels,
    step_roofline,
)
from model.checkpoint.checkpoint import DecoderConfig
from model.decode.draft_length import best_num_drafts
from model.engine.cuda_graph import host_seconds
from model.engine.scheduler import Request, schedule
from model.nn.adapter import projection_shapes
from model.nn.forward_batch import GPU_PREFILL_CHUNK, ForwardInput
from model.nn.kv_cache import KeyValueCache

ACCEPTANCE = (0.45, 0.2, 0.1, 0.05)
"""How often the first, the first two, … drafts are accepted: 1.8 tokens a step with four, as measured in spoken
responses on a CPU (1.64 to 1.95)."""

_ATTAINED_BANDWIDTH, _ATTAINED_TERAFLOPS = 0.7, 300.0
"""Share of the nominal bandwidth that kernels attain, and what small tiles attain of an H100's nominal 989 TFLOP/s in
bfloat16. Guesses: the acceptance measures both."""

EAGER_KERNELS, LOOPED_KERNELS, _EAGER_US = 16, 18, 5.0
"""Kernels a layer of a forward pass that reads prompts, and as many more for each conversation after the first if each
has an attention of its own (a test counts both); and µs that starting one takes the host."""

_MASK_US = 47.0
"""µs in which the host makes the mask of a row on one thread, with up to 320 rows (`lab.benchmarks.grammar_masks`)."""

_LOGIT_PASSES, _ROW_GIGABYTES_PER_S, _ROWS_AT_ONCE = 4, 100.0, 132
"""How often a step that chooses tokens writes or reads its logits; how fast a multiprocessor does, each of which has a
row (a guess); and how many there are."""

_UPLOAD_GIGABYTES_PER_S = 25.0
"""To the GPU over PCIe 4."""

_COPIES, _COPY_ROWS = 7, 256
"""As in `CUDAGraphRunner`."""

_SIZES = (1, 2, 4, 8, 16, 32, 64)
_CLAUSE_TOKENS, _RESPONSE_TOKENS, _TEXT_TOKENS = 10, (30, 90), (300, 1500)
_QUESTION_TOKENS, _SPEAKING_S, _READ_AHEAD_S, _LAST_TOKENS = (8, 30), (2.0, 6.0), 0.5, 8
"""A turn: a question that is read ahead while it is spoken, whose last words are read when it has ended, and a
response, which is heard at `_SPOKEN_TOKENS_PER_S` before the next turn."""

_SPOKEN_TOKENS_PER_S, _PAUSE_S = 4.0, (0.5, 3.0)


@dataclass(frozen=True)
class Costs:
    """What forward passes of a model cost on a GPU.

    Attributes:
        gigabytes_per_s: nominal.
        max_drafts: drafts of a block drafter for a conversation in a step, 0 without a drafter.
        looped: whether the attention of prompts is computed for one conversation after the other.
        grammars: whether all responses follow a grammar. Then a step waits for the result of the one before it, and
            for its masks.
        weight_bytes: of the weights that a step reads; those of bfloat16 when not given.
    """

    config: DecoderConfig
    gigabytes_per_s: float
    max_drafts: int = 4
    looped: bool = False
    grammars: bool = False
    weight_bytes: float | None = None

    @property
    def num_weights(self) -> int:
        """Weights that every row is multiplied by."""
        c = self.config
        return c.layers * sum(a * b for a, b in projection_shapes(c).values()) + c.vocab_size * c.hidden

    def step_ms(self, batch: int, drafts: int, past: int) -> float:
        """ms of a step of the attached conversations.

        Args:
            past: earlier tokens of all of them.
        """
        copies = _COPIES if batch == 1 or batch * (1 + self.max_drafts + _COPIES) <= _COPY_ROWS else 0
        rows = batch * (1 + drafts + (0 if self.grammars else copies))
        step = step_roofline(self.config, 2, 0, past, OTHER_KERNELS)
        num_bytes = step.num_bytes + (DRAFTER_BYTES if drafts else 0)
        if self.weight_bytes is not None:
            num_bytes += self.weight_bytes - 2 * self.num_weights
        took = self._ms(num_bytes, rows, (step.nodes + drafter_kernels(drafts)) * NODE_US)
        return took + self._choosing_ms(rows) if self.grammars else took

    def _choosing_ms(self, rows: int) -> float:
        """What a step that chooses tokens takes longer, its masks' way to the GPU included."""
        logits, masks = 4 * self.config.vocab_size, self.config.vocab_size / 8
        in_turn = -(-rows // _ROWS_AT_ONCE) * logits / _ROW_GIGABYTES_PER_S
        together = rows * logits / (self.gigabytes_per_s * _ATTAINED_BANDWIDTH)
        return (_LOGIT_PASSES * max(in_turn, together) + rows * masks / _UPLOAD_GIGABYTES_PER_S) / 1e6

    def prompt_ms(self, rows: int, past: int, conversations: int) -> float:
        """ms of a forward pass that reads parts of the prompts of some conversations, which is not captured."""
        step = step_roofline(self.config, 2, 0, past)
        kernels = EAGER_KERNELS + (LOOPED_KERNELS * (conversations - 1) if self.looped else 0)
        return self._ms(step.num_bytes, rows, self.config.layers * kernels * _EAGER_US)

    def num_drafts(self) -> dict[int, int]:
        """Drafts for each size of a batch, as the engine chooses them from replayed steps."""
        return {
            size: best_num_drafts(
                [self.round_ms(size, drafts, 600 * size) for drafts in range(self.max_drafts + 1)], ACCEPTANCE
            )
            for size in _SIZES
        }

    def round_ms(self, batch: int, drafts: int, past: int, conversations: int | None = None) -> float:
        """ms from one step to the next: the device's time, or the host's if that is longer. While the host works, steps
        that were launched before are running."""
        host_ms, step_ms = 1e3 * host_seconds(conversations or batch), self.step_ms(batch, drafts, past)
        if self.grammars:
            return step_ms + host_ms + (conversations or batch) * (1 + drafts) * _MASK_US / 1e3
        return max(step_ms, host_ms)

    def _ms(self, num_bytes: float, rows: int, start_us: float) -> float:
        reading = num_bytes / (self.gigabytes_per_s * _ATTAINED_BANDWIDTH) / 1e6
        computing = 2 * rows * self.num_weights / _ATTAINED_TERAFLOPS / 1e9
        return max(reading, computing) + start_us / 1e3


@dataclass
class _Speaker:
    """A conversation.

    Attributes:
        text: tokens that its cache holds.
        unread: tokens that are to be read.
        remaining, committed: tokens of the response.
        asked_s: when its question ended.
        request: its request, while something is to be read.
    """

    text: int
    unread: int = 0
    remaining: int = 0
    committed: int = 0
    asked_s: float = 0.0
    request: Request | None = None


@dataclass
class Outcome:
    """What a simulation found.

    Attributes:
        first_clause_ms: from the end of each question to its first clause, in order.
        step_ms: of each round of the engine, in order.
        tokens_per_s: of all conversations together.
        busy: share of the time in which the GPU was.
        num_drafts: drafts for each size of a batch.
    """

    first_clause_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)
    tokens_per_s: float = 0.0
    busy: float = 0.0
    num_drafts: dict[int, int] = field(default_factory=dict)


class _Simulation:
    def __init__(self, costs: Costs, speakers: int, seed: int, *, at_once: bool, seconds: float) -> None:
        self._costs, self._draw, self._at_once, self._end_s = costs, random.Random(seed), at_once, seconds
        self._speakers = [_Speaker(self._draw.randint(*_TEXT_TOKENS)) for _ in range(speakers)]
        self._events: list[tuple[float, int, str]] = []
        self._now = self._busy_s = 0.0
        self._num_tokens = self._round = 0
        self._outcome = Outcome(num_drafts=costs.num_drafts())
        self._cache = KeyValueCache(costs.config, torch.bfloat16, torch.device("cpu"))

    def run(self) -> Outcome:
        for number in range(len(self._speakers)):
            self._speak(number, 0.0 if self._at_once else self._draw.uniform(0, 20))
        while self._now < self._end_s:
            while self._events and self._events[0][0] <= self._now:
                self._happen(*heapq.heappop(self._events))
            if not self._forward():
                if not self._events:
                    break
                self._now = self._events[0][0]
        out = self._outcome
        out.tokens_per_s, out.busy = self._num_tokens / self._now, self._busy_s / self._now
        out.first_clause_ms.sort()
        out.step_ms.sort()
        return out

    def _speak(self, number: int, start: float) -> None:
        """Plan a turn: parts of the question are read ahead while it is spoken."""
        if self._at_once:
            heapq.heappush(self._events, (start, number, "end"))
            return
        spoken = self._draw.uniform(*_SPEAKING_S)
        for n in range(1, int(spoken / _READ_AHEAD_S)):
            heapq.heappush(self._events, (start + n * _READ_AHEAD_S, number, "read ahead"))
        heapq.heappush(self._events, (start + spoken, number, "end"))

    def _happen(self, when: float, number: int, event: str) -> None:
        speaker = self._speakers[number]
        speaker.unread += _LAST_TOKENS if event == "end" else max(1, self._draw.randint(*_QUESTION_TOKENS) // 6)
        if event == "end":
            speaker.remaining, speaker.committed = self._draw.randint(*_RESPONSE_TOKENS), 0
            speaker.asked_s = when
        if speaker.request is None:
            speaker.request = Request(iter(()), lambda error: None, lambda: None)  # type: ignore[arg-type]
            speaker.request.last_progress_step = self._round
        rows = [0] * speaker.unread
        mask = torch.empty(0)
        speaker.request.next_input = ForwardInput(self._cache, rows, rows, mask, [], 0, is_prefill=True)

    def _forward(self) -> bool:
        """A round of the engine: a step of all that generate, then prompts. Returns whether there was any work."""
        generating = [one for one in self._speakers if one.remaining and not one.unread]
        reading = [one for one in self._speakers if one.request is not None]
        if not generating and not reading:
            return False
        self._round += 1
        took_ms = 0.0
        if generating:
            size = next(size for size in _SIZES if len(generating) <= size)
            drafts = self._outcome.num_drafts[size]
            took_ms = self._costs.round_ms(size, drafts, sum(one.text for one in generating), len(generating))
        chosen = schedule([one.request for one in reading if one.request is not None], GPU_PREFILL_CHUNK)
        readers = [one for one in reading if any(one.request is request for request in chosen)]
        if readers:
            unread, past = (sum(getattr(one, name) for one in readers) for name in ("unread", "text"))
            took_ms += self._costs.prompt_ms(unread, past, len(readers))
        self._now += took_ms / 1e3
        self._busy_s += took_ms / 1e3
        if generating:
            self._outcome.step_ms.append(took_ms)
        for speaker in generating:
            self._commit(speaker, 1 + self._accepted(drafts))
        for speaker in readers:
            speaker.text, speaker.unread, speaker.request = speaker.text + speaker.unread, 0, None
            if speaker.remaining:
                self._commit(speaker, 1)
        return True

    def _accepted(self, drafts: int) -> int:
        """How many drafts a step accepts."""
        value = self._draw.random()
        return sum(value < rate for rate in ACCEPTANCE[:drafts])

    def _commit(self, speaker: _Speaker, count: int) -> None:
        count = min(count, speaker.remaining)
        before = speaker.committed
        speaker.committed += count
        speaker.remaining -= count
        speaker.text += count
        self._num_tokens += count
        done = not speaker.remaining
        if before < _CLAUSE_TOKENS <= speaker.committed or (done and speaker.committed < _CLAUSE_TOKENS):
            self._outcome.first_clause_ms.append((self._now - speaker.asked_s) * 1e3)
        if done and not self._at_once:
            speaker.text = min(speaker.text, _TEXT_TOKENS[1])
            heard = speaker.committed / _SPOKEN_TOKENS_PER_S + self._draw.uniform(*_PAUSE_S)
            self._speak(self._speakers.index(speaker), self._now + heard)


def simulate(
    costs: Costs, conversations: int, seed: int = 1, *, at_once: bool = False, seconds: float = 300.0
) -> Outcome:
    """Simulate conversations.

    Args:
        at_once: all ask at the same moment, once. Otherwise they talk for `seconds`, each at its own pace.
    """
    return _Simulation(costs, conversations, seed, at_once=at_once, seconds=seconds).run()


def _percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def rows(costs: Costs, seed: int) -> Iterable[str]:
    """A row of a table for each number of conversations."""
    for count in _SIZES:
        crowd = simulate(costs, count, seed, at_once=True)
        talk = simulate(costs, count, seed)
        cells = (
            f"{count:2}", f"{crowd.num_drafts[count]}", f"{_percentile(crowd.step_ms, 0.5):.1f}",
            f"{crowd.tokens_per_s:,.0f}", f"{_percentile(crowd.first_clause_ms, 0.95):.0f}",
            f"{_percentile(talk.first_clause_ms, 0.5):.0f}", f"{_percentile(talk.first_clause_ms, 0.95):.0f}",
            f"{talk.busy:.0%}",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.benchmarks.crowd_simulation", description="Plan a GPU's crowds."
    )
    parser.add_argument("--gpu", choices=BANDWIDTH, default="H200", help="its nominal bandwidth is used")
    parser.add_argument("--model", choices=("0.5b", "1.5b"), help="this model only")
    parser.add_argument("--looped", action="store_true", help="prompts without ragged attention, as it was")
    parser.add_argument("--grammars", action="store_true", help="all responses follow a grammar")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name, config in (("0.5B", QWEN_05B), ("1.5B", QWEN_15B)):
        if arguments.model in (None, name.lower()):
            print(f"{name} on {arguments.gpu}, simulated")
            print("| conversations | drafts | all at once: ms a step | tokens/s | first clause p95, ms |"
                  " in conversation: first clause p50 | p95 | GPU busy |")  # fmt: skip
            print("|---|---|---|---|---|---|---|---|")
            costs = Costs(
                config, BANDWIDTH[arguments.gpu], 4, arguments.looped, arguments.grammars, STORED_BYTES[name]
            )  # fmt: skip
            for row in rows(costs, arguments.seed):
                print(row)


if __name__ == "__main__":
    main()

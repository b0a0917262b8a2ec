"""How long the host takes to fill the packed masks of allowed tokens of a step: a row for the next token of each
conversation, and one after each of its drafts.

    python -m lab.benchmarks.grammar_masks [--model qwen2.5-coder-0.5b] [--drafts 4] [--rounds 20]

Conversations write random JSON of one schema with strings, numbers, a choice and a list, each from a place of its own.
llguidance fills the masks on one thread. A crowd's steps with grammars would wait for that
(`lab.benchmarks.crowd_simulation --grammars`).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask_par_with_draft_tokens

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.grammar_compiler import JSON_LAYOUT
from model.hub.store import ModelStore

_SIZES = (1, 4, 16, 32, 64)
_SCHEMA = {
    "x-guidance": JSON_LAYOUT,
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 80},
        "amount": {"type": "number"},
        "kind": {"enum": ["customer", "supplier", "partner"]},
        "notes": {"type": "array", "items": {"type": "string", "maxLength": 80}, "maxItems": 5},
    },
    "required": ["name", "amount", "kind", "notes"],
    "additionalProperties": False,
}
_VALUE = {
    "name": "Ada Lovelace, Countess",
    "amount": 1842.5,
    "kind": "partner",
    "notes": ["wrote the first program"] * 3,
}


class _Writer:
    """A conversation that writes a text of the schema, and begins again when it has ended."""

    def __init__(self, tables: LLTokenizer, start: LLMatcher, ids: Sequence[int], place: int) -> None:
        self._start, self._ids, self._place = start, ids, 0
        self.matcher = start.deep_copy()
        for _ in range(place):
            self.advance(1)

    def drafts(self, count: int) -> list[int]:
        """The tokens that follow, as drafts that are right."""
        return list(self._ids[self._place : self._place + count])

    def advance(self, count: int) -> None:
        """Commit some tokens."""
        for token in self.drafts(count):
            self.matcher.consume_token(token)
            self._place += 1
        if self._place >= len(self._ids) - 6:
            self.matcher, self._place = self._start.deep_copy(), 0


def microseconds_a_row(tables: LLTokenizer, ids: Sequence[int], conversations: int, drafts: int, rounds: int) -> float:
    """µs of the host for a row: the median of some steps.

    Args:
        ids: a text that follows the schema.
    """
    draw = random.Random(1)
    start = LLMatcher(tables, LLMatcher.grammar_from_json_schema(json.dumps(_SCHEMA)), log_level=0)
    if start.is_error():
        raise ValueError(start.get_error())
    writers = [_Writer(tables, start, ids, draw.randrange(len(ids) - 8)) for _ in range(conversations)]
    masks, executor = allocate_token_bitmask(conversations * (drafts + 1), tables.vocab_size), LLExecutor(1)
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        fill_next_token_bitmask_par_with_draft_tokens(
            executor, [(one.matcher, n * (drafts + 1), one.drafts(drafts)) for n, one in enumerate(writers)], masks
        )
        took.append(time.perf_counter() - began)
        assert all(_allowed(masks[n * (drafts + 1)], one.drafts(1)[0]) for n, one in enumerate(writers))
        for one in writers:
            one.advance(draw.randint(1, drafts + 1))
    return float(np.median(took)) / (conversations * (drafts + 1)) * 1e6


def _allowed(mask: Any, token: int) -> bool:
    """Whether a packed mask [vocabulary / 32] int32 has a token."""
    return bool(int(mask[token // 32]) >> (token % 32) & 1)


def main() -> None:
    """Print a row for each number of conversations."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.grammar_masks", description="Time masks.")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--drafts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    checkpoint = open_checkpoint(ModelStore().locate(arguments.model))
    tokenizer = checkpoint.tokenizer()
    tables = LLTokenizer(
        tokenizer.to_json(), n_vocab=checkpoint.config.vocab_size, eos_token=sorted(checkpoint.stop_tokens()),
        slices=LLTokenizer.json_slices(),
    )  # fmt: skip
    ids = tables.tokenize_str(json.dumps(_VALUE))
    print("| conversations | rows | µs a row | ms a step |\n|---|---|---|---|")
    for size in _SIZES:
        rows = size * (arguments.drafts + 1)
        each = microseconds_a_row(tables, ids, size, arguments.drafts, arguments.rounds)
        print(f"| {size} | {rows} | {each:.0f} | {each * rows / 1e3:.2f} |", flush=True)


if __name__ == "__main__":
    main()

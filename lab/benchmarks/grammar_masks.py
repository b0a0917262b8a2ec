"""How long the host takes to tell a step of the device what it may choose under grammars: a row for the next token of
each conversation, and one after each of its drafts, as the engine does it on one thread.

    python -m lab.benchmarks.grammar_masks [--model qwen2.5-coder-0.5b] [--drafts 4] [--rounds 20]

Conversations write random JSON of one schema with strings, numbers, a choice and a list, each from a place of its own,
with drafts that are right. llguidance makes the masks, and the engine lays them where a step reads them. Following the
accepted tokens counts, too. `lab.benchmarks.crowd_simulation --grammars` simulates such steps.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.constraint import Constraint, RowRule
from model.decode.grammar import JSONSchema
from model.decode.grammar_compiler import GrammarCompiler
from model.engine.token_choice import TokenChoice
from model.hub.store import ModelStore

_SIZES = (1, 4, 16, 32, 64)
_SCHEMA = {
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
    """A conversation that writes a text of the schema, and begins again when it has ended.

    Args:
        ids: the text.
        place: tokens that it has written.
    """

    def __init__(self, compiler: GrammarCompiler, ids: Sequence[int], place: int) -> None:
        self._compiler, self._ids = compiler, ids
        self._begin()
        self.advance(place)

    def advance(self, count: int) -> None:
        """Commit some tokens, and what the grammar forces after each."""
        for _ in range(count):
            self._place += 1 + len(self._constraint.commit(self._ids[self._place : self._place + 1]))
            if self._place >= len(self._ids):
                self._begin()

    def rules(self, drafts: int) -> list[RowRule]:
        """Of the next token, and after each of some drafts."""
        return self._constraint.rules(self._ids[self._place : self._place + drafts])

    @property
    def next_token(self) -> int:
        """The token that follows."""
        return self._ids[self._place]

    def _begin(self) -> None:
        self._constraint = Constraint(self._compiler.compile(JSONSchema(_SCHEMA)))
        self._place = len(self._constraint.start())


def microseconds_a_row(
    compiler: GrammarCompiler, ids: Sequence[int], conversations: int, drafts: int, rounds: int
) -> float:
    """µs of processor time of the host for a row: the median of some steps.

    Args:
        ids: a text that follows the schema, as the grammar splits it.
    """
    draw = random.Random(1)
    writers = [_Writer(compiler, ids, draw.randrange(len(ids))) for _ in range(conversations)]
    state = SimpleNamespace(history=torch.zeros(conversations + 1, 1, dtype=torch.long))
    choice = TokenChoice(state, compiler.vocabulary, conversations * (drafts + 1))  # type: ignore[arg-type]
    took = []
    for _ in range(rounds):
        began = time.thread_time()
        rules = [one.rules(drafts) for one in writers]
        choice.fill(rules, drafts + 1)
        for one in writers:
            one.advance(draw.randint(1, drafts + 1))
        took.append((time.thread_time() - began) / sum(map(len, rules)))
    return float(np.median(took)) * 1e6


def text_of(compiler: GrammarCompiler) -> list[int]:
    """The tokens of a text of the schema, forced ones as the grammar splits them."""
    constraint = Constraint(compiler.compile(JSONSchema(_SCHEMA)))
    tokens, text = list(constraint.start()), json.dumps(_VALUE)
    decode = compiler.tables.decode_str
    while len(decode(tokens)) < len(text):
        token = compiler.tables.tokenize_str(text[len(decode(tokens)) :])[0]
        if not constraint.allowed_length([token]):
            token = compiler.tables.tokenize_str(text[len(decode(tokens)) :][:1])[0]
        tokens += [token, *constraint.commit([token])]
    return tokens


def main() -> None:
    """Print a row for each number of conversations."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.grammar_masks", description="Time masks.")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--drafts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    checkpoint = open_checkpoint(ModelStore().locate(arguments.model))
    compiler = GrammarCompiler(checkpoint.tokenizer(), checkpoint.config.vocab_size, checkpoint.stop_tokens())
    ids = text_of(compiler)
    print("| conversations | rows | µs a row | ms a step |\n|---|---|---|---|")
    for size in _SIZES:
        rows = size * (arguments.drafts + 1)
        each = microseconds_a_row(compiler, ids, size, arguments.drafts, arguments.rounds)
        print(f"| {size} | {rows} | {each:.0f} | {each * rows / 1e3:.2f} |", flush=True)


if __name__ == "__main__":
    main()

"""Lets a model write its own text, with states, in files of which finished ones are kept: an interrupted run continues
with the next one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from lab.convert.generate_data import normalized
from lab.convert.generate_states import StateShard, generate_shard, invent_questions, load_shard
from lab.convert.programs import conversation_of, read_examples
from lab.convert.spoken_prompts import SpokenPrompt
from model.engine.loader import LoadedModel

PHASES = ("inventing questions", "generating responses")

_SHARD_TOKENS = 6000
"""Response tokens of a file: what an interruption costs at most."""


def write_responses(
    model: LoadedModel,
    base: str,
    folder: Path,
    tokens: int,
    seed: int,
    instructions: str,
    evaluated: Sequence[str],
    on_progress: Callable[[str, int, int], None],
) -> list[StateShard]:
    """Write what is not written yet, and load all of it.

    Args:
        base: sha256 of the model's weights.
        tokens: of the responses, at least.
        instructions: the assistant's.
        evaluated: what the evaluation asks, and is not asked here.
        on_progress: called with a phase (`PHASES`), how much of it is done, and how much there is to do.
    """
    inventing, generating = PHASES
    folder.mkdir(parents=True, exist_ok=True)
    asked, questions_file = {normalized(text) for text in evaluated}, folder / f"questions-{seed}.json"
    if not questions_file.exists():
        invented = invent_questions(model, seed, on_progress=partial(on_progress, inventing))
        questions_file.write_text(json.dumps(invented), encoding="utf-8")
    questions = [(kind, text) for kind, text in json.loads(questions_file.read_text(encoding="utf-8"))]
    programs = [SpokenPrompt("program", tuple(conversation_of(example)[:-1])) for example in read_examples()]
    random.Random(seed).shuffle(programs)
    files = [folder / f"{seed}-{first}.safetensors" for first in range(0, tokens, _SHARD_TOKENS)]
    total = len(files) * _SHARD_TOKENS

    def report(before: int, done: int) -> None:
        on_progress(generating, before + done, total)

    for number, file in enumerate(files):
        before = number * _SHARD_TOKENS
        if not file.exists():
            generate_shard(
                model, base, file, instructions, 1000 * seed + number, tokens=_SHARD_TOKENS,
                questions=questions, programs=programs[number :: len(files)],
                skip=lambda text: normalized(text) in asked, on_progress=partial(report, before),
            )  # fmt: skip
        report(before, _SHARD_TOKENS)
    return [load_shard(file, base) for file in files]

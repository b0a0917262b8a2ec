"""A draft head or a block drafter inside the device's steps: the text is that without drafts, and drafts are accepted
wherever they are right. On the CPU, directly and as recorded operations that are replayed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chat.types import Message
from model.engine import engine as engine_module
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.nn.batch_drafter import BatchDrafter
from model.nn.forward_batch import num_features
from tests.model.dialogues import SYSTEM, at_the_same_time, collect_progress, committed_text
from tests.model.engine.recorded_graphs import use_recorded_graphs
from tests.model.random_draft_head import random_block_drafter, random_draft_head

WORDS = ("hello to you", "the capital of France", "Paris")


def _with_drafter(folder: Path, kind: str) -> LoadedModel:
    base = load_model(folder, device="cpu", precision="float32")
    decoder, config = base.decoder, base.decoder.config
    head = random_draft_head(num_features(config), config.hidden, config.vocab_size, seed=1, size=256)
    weights = head if kind == "recurrent" else random_block_drafter(head)
    rows = decoder.head_weight[head.vocabulary] @ head.matrices["output"]
    return replace(base, draft_head=BatchDrafter(weights, rows, decoder.embedding, decoder.device, decoder.dtype))


@pytest.mark.parametrize("kind", ["recurrent", "diffusion"])
async def test_replayed_steps_with_a_drafter_commit_the_text_without_drafts(
    varied_qwen2: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    graphs = use_recorded_graphs(monkeypatch)
    monkeypatch.setitem(engine_module._MAX_SLOTS, "cpu", 2)
    model = _with_drafter(varied_qwen2, kind)
    replaying = Engine(lambda: model, cuda_graphs=True)
    try:
        runner = replaying._runner
        assert runner is not None and runner.rows_each == 1 + model.draft_head.max_drafts + 8  # type: ignore[union-attr]
        runner.num_drafts |= dict.fromkeys(runner.num_drafts, 2)
        for size in runner.sizes:
            for bucket in runner.buckets:
                runner.batch_step(size, 2).capture(bucket, None)
        started = graphs.num_replayed
        turns = [Message("user", words) for words in WORDS[:2]]
        texts = await at_the_same_time(
            replaying,
            *(collect_progress(Conversation(replaying), SYSTEM, turn, max_tokens=30) for turn in turns),
        )
        for turn, text in zip(turns, texts, strict=True):
            alone = await collect_progress(Conversation(engine), SYSTEM, turn, max_tokens=30)
            assert committed_text(text) == committed_text(alone)
        assert graphs.num_replayed - started > 15
        assert any(progress.draft for text in texts for progress in text)
    finally:
        replaying.close()


async def test_drafts_that_are_right_are_accepted(
    varied_qwen2: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drafter that knows what the model will say, in place of the random one: a step commits several tokens."""
    model, question = _with_drafter(varied_qwen2, "diffusion"), Message("user", WORDS[0])
    expected = await collect_progress(Conversation(engine, drafting=False), SYSTEM, question, max_tokens=40)
    with_runner = Engine(lambda: model, cuda_graphs=True)
    try:
        ids = model.tokenizer.encode(committed_text(expected))
        told = torch.tensor([*ids, *[0] * 8])
        follows = {tuple(ids[n - 2 : n]): n for n in range(2, len(ids) + 1)}
        history = with_runner._runner.state.history  # type: ignore[union-attr]
        past = with_runner._runner.state.past_length  # type: ignore[union-attr]

        def draft_batch(features: torch.Tensor, tokens: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
            newest = tuple(history[0, int(past[0]) - 1 : int(past[0]) + 1].tolist())
            start = follows.get(newest, len(ids))
            return told[start : start + count][None], torch.ones(1, count)

        assert isinstance(model.draft_head, BatchDrafter)
        monkeypatch.setattr(model.draft_head, "draft_batch", draft_batch)
        progress = await collect_progress(Conversation(with_runner), SYSTEM, question, max_tokens=40)
        assert committed_text(progress) == committed_text(expected)
        assert progress[-1].step < 0.7 * expected[-1].step and progress[-1].drafts_kept >= 10
    finally:
        with_runner.close()

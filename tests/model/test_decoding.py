"""Answers whatever decodes them: cancelled, ended, sampled, and beside a long prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.adapter import Adapter, random_adapter
from model.chat import TextMessage
from model.decode.pace import Pace
from model.decode.schedule import schedule_for
from model.engine import Engine, LoadedModel, load_model
from model.sampling import Sampling, probabilities
from model.transformer import PREFILL_CHUNK, Rows
from tests.model.talk import HELLO, SYSTEM, all_of, livelier, text_of


@pytest.fixture(scope="module")
def tiny_qwen2(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return livelier(tiny_qwen2, tmp_path_factory.mktemp("lively"))


@pytest.fixture(scope="module")
def base(tiny_qwen2: Path) -> LoadedModel:
    loaded = load_model(tiny_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(loaded.decoder.config, 4, 3, seed=3)
    return replace(loaded, adapter=adapter, stop_tokens=frozenset())


WAYS: dict[str, dict[str, Any]] = {
    "drafts": {},
    "strides": {"strides": True},
    "blocks": {"decoding": "blocks", "schedule": schedule_for("medium")},
    "blocks in flight": {"decoding": "blocks", "schedule": schedule_for("high", in_flight=3)},
}


@pytest.fixture(params=WAYS)
def engine(base: LoadedModel, request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = opened(base, WAYS[request.param])
    yield engine
    engine.close()


def opened(model: LoadedModel, options: dict[str, Any]) -> Engine:
    """An engine for which rows cost nothing, so that it always drafts."""
    engine = Engine(lambda: model, **options)
    engine.pace = Pace({1: 1.0, 100: 1.0}, 3, [0.9] * 3)
    return engine


async def test_cancelling_takes_effect_between_passes_and_leaves_the_cache_right(engine: Engine) -> None:
    conversation = engine.conversation()
    async for progress in conversation.reply([SYSTEM, HELLO], max_tokens=400):
        if progress.step == 3:
            conversation.cancel()
    assert progress.finished is None
    wanted = text_of(await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=24))
    assert text_of(await all_of(conversation, SYSTEM, HELLO, max_tokens=24)) == wanted


async def test_an_answer_ends_at_the_end_token_and_says_nothing_behind_it(base: LoadedModel, engine: Engine) -> None:
    """The newest token that this engine says is made the end token; what stood before it is said, and no more."""
    long: list[int] = []
    stream = base.tokenizer.stream()

    class Noted:
        def push(self, token: int) -> str:
            long.append(token)
            return stream.push(token)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base.tokenizer, "stream", Noted)
        await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=30)
    end = max(long, key=long.index)
    assert long.index(end) > 3
    ending = Engine(lambda: replace(base, stop_tokens=frozenset({end})), **engine_options(engine))
    ending.pace = Pace({1: 1.0, 100: 1.0}, 3, [0.9] * 3)
    try:
        progress = await all_of(ending.conversation(), SYSTEM, HELLO, max_tokens=30)
        assert progress[-1].finished == "stop"
        assert progress[-1].tokens == long.index(end) + 1
        alone = base.tokenizer.stream()
        assert text_of(progress) == "".join(map(alone.push, long[: long.index(end)]))
        assert [p.finished for p in progress[:-1]] == [None] * (len(progress) - 1)
    finally:
        ending.close()


def engine_options(engine: Engine) -> dict[str, Any]:
    """What an engine was opened with."""
    return {"decoding": engine._asked, "schedule": engine.schedule, "strides": engine._strides}


async def test_a_long_prompt_leaves_a_speaker_in_every_pass(base: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one conversation reads many chunks, another that speaks has its rows in each of those passes."""
    engine = opened(replace(base, adapter=None), {})
    passes: list[list[Rows]] = []
    run = engine.model.decoder.run

    def noted(batch: list[Rows], adapter: Adapter | None) -> list[torch.Tensor]:
        passes.append(list(batch))
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", noted)
    talking, reading = engine.conversation(), engine.conversation()
    question = TextMessage("user", "hello to you " * 90)
    try:
        asked: asyncio.Task[object] | None = None
        async for progress in talking.reply([SYSTEM, HELLO], max_tokens=60):
            if progress.step == 3:
                asked = asyncio.create_task(all_of(reading, SYSTEM, question, max_tokens=2))
        assert asked is not None
        await asked
    finally:
        engine.close()
    spoken = [
        n for n, batch in enumerate(passes) if any(rows.cache is talking._cache and rows.wanted for rows in batch)
    ]
    read = [
        n for n, batch in enumerate(passes) if any(rows.cache is reading._cache and not rows.wanted for rows in batch)
    ]
    assert len(read) >= 3
    assert all(n in spoken for n in read if n < spoken[-1])
    assert all(sum(not rows.wanted for rows in batch) <= 1 for batch in passes)
    assert all(len(rows.tokens) <= PREFILL_CHUNK for batch in passes for rows in batch if not rows.wanted)


async def test_sampling_with_drafts_draws_from_the_base_models_distribution(base: LoadedModel) -> None:
    """The second token of many answers, which a draft proposed and the base model accepted or drew anew, against its
    exact distribution behind the first."""
    engine = opened(base, {})
    warm = Sampling(temperature=0.8, top_k=4)
    try:
        ids = base.template.encode([SYSTEM, HELLO])
        drawn: list[tuple[int, ...]] = []
        for seed in range(400):
            spelled: list[int] = []
            stream = base.tokenizer.stream()

            class Noted:
                def push(self, token: int, spelled: list[int] = spelled, stream: Any = stream) -> str:
                    spelled.append(token)
                    return str(stream.push(token))

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(base.tokenizer, "stream", Noted)
                sampling = replace(warm, seed=seed)
                progress = await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=4, sampling=sampling)
            assert any(p.draft for p in progress[:-1])
            drawn.append(tuple(spelled))
        cache = base.decoder.new_cache()
        first = probabilities(base.decoder.forward(ids, cache, logits="last")[0], warm)
        assert off([said[0] for said in drawn], first) < 0.1
        usual = int(first.argmax())
        behind = [said[1:] for said in drawn if said[0] == usual]
        second = probabilities(base.decoder.forward([usual], cache, logits="last")[0], warm)
        assert len(behind) > 60
        assert off([said[0] for said in behind], second) < 0.2
    finally:
        engine.close()


def off(drawn: list[int], expected: torch.Tensor) -> float:
    """The largest difference between how often a token was drawn and how likely it is."""
    counts = torch.bincount(torch.tensor(drawn), minlength=len(expected)) / len(drawn)
    return float((counts - expected).abs().max())

"""Conversations that draft with a draft head: the text stays the base model's, and a step has one row per draft."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from chat.progress import DraftOrigin, Progress
from chat.types import Message
from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft_length import DraftLengthController
from model.decode.grammar import Choice, Grammar, JSONSchema, Regex
from model.decode.sampling import Sampling
from model.engine.bundled import weights_checksum
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.nn.adapter import Adapter
from model.nn.draft_head import Drafted
from model.nn.forward_batch import ForwardInput
from tests.model.dialogues import (
    HELLO,
    SYSTEM,
    collect_progress,
    committed_text,
    drafted_tokens,
    with_doubled_weights,
)  # fmt: skip
from tests.model.random_draft_head import random_draft_head

NUM_FEATURES = 3
"""Times the size of a state."""
QUESTIONS = [Message("user", words) for words in ("hello to you", "the capital of France", "to to to", "Paris")]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "kind": {"enum": ["customer", "supplier"]}},
    "required": ["name", "kind"],
}
GRAMMARS: list[Grammar] = [JSONSchema(SCHEMA), Regex("[a-f]{3,12}-[0-9]{2}"), Choice(("the capital", "hello to you"))]


@pytest.fixture(scope="module")
def varied_qwen2(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint that does not repeat itself."""
    return with_doubled_weights(tiny_qwen2, tmp_path_factory.mktemp("varied"))


@pytest.fixture(scope="module")
def model(varied_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model with an untrained draft head."""
    config, file = open_checkpoint(varied_qwen2).config, tmp_path_factory.mktemp("head") / "head.safetensors"
    checksum = weights_checksum(varied_qwen2)
    random_draft_head(NUM_FEATURES * config.hidden, config.hidden, config.vocab_size, 1, checksum).save(file)
    loaded = load_model(varied_qwen2, device="cpu", precision="int8", adapter=file)
    assert loaded.draft_head is not None and loaded.adapter is None
    return loaded


@pytest.fixture
def engine(model: LoadedModel) -> Iterator[Engine]:
    yield from open_engine(model)


def open_engine(model: LoadedModel) -> Iterator[Engine]:
    """An engine for which rows cost nothing, so that it always drafts three tokens."""
    engine = Engine(lambda: model)
    engine.draft_length = DraftLengthController({64: 1.0, 100: 1.0}, 3, [0.9] * 3, head_seconds=0.0)
    yield engine
    engine.close()


@pytest.fixture
def steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of each conversation in each forward pass that generates: all rows, and those of drafts or copied tokens and the
    token before them."""
    run, seen = engine.model.decoder.run, []

    def spy(batch: list[ForwardInput], adapter: Adapter | None = None) -> list[Tensor]:
        seen.extend((len(one.tokens), 1 + len(drafted_tokens(one))) for one in batch if not one.is_prefill)
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", spy)
    return seen


async def respond(engine: Engine, question: Message, *, drafting: bool = True, **options: Any) -> list[Progress]:
    options = {"max_tokens": 50, **options}
    return await collect_progress(Conversation(engine, drafting=drafting), SYSTEM, question, **options)


async def test_the_text_is_the_same_alone_together_and_without_drafts(
    engine: Engine, steps: list[tuple[int, int]]
) -> None:
    undrafted = [await respond(engine, question, drafting=False) for question in QUESTIONS]
    assert {rows for rows, _ in steps} == {1}
    steps.clear()
    alone = [await respond(engine, question) for question in QUESTIONS]
    assert max(rows for rows, _ in steps) <= 9, "three drafts and four other choices, or eight copied tokens, at most"
    assert [drafted for _, drafted in steps].count(4) > 20
    together = await asyncio.gather(*(respond(engine, question) for question in QUESTIONS))
    for one, two, three in zip(undrafted, alone, together, strict=True):
        assert committed_text(one) == committed_text(two) == committed_text(three)


async def test_a_predicted_response_takes_fewer_passes_and_is_the_same_if_the_prediction_is_wrong(
    model: LoadedModel,
) -> None:
    engine, passes = Engine(lambda: model), []
    run = engine.model.decoder.run
    engine.model.decoder.run = lambda *batch: (passes.append(1), run(*batch))[1]  # type: ignore[method-assign]
    taken: dict[str, int] = {}
    try:
        for question in QUESTIONS:
            text = committed_text(await respond(engine, question))
            predictions = {"none": "", "right": text, "its end": text[len(text) // 2 :], "wrong": "something else"}
            for name, prediction in predictions.items():
                passes.clear()
                assert committed_text(await respond(engine, question, prediction=prediction)) == text
                taken[name] = taken.get(name, 0) + len(passes)
    finally:
        engine.model.decoder.run = run  # type: ignore[method-assign]
        engine.close()
    assert taken["right"] < 0.75 * taken["none"] and taken["its end"] < taken["none"], taken
    assert taken["wrong"] < 1.1 * taken["none"], taken


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_bias_and_penalties_change_the_text_and_drafts_do_not(engine: Engine, temperature: float) -> None:
    plain, the = Sampling(temperature, seed=3), engine.model.tokenizer.encode("the")[0]
    unbiased = [committed_text(await respond(engine, question, sampling=plain)) for question in QUESTIONS]
    for changes in ({"logit_bias": {the: 3.0}}, {"frequency_penalty": 2.0}, {"presence_penalty": 2.0}):
        sampling = replace(plain, **changes)
        undrafted = [
            committed_text(await respond(engine, question, drafting=False, sampling=sampling)) for question in QUESTIONS
        ]
        assert undrafted != unbiased
        drafted = [committed_text(await respond(engine, question, sampling=sampling)) for question in QUESTIONS]
        assert drafted == undrafted


async def test_bias_and_penalties_hold_under_a_grammar_with_and_without_drafts(engine: Engine) -> None:
    sampling = Sampling(frequency_penalty=2.0, logit_bias={engine.model.tokenizer.encode("a")[0]: -100.0})
    for grammar in GRAMMARS[:2]:
        drafted = committed_text(await respond(engine, HELLO, grammar=grammar, sampling=sampling))
        undrafted = committed_text(await respond(engine, HELLO, grammar=grammar, sampling=sampling, drafting=False))
        assert drafted == undrafted != ""


class Oracle:
    """Drafts what the model is known to say, except that every fifth draft is wrong.

    Args:
        said: what the model says.
        has_others: whether it names the right token as another one in the place of a wrong draft.
    """

    origin: DraftOrigin = "recurrent"
    acceptance = ((0.9, 0.8, 0.7),)
    block = 0

    def __init__(self, said: Sequence[int], *, has_others: bool = False) -> None:
        self._said, self._has_others, self._position, self.calls = tuple(said), has_others, 0, 0

    def draft(
        self, features: Tensor, tokens: Sequence[int], more: Callable[[Sequence[float]], bool], steps: int = 1
    ) -> Drafted:
        assert features.ndim == 1
        places = range(self._position, len(self._said))
        found = [n + len(tokens) for n in places if self._said[n : n + len(tokens)] == tuple(tokens)]
        if not found:  # the start times a draft after a token of its own
            return Drafted()
        self._position = found[0]
        drafts: list[int] = []
        while more([0.9] * len(drafts)) and self._position + len(drafts) < len(self._said):
            self.calls += 1
            drafts.append(0 if self.calls % 5 == 0 else self._said[self._position + len(drafts)])
        right = self._said[self._position :]
        others = tuple(
            ((token, 0.1),) if self._has_others and draft != token else ()
            for draft, token in zip(drafts, right, strict=False)
        )
        return Drafted(tuple(drafts), (0.9,) * len(drafts), others)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling": Sampling(0.8, seed=3)},
        {"sampling": Sampling(frequency_penalty=1.0)},
        {"sampling": Sampling(0.8, seed=3, presence_penalty=1.0), "top_log_probabilities": 2},
    ],
    ids=["greedy", "sampled", "penalty", "scored"],
)
async def test_accepted_drafts_and_other_choices_save_forward_passes(
    model: LoadedModel, options: dict[str, Any]
) -> None:
    plain, steps = replace(model, draft_head=None, stop_tokens=frozenset()), list[int]()
    for engine in open_engine(plain):
        conversation = Conversation(engine, drafting=False)
        alone = await collect_progress(conversation, SYSTEM, HELLO, max_tokens=40, **options)
        said = conversation._cache.tokens[alone[-1].prompt_tokens :]
    for has_others in (False, True):
        oracle = Oracle(said, has_others=has_others)
        for engine in open_engine(replace(plain, draft_head=oracle)):
            progress = await respond(engine, HELLO, max_tokens=40, **options)
            assert committed_text(progress) == committed_text(alone) and oracle.calls > 0
            scores, expected = ([one for each in run for one in each.scores] for run in (progress, alone))
            assert scores == expected and bool(scores) == ("top_log_probabilities" in options)
            steps.append(progress[-1].step)
            assert (engine.draft_length.others_right > 0.7) == has_others, "they are right more often than promised"
    assert steps[1] < steps[0] < 25


async def test_sampled_text_is_drafted_too(engine: Engine, steps: list[tuple[int, int]]) -> None:
    progress = await respond(engine, HELLO, sampling=Sampling(temperature=1.0, seed=3))
    assert progress[-1].tokens > 10 and [drafted for _, drafted in steps].count(4) > 5


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: type(grammar).__name__)
async def test_a_grammar_is_followed_with_drafts(engine: Engine, grammar: Grammar) -> None:
    undrafted = await respond(engine, HELLO, drafting=False, grammar=grammar)
    drafted = await respond(engine, HELLO, grammar=grammar)
    assert committed_text(drafted) == committed_text(undrafted)

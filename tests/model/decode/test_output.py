"""The engine reports what it drafts: after the commit, before the forward pass that verifies it, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from torch import Tensor

from chat.progress import Progress
from chat.types import Message
from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft import DraftHead
from model.decode.draft_length import DraftLengthController
from model.decode.grammar import JSONSchema
from model.engine.bundled import weights_checksum, weights_size
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
from tests.model.random_draft_head import random_block_drafter, random_draft_head

NUM_FEATURES = 3
"""Times the size of a state."""
QUESTIONS = [Message("user", words) for words in ("hello to you", "the capital of France", "to to to", "Paris")]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}


@pytest.fixture(scope="module", params=["diffusion", "recurrent"])
def model(
    request: pytest.FixtureRequest, tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoadedModel]:
    """A model that never stops by itself, with an untrained drafter as what is bundled for it: a block drafter, which
    drafts by default, or a draft head."""
    folder, drafters = tmp_path_factory.mktemp("varied"), tmp_path_factory.mktemp("drafters")
    path = with_doubled_weights(tiny_qwen2, folder)
    config = open_checkpoint(path).config
    sizes = NUM_FEATURES * config.hidden, config.hidden, config.vocab_size
    head = random_draft_head(*sizes, 1, weights_checksum(path), size=256)
    head = replace(head, metadata={"base_bytes": str(weights_size(path))})
    (random_block_drafter(head) if request.param == "diffusion" else head).save(drafters / "drafter.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("model.engine.loader.BUNDLED_DRAFT_HEADS", drafters)
        loaded = load_model(path, device="cpu", precision="int8")
    assert loaded.draft_head is not None and loaded.draft_head.origin == request.param
    yield replace(loaded, stop_tokens=frozenset())


@pytest.fixture
def engine(model: LoadedModel) -> Iterator[Engine]:
    yield from open_engine(model)


def open_engine(model: LoadedModel) -> Iterator[Engine]:
    """An engine with fixed costs, as measured with a small model: each row a fiftieth of a forward pass."""
    engine = Engine(lambda: model)
    assert engine.model.draft_head is not None
    block = engine.model.draft_head.block
    acceptance = (0.6, 0.4, 0.25, 0.15)[: block or None]
    engine.draft_length = DraftLengthController(
        {100: 1.0, 108: 1.16}, len(acceptance), acceptance, 0.01, 0.05 if block else 0.0, [acceptance] * 3
    )
    yield engine
    engine.close()


@pytest.fixture
def verified(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The drafts or copied tokens after the last committed token, of each forward pass that generates."""
    run, seen = engine.model.decoder.run, []

    def spy(batch: list[ForwardInput], adapter: Adapter | None = None) -> list[Tensor]:
        seen.extend(drafted_tokens(one) for one in batch if not one.is_prefill)
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", spy)
    return seen


class SpyHead:
    """Counts the calls of a head."""

    def __init__(self, head: DraftHead) -> None:
        self._head, self.calls = head, 0
        self.origin, self.acceptance, self.block = head.origin, head.acceptance, head.block

    def draft(
        self, features: Tensor, tokens: Sequence[int], more: Callable[[Sequence[float]], bool], steps: int = 1
    ) -> Drafted:
        self.calls += 1
        return self._head.draft(features, tokens, more, steps)


@pytest.fixture
def head(engine: Engine) -> SpyHead:
    head = engine.model.draft_head
    assert head is not None
    spy = SpyHead(head)
    engine.model = replace(engine.model, draft_head=spy)
    return spy


async def respond(engine: Engine, question: Message, **options: Any) -> list[Progress]:
    return await collect_progress(Conversation(engine), SYSTEM, question, **{"max_tokens": 50, **options})


async def test_what_is_shown_is_what_the_next_step_verifies(engine: Engine, verified: list[list[int]]) -> None:
    decode, shown_steps, possible, origins = engine.model.tokenizer.decode, 0, 0, set[str]()
    for question in QUESTIONS:
        verified.clear()
        progress = await respond(engine, question)
        steps = progress[-1].step
        origins |= {one.draft_origin for one in progress if one.draft}
        shown = {one.step: one for one in progress if one.draft_ends}
        for step, rows in enumerate(verified, 1):
            text, ends = (shown[step].draft, shown[step].draft_ends) if step in shown else ("", ())
            assert len(rows) == len(ends), step
            assert text.endswith(decode(rows).strip("\ufffd")), "the first may complete a character"
        assert all(len(one.confidence) == len(one.draft_ends) for one in progress)
        assert all(0 < chance <= 1 for one in progress for chance in one.confidence)
        shown_steps, possible = shown_steps + len(shown), possible + steps - 1
    assert shown_steps >= 0.8 * possible > 50
    assert engine.model.draft_head is not None and engine.model.draft_head.origin in origins


async def test_a_commit_is_reported_before_anything_is_drafted_after_it(engine: Engine) -> None:
    progress = await respond(engine, HELLO)
    assert not any(one.committed and one.draft for one in progress)
    steps = [one.step for one in progress]
    assert steps == sorted(steps) and steps.count(3) == 2


@pytest.mark.parametrize("end", ["limit", "stop token", "stop text", "cancel"])
async def test_nothing_is_drafted_once_the_response_is_over(engine: Engine, head: SpyHead, end: str) -> None:
    conversation, options = Conversation(engine), {"max_tokens": 30}
    whole = await collect_progress(conversation, SYSTEM, HELLO, **options)
    begun = next(one for one in whole if one.committed.strip())
    assert head.calls > 15
    head.calls, drafted = 0, begun.step - 1
    if end == "limit":
        options, drafted = {"max_tokens": begun.tokens}, drafted - 1  # the last token is not verified by a step
    elif end == "stop token":
        token = conversation._cache.tokens[begun.prompt_tokens + begun.tokens - 1]
        engine.model = replace(engine.model, stop_tokens=frozenset({token}))
    elif end == "stop text":
        options = {**options, "stop": ["not this", begun.committed]}
    else:
        record = engine.record_commit

        def cancel() -> None:
            record()
            conversation.cancel()

        engine.record_commit, drafted = cancel, 0  # type: ignore[method-assign]
    await collect_progress(conversation, SYSTEM, HELLO, **options)
    assert head.calls == drafted


async def test_drafts_fit_into_the_rest_of_the_response(engine: Engine, verified: list[list[int]]) -> None:
    progress = await respond(engine, HELLO, max_tokens=7)
    for step, rows in enumerate(verified, 1):
        left = 7 - max(one.tokens for one in progress if one.step <= step)
        assert len(rows) < left
    assert any(verified)


async def test_drafts_that_a_grammar_forbids_are_neither_shown_nor_verified(
    engine: Engine, verified: list[list[int]], tiny_tokenizer: Tokenizer
) -> None:
    end = tiny_tokenizer.token_to_id("<|im_end|>")
    engine.model = replace(engine.model, stop_tokens=frozenset({end}))
    grammar = JSONSchema(SCHEMA)
    progress = await respond(engine, HELLO, grammar=grammar)
    begun, text, shown = re.compile(r'\{"name": "([^"\\]|\\.?){0,9}("\}?)?'), "", 0
    for one in progress:
        text += one.committed
        assert begun.fullmatch(text + one.draft)
        shown += bool(one.draft)
    assert shown > 0
    undrafted = await collect_progress(Conversation(engine, drafting=False), SYSTEM, HELLO, grammar=grammar)
    assert committed_text(progress) == committed_text(undrafted)

"""The beginning of a response, held to a choice of texts, on tiny random weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from chat.types import Opening, Tool
from model.decode.constraint import Constraint, OpeningConstraint
from model.decode.draft import Alternative, paths
from model.decode.draft_length import DraftLengthController
from model.decode.effort import schedule_for_effort
from model.decode.grammar import Choice
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel
from tests.model.dialogues import HELLO, SYSTEM, collect_progress, committed_text

OPENINGS = ("the capital of France,", "the capital of Paris,", "Hello to you")


@pytest.fixture(params=["verified", "blocks"])
def engine(model: LoadedModel, request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = Engine(lambda: model, decoding=request.param, denoising_schedule=schedule_for_effort("medium"))
    engine.draft_length = DraftLengthController({1: 1.0, 100: 1.0}, 3, [0.9] * 3)
    engine.drafts_with_grammar = True
    yield engine
    engine.close()


async def test_a_response_begins_with_one_of_its_openings_and_goes_on_freely(engine: Engine) -> None:
    options = {"grammar": Opening(OPENINGS), "tools": [Tool("hang_up")], "max_tokens": 40}
    progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, **options)
    text = committed_text(progress)
    assert text.startswith(OPENINGS) and len(text) > max(map(len, OPENINGS))
    assert not any(step.tool_calls for step in progress)
    if engine.diffusion is None:
        alone = await collect_progress(Conversation(engine, drafting=False), SYSTEM, HELLO, **options)
        assert committed_text(alone) == text


@pytest.mark.parametrize("options", [("Hello", "Hello to you, France"), ("Hello", "Hello to", "Hello to you")])
async def test_an_opening_that_another_one_continues_leaves_room_for_an_answer(
    engine: Engine, options: tuple[str, ...]
) -> None:
    given = {"grammar": Opening(options), "max_tokens": 40}
    text = committed_text(await collect_progress(Conversation(engine), SYSTEM, HELLO, **given))
    assert text.startswith("Hello") and len(text) > max(map(len, options))
    if engine.diffusion is None:
        alone = await collect_progress(Conversation(engine, drafting=False), SYSTEM, HELLO, **given)
        assert committed_text(alone) == text


def test_an_opening_is_over_where_its_text_is_complete_although_another_one_continues_it(model: LoadedModel) -> None:
    encode = model.tokenizer.encode
    first, second, free = encode("Hello"), encode(" to you"), encode("Paris")
    tokens = [*first, *second]

    def constraint() -> OpeningConstraint:
        return OpeningConstraint(model.grammars.compile(Opening(("Hello", "Hello to you", "Hello to you, France"))))

    opening, logits = constraint(), torch.zeros(1 + len(tokens), model.decoder.config.vocab_size)
    opening.restrict(logits, paths(tokens))
    assert logits[: len(first)].isinf().any(1).all() and not logits[len(first) :].isinf().any()
    for drafts in (tokens, [*first, *free], [*tokens, *free]):
        assert opening.allowed_length(drafts) == len(drafts)
    assert opening.allowed_length(free) == 0
    opening.commit(first)
    assert not opening.active
    at_once = constraint()
    at_once.commit([*tokens, *free])
    assert not at_once.active


def test_alternatives_are_restricted_like_drafts_of_their_own(model: LoadedModel) -> None:
    encode = model.tokenizer.encode
    drafts, other = encode("hello to you"), encode("the capital")
    compiled = model.grammars.compile(Choice(("the capital", "hello to you", "hello to France")))
    alternatives = [Alternative(0, tuple(other)), Alternative(len(drafts) - 1, tuple(encode("hello to France"))[-1:])]
    together = torch.zeros(1 + len(drafts) + len(other) + 1, model.decoder.config.vocab_size)
    Constraint(compiled).restrict(together, paths(drafts, alternatives))
    for path in paths(drafts, alternatives):
        alone = torch.zeros(1 + len(path.tokens), together.shape[1])
        Constraint(compiled).restrict(alone, paths(path.tokens))
        assert torch.equal(together[list(path.rows)], alone) and alone[0].isinf().any()


async def test_a_single_opening_is_read_like_the_end_of_the_prompt(engine: Engine) -> None:
    progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, grammar=Opening(OPENINGS[:1]), max_tokens=40)
    assert committed_text(progress).startswith(OPENINGS[0])
    assert len(committed_text(progress)) > len(OPENINGS[0])
    if engine.diffusion is None:
        assert progress[0].committed.startswith(OPENINGS[0])

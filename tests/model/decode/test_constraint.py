"""The beginning of a response, held to a choice of texts, on tiny random weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chat.types import Opening, Tool
from model.decode.draft_length import DraftLengthController
from model.decode.effort import schedule_for_effort
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


async def test_a_single_opening_is_read_like_the_end_of_the_prompt(engine: Engine) -> None:
    progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, grammar=Opening(OPENINGS[:1]), max_tokens=40)
    assert committed_text(progress).startswith(OPENINGS[0])
    assert len(committed_text(progress)) > len(OPENINGS[0])
    if engine.diffusion is None:
        assert progress[0].committed.startswith(OPENINGS[0])

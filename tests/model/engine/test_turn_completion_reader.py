"""Turn completion is estimated as the transcript grows, while a response is being generated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chat.types import Ask, Message
from model.checkpoint.chat_template import CHATML, ChatTemplate
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.engine.turn_completion import TurnCompletionClassifier, user_turn_prefix
from model.nn.adapter import Adapter
from model.nn.decoder import Decoder
from model.nn.forward_batch import ForwardInput, text_input
from tests.model.dialogues import HELLO, SYSTEM
from tests.real_time import wait_until


@pytest.fixture(scope="module")
def model(tiny_qwen2: Path) -> LoadedModel:
    loaded = load_model(tiny_qwen2, device="cpu", precision="float32")
    weight = torch.randn(loaded.decoder.config.hidden, generator=torch.Generator().manual_seed(5)) * 0.1
    return replace(loaded, turn_completion=TurnCompletionClassifier(weight, 0.1, "base", {}))


@pytest.fixture
async def engine(model: LoadedModel) -> AsyncIterator[Engine]:
    engine = Engine(lambda: model)
    yield engine
    engine.close()


def close(value: float | None) -> object:
    """The last bits of float matrix multiplications depend on the number of rows; those of int8 ones do not."""
    return pytest.approx(value, abs=1e-5)


async def test_the_estimate_is_made_from_the_hidden_state_after_the_last_word(
    model: LoadedModel, engine: Engine
) -> None:
    conversation = Conversation(engine)
    for text in ("hello", "hello to", "hello to you", "hello to Paris", "hello to Paris"):
        ids = user_turn_prefix(model.template) + model.tokenizer.encode(text.lower())
        (states,) = model.decoder.run([text_input(model.decoder.new_cache(), ids, 1, return_hidden_states=True)])
        assert model.turn_completion is not None
        assert await conversation.turn_completion(f"{text}.") == close(float(model.turn_completion(states)))
    assert await conversation.turn_completion("…") == 0.0


async def test_only_new_words_are_read(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    num_rows: list[int] = []
    run = Decoder.run

    def spy(self: Decoder, batch: Sequence[ForwardInput], adapter: Adapter | None = None) -> list[torch.Tensor]:
        num_rows.extend(len(rows.tokens) for rows in batch)
        return run(self, batch, adapter)

    template = ChatTemplate("{{ 'hello to you is the capital' }}" + CHATML, model.tokenizer)
    prefix_length = len(user_turn_prefix(template))
    engine = Engine(lambda: replace(model, template=template))
    monkeypatch.setattr(Decoder, "run", spy)
    conversation = Conversation(engine)
    for text, max_rows in (
        ("the capital of France", prefix_length + 40),
        ("the capital of France is", 3),
        ("hello to you " * 100, 64),
        ("x" * 5000, 64),
    ):
        assert await conversation.turn_completion(text) is not None
        assert num_rows.pop() <= max_rows
    assert await Conversation(engine).turn_completion("hello") is not None
    assert num_rows.pop() <= 3  # the template's opening is shared
    engine.close()


async def test_what_was_prepared_is_not_read_again(engine: Engine) -> None:
    conversation, text = Conversation(engine), "hello to you is the capital of France hello to Paris"
    conversation.prepare(Ask([SYSTEM, Message("user", text)]))
    reader = conversation._turn_completion
    ids = user_turn_prefix(engine.model.template) + engine.model.tokenizer.encode(text.lower())
    await wait_until(lambda: len(reader._cache.tokens) == len(ids))
    forward_passes: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        run = engine.model.decoder.run

        def spy(batch: Sequence[ForwardInput], adapter: Adapter | None = None) -> list[torch.Tensor]:
            forward_passes.append(sum(len(rows.tokens) for rows in batch))
            return run(batch, adapter)

        patch.setattr(engine.model.decoder, "run", spy)
        prepared = await conversation.turn_completion(f"{text} is")
    assert len(forward_passes) == 1 and forward_passes[0] <= 3
    assert prepared == close(await Conversation(engine).turn_completion(f"{text} is"))


async def test_an_estimate_does_not_disturb_an_active_response(engine: Engine) -> None:
    async def respond(estimate: bool) -> str:
        conversation, text = Conversation(engine), ""
        async for progress in conversation.reply(Ask([SYSTEM, HELLO], max_tokens=30)):
            text += progress.committed
            if estimate:
                said = f"hello to you {progress.step}"
                estimates.append((said, await conversation.turn_completion(said)))
        return text

    estimates: list[tuple[str, float | None]] = []
    assert await respond(True) == await respond(False)
    assert len(estimates) > 3
    for said, value in estimates:
        assert value == close(await Conversation(engine).turn_completion(said))


async def test_a_newer_call_replaces_an_older_one(engine: Engine) -> None:
    conversation = Conversation(engine)
    values = await asyncio.gather(*(conversation.turn_completion(f"hello {n}") for n in range(5)))
    assert values[-1] == close(await Conversation(engine).turn_completion("hello 4"))
    for number, value in enumerate(values[:-1]):
        assert value is None or value == close(await Conversation(engine).turn_completion(f"hello {number}"))


async def test_without_a_classifier_turn_completion_is_unknown(tiny_qwen2: Path) -> None:
    without_classifier = load_model(tiny_qwen2, device="cpu", precision="float32")
    assert without_classifier.turn_completion is None
    engine = Engine(lambda: without_classifier)
    assert await Conversation(engine).turn_completion("hello to you") is None
    engine.close()


async def test_after_a_failed_forward_pass_turn_completion_is_unknown(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Decoder.run

    def flaky(self: Decoder, batch: Sequence[ForwardInput], adapter: Adapter | None = None) -> list[torch.Tensor]:
        if any(rows.return_hidden_states for rows in batch):
            raise RuntimeError("no memory for hello to you")
        return run(self, batch, adapter)

    conversation = Conversation(engine)
    monkeypatch.setattr(Decoder, "run", flaky)
    assert await conversation.turn_completion("hello to you") is None
    (message,) = [one.getMessage() for one in caplog.records if "turn-completion" in one.getMessage()]
    assert message == "the turn-completion classifier failed (RuntimeError)"
    monkeypatch.undo()
    expected = await Conversation(engine).turn_completion("hello to you")
    assert await conversation.turn_completion("hello to you") == close(expected)

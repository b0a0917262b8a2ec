"""Instructions and tools that conversations share are read once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from chat.types import Ask, Message, Tool
from model.checkpoint.chat_template import ChatTemplate
from model.checkpoint.checkpoint import DecoderConfig
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import load_model
from model.engine.prefix_cache import MAX_TOKENS, PrefixCache
from model.nn.adapter import Adapter
from model.nn.forward_batch import ForwardInput
from model.nn.kv_cache import KeyValueCache
from tests.model.dialogues import HELLO, SYSTEM, collect_progress, committed_text

INSTRUCTIONS = Message("system", "the capital of France is Paris and hello to you " * 4)
TOOL = Tool("weather", "the capital of France")


@pytest.fixture
def engine(varied_qwen2: Path) -> Iterator[Engine]:
    """A new engine for each test: its prefix cache is empty."""
    engine = Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"))
    yield engine
    engine.close()


async def test_conversations_share_their_instructions(engine: Engine) -> None:
    first = await collect_progress(Conversation(engine), INSTRUCTIONS, HELLO, max_tokens=9)
    other = await collect_progress(Conversation(engine), INSTRUCTIONS, Message("user", "Paris"), max_tokens=9)
    num_shared = len(engine.model.template.encode([INSTRUCTIONS], add_generation_prompt=False))
    assert first[0].cached_tokens == 0
    assert other[0].cached_tokens >= num_shared
    again = await collect_progress(Conversation(engine), INSTRUCTIONS, HELLO, max_tokens=9)
    assert committed_text(again) == committed_text(first)


async def test_instructions_that_were_prefilled_are_copied_by_the_next_conversation(engine: Engine) -> None:
    first = Conversation(engine)
    first.prepare(Ask([INSTRUCTIONS]))
    num_shared = len(engine.model.template.encode([INSTRUCTIONS], add_generation_prompt=False))
    while len(first._cache.tokens) < num_shared:  # noqa: ASYNC110 - no event tells that prefill is done
        await asyncio.sleep(0.005)
    (other, *_) = await collect_progress(Conversation(engine), INSTRUCTIONS, HELLO, max_tokens=3)
    assert other.cached_tokens >= num_shared


async def test_a_conversation_copies_what_another_one_is_still_reading(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one arrives when the first has read half of long instructions: it copies the rest."""
    instructions = Message("system", "the capital of France is Paris and hello to you " * 40)
    num_rows: dict[int, int] = {}
    run, started = engine.model.decoder.run, asyncio.Event()
    loop = asyncio.get_running_loop()

    def count_rows(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        for rows in batch:
            num_rows[id(rows.cache)] = num_rows.get(id(rows.cache), 0) + len(rows.tokens)
        loop.call_soon_threadsafe(started.set)
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", count_rows)
    first = asyncio.create_task(collect_progress(Conversation(engine), instructions, HELLO, max_tokens=2))
    await started.wait()
    second = Conversation(engine)
    both = await asyncio.gather(first, collect_progress(second, instructions, HELLO, max_tokens=2))
    assert committed_text(both[0]) == committed_text(both[1])
    assert num_rows[id(second._cache)] < max(num_rows.values())


@pytest.mark.parametrize("instructions", [[SYSTEM], []])
async def test_conversations_share_their_tools(
    engine: Engine, instructions: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    template = "{% for t in tools %}{{ t.function.description }} {% endfor %}"
    template += "{% for m in messages %}{{ m.content }} {% endfor %}"
    for name, value in vars(ChatTemplate(template, engine.model.tokenizer)).items():
        monkeypatch.setattr(engine.model.template, name, value)
    tools = [TOOL] * 4
    await collect_progress(Conversation(engine), *instructions, HELLO, tools=tools, max_tokens=2)
    question = Message("user", "Paris")
    (other, *_) = await collect_progress(Conversation(engine), *instructions, question, tools=tools, max_tokens=2)
    assert other.cached_tokens >= 8


def test_prefixes_take_a_bounded_amount_of_memory() -> None:
    """The least recently used ones make room; one that is too long is not kept."""
    config = DecoderConfig("llama", "llama", 10, 8, 1, 1, 1, 1, 16, 64, 1e-6)

    def read(tokens: list[int]) -> KeyValueCache:
        cache = KeyValueCache(config, torch.float32, torch.device("cpu"))
        cache.reserve(len(tokens))
        cache.commit(tokens)
        return cache

    def is_kept(tokens: list[int]) -> bool:
        cache = KeyValueCache(config, torch.float32, torch.device("cpu"))
        prefixes.fill(cache, tokens)
        return cache.tokens == tokens

    prefixes = PrefixCache()
    texts = [[n] * (MAX_TOKENS // 4) for n in range(4)]
    for text in texts:
        prefixes.add(read(text), len(text))
    assert is_kept(texts[0])  # and used, so the second is the oldest now
    prefixes.add(read([9] * 100), 100)
    assert [is_kept(text) for text in (*texts, [9] * 100)] == [True, False, True, True, True]
    too_long = [5] * (MAX_TOKENS + 1)
    prefixes.add(read(too_long), len(too_long))
    assert not is_kept(too_long) and is_kept(texts[0])
    prefixes = PrefixCache([read([7] * 20)])
    for text in (*texts, [8] * MAX_TOKENS):
        prefixes.add(read(text), len(text))
    assert is_kept([7] * 20), "what was trained is never evicted"

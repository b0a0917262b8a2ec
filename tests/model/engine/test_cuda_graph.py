"""CUDA graph steps look up copies as the host does, and commit what decoding one token at a time would, for any number
of conversations.

No GPU is needed: on a CPU the runner runs the same steps without capturing them. On torch's `meta` device, which
computes only shapes, it must never wait for the host: that device has no values to read.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from chat.types import Ask, Message
from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft import NO_DRAFT, Draft
from model.decode.ngram import NgramLookup
from model.engine import engine as engine_module
from model.engine.batch_step import BatchStep
from model.engine.conversation import Conversation
from model.engine.cuda_graph import CUDAGraphRunner, slot_capacity
from model.engine.engine import Engine
from model.engine.loader import load_model
from model.nn.adapter import Adapter, random_adapter
from model.nn.decoder import Decoder
from model.nn.forward_batch import ForwardInput
from model.nn.kv_slab import KeyValueSlab, SlotCache
from tests.model.dialogues import SYSTEM, at_the_same_time, collect_progress, committed_text
from tests.model.engine.recorded_graphs import use_recorded_graphs
from tests.model.tiny_families import save_tiny_family

META = torch.device("meta")


def new_runner(
    decoder: Decoder, adapter: Adapter | None, num_drafts: int, context: int, num_copies: int = 0, num_slots: int = 2
) -> CUDAGraphRunner:
    capacity = slot_capacity(context, num_drafts, num_copies)
    slab = KeyValueSlab(decoder.config, decoder.dtype, decoder.device, num_slots, capacity)
    return CUDAGraphRunner(decoder, adapter, num_drafts, slab, num_copies)


@pytest.fixture(scope="module")
def runner(tiny_qwen2: Path) -> CUDAGraphRunner:
    return new_runner(Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32"), None, 0, 100, 4)


@given(texts=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=60), min_size=1, max_size=2))
def test_the_device_copies_what_the_host_would_look_up(runner: CUDAGraphRunner, texts: list[list[int]]) -> None:
    state = runner.state
    state.history.zero_()
    for slot, tokens in enumerate(texts):
        state.past_length[slot] = len(tokens) - 1
        state.history[slot, : len(tokens)].copy_(torch.tensor(tokens))
    state.look_up(torch.arange(len(texts)), 100)
    for slot, tokens in enumerate(texts):
        expected = NgramLookup(tokens).find(4)
        assert state.copied[slot].tolist() == [*expected, *[0] * (4 - len(expected))]


@pytest.mark.parametrize("num_drafts", [0, 2])
async def test_a_text_that_repeats_itself_takes_fewer_steps(tiny_qwen2: Path, num_drafts: int) -> None:
    """This tiny model repeats itself. The conversation is detached after each turn, and attached again."""
    base = load_model(tiny_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, num_drafts, seed=num_drafts) if num_drafts else None
    with_runner = Engine(lambda: replace(base, adapter=adapter), cuda_graphs=True)
    without_runner = Engine(lambda: base, cuda_graphs=False)
    try:
        question = Message("user", "hello to you and hello to you and hello")
        conversation, messages = Conversation(with_runner), [SYSTEM, question]
        for _ in range(2):
            progress = await collect_progress(conversation, *messages, max_tokens=60)
            undrafted = Conversation(without_runner, drafting=False)
            expected = await collect_progress(undrafted, *messages, max_tokens=60)
            assert committed_text(progress) == committed_text(expected)
            assert progress[-1].tokens == expected[-1].tokens
            # The previous occurrence is the token before, so each step copies one token.
            assert progress[-1].step < 0.6 * expected[-1].step
            messages += [Message("assistant", committed_text(progress)), Message("user", "Paris")]
        both = await asyncio.gather(
            *(collect_progress(Conversation(with_runner), *messages, max_tokens=30) for _ in range(2))
        )
        assert committed_text(both[0]) == committed_text(both[1])
    finally:
        with_runner.close()
        without_runner.close()


@pytest.mark.parametrize("num_drafts", [0, 1, 3])
async def test_cuda_graph_steps_commit_the_same_text(varied_qwen2: Path, engine: Engine, num_drafts: int) -> None:
    """A second conversation detaches the first one from the runner, and both take turns."""
    base = load_model(varied_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, num_drafts, seed=num_drafts) if num_drafts else None
    with_runner = Engine(lambda: replace(base, adapter=adapter), cuda_graphs=True)
    try:
        for words in ("hello to you", "the capital of France"):
            question = Message("user", words)
            conversation = Conversation(with_runner)
            progress = await collect_progress(conversation, SYSTEM, question, max_tokens=60)
            expected = await collect_progress(Conversation(engine), SYSTEM, question, max_tokens=60)
            assert committed_text(progress) == committed_text(expected)
            assert [p.finished for p in progress] == [None] * (len(progress) - 1) + [expected[-1].finished]
            response = Message("assistant", committed_text(progress))
            messages = [SYSTEM, question, response, Message("user", "Paris")]
            both = await asyncio.gather(
                collect_progress(conversation, *messages, max_tokens=40),
                collect_progress(Conversation(with_runner), *messages, max_tokens=30),
            )
            expected_text = committed_text(await collect_progress(Conversation(engine), *messages, max_tokens=40))
            assert committed_text(both[0]) == expected_text
            assert expected_text.startswith(committed_text(both[1]))
            assert both[0][0].cached_tokens > 20
            undrafted = Conversation(with_runner, drafting=False)
            plain = await collect_progress(undrafted, SYSTEM, question, max_tokens=60)
            assert committed_text(plain) == committed_text(expected)
            assert [p.tokens for p in plain] == list(range(1, len(plain) + 1))
    finally:
        with_runner.close()


@pytest.fixture
def crowd(varied_qwen2: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine with three slots, whose number of drafts depends on how many conversations share a step."""
    monkeypatch.setitem(engine_module._MAX_SLOTS, "cpu", 3)
    base = load_model(varied_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, 3, seed=3)
    engine = Engine(lambda: replace(base, adapter=adapter), cuda_graphs=True)
    assert engine._runner is not None and list(engine._runner.num_drafts) == [1, 2, 3]
    engine._runner.choose_drafts(lambda size, drafts: 1 + (drafts > 4 - size) * 100)
    assert [*engine._runner.num_drafts.values()] == [3, 2, 1]
    yield engine
    engine.close()


async def test_conversations_that_come_and_go_get_the_text_that_they_get_alone(crowd: Engine, engine: Engine) -> None:
    """Some leave early, some do not draft, and five do not fit into three slots at a time."""
    draw = random.Random(1)
    words = ["hello to you", "the capital of France", "Paris is hello", "you is the capital", "to France"]
    lengths = [40, 12, 60, 25, 33]
    expected = {
        word: committed_text(
            await collect_progress(Conversation(engine), SYSTEM, Message("user", word), max_tokens=length)
        )
        for word, length in zip(words, lengths, strict=True)
    }

    async def ask(conversation: Conversation, word: str, length: int, leaves_after: int | None) -> str:
        text = ""
        async for progress in conversation.reply(Ask([SYSTEM, Message("user", word)], max_tokens=length)):
            text += progress.committed
            if progress.step == leaves_after:
                break
        return text

    conversations = [Conversation(crowd, drafting=n != 2) for n in range(5)]
    for _ in range(4):
        turns = [*zip(words, lengths, strict=True)]
        draw.shuffle(turns)
        leaving = [draw.choice((None, None, 2, 6)) for _ in turns]
        texts = await at_the_same_time(
            crowd,
            *(ask(one, *turn, left) for one, turn, left in zip(conversations, turns, leaving, strict=True)),
        )
        for (word, _), left, text in zip(turns, leaving, texts, strict=True):
            assert text == expected[word] if left is None else expected[word].startswith(text)


async def test_replayed_steps_commit_the_same_text(
    varied_qwen2: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From captured steps of every size of a batch, whose drafts were chosen from the times of their replays."""
    graphs = use_recorded_graphs(monkeypatch)
    monkeypatch.setitem(engine_module._MAX_SLOTS, "cpu", 2)
    base = load_model(varied_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, 2, seed=3)
    replaying = Engine(lambda: replace(base, adapter=adapter), cuda_graphs=True)
    try:
        runner, started = replaying._runner, graphs.num_replayed
        assert runner is not None and 2 <= runner._in_flight <= 4
        assert set(runner.num_drafts) == {1, 2}
        assert graphs.num_captured == 2 * 3 + 2 * (len(runner.buckets) - 1) + 2 * len(runner.buckets)
        for attempt in range(2):
            turns = [Message("user", f"{words} {attempt}") for words in ("hello to you", "Paris")]
            texts = await at_the_same_time(
                replaying,
                *(
                    collect_progress(Conversation(replaying), SYSTEM, turn, max_tokens=length)
                    for turn, length in zip(turns, (20, 36), strict=True)
                ),
            )
            for turn, text in zip(turns, texts, strict=True):
                alone = await collect_progress(Conversation(engine), SYSTEM, turn, max_tokens=36)
                assert committed_text(alone).startswith(committed_text(text)) and text[-1].tokens >= 20
        assert graphs.num_replayed - started > 60
    finally:
        replaying.close()


@pytest.mark.parametrize("captured", [0, 1, 7])
async def test_where_steps_cannot_be_captured_they_run_all_the_same(
    varied_qwen2: Path, engine: Engine, captured: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first capture fails, or a later one: of the first six steps, or after their drafts were chosen."""
    graphs = use_recorded_graphs(monkeypatch)
    record = torch.cuda.graph

    def fail(*arguments: Any, **options: Any) -> Any:
        if graphs.num_captured == captured:
            raise RuntimeError("operation not permitted when stream is capturing\nwith a long trace")
        return record(*arguments, **options)

    monkeypatch.setattr(torch.cuda, "graph", fail)
    monkeypatch.setitem(engine_module._MAX_SLOTS, "cpu", 2)
    base = load_model(varied_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, 2, seed=3)
    without = Engine(lambda: replace(base, adapter=adapter), cuda_graphs=True)
    try:
        turn, replayed = Message("user", "hello to you"), graphs.num_replayed
        (text,) = await at_the_same_time(without, collect_progress(Conversation(without), SYSTEM, turn, max_tokens=24))
        expected = await collect_progress(Conversation(engine), SYSTEM, turn, max_tokens=24)
        assert committed_text(text) == committed_text(expected)
        assert without._runner is not None and set(without._runner.num_drafts.values()) == {2}
        assert graphs.num_captured == captured and graphs.num_replayed == replayed
        (message,) = [one for one in caplog.messages if "captured" in one]
        assert message.startswith("steps cannot be captured here") and message.endswith("stream is capturing")
    finally:
        without.close()


def test_the_host_waits_for_results_that_a_gpu_copies_whether_its_steps_are_captured_or_not(
    tiny_qwen2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMD's are not, and their copies to the host do not wait either."""
    recorded = list[str]()
    runner = new_runner(Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32"), None, 0, 100)
    step = runner.batch_step(1, 0)
    assert step.launch(runner.buckets[-1])[2] is None
    monkeypatch.setattr(step._decoder, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda: recorded.append("result")))
    assert step.launch(runner.buckets[-1])[2] is not None and recorded == ["result"]


async def test_conversations_share_the_steps_of_the_device(crowd: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward passes of the host read prompts only, one chunk of each conversation."""
    runner, batches, host_rows = crowd._runner, list[int](), list[int]()
    assert runner is not None
    step, run = runner.step, crowd.model.decoder.run

    def spy_step(attachments: list[object]) -> object:
        batches.append(len(attachments))
        return step(attachments)  # type: ignore[arg-type]

    def spy_run(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        host_rows.append(sum(not rows.is_prefill for rows in batch))
        return run(batch, adapter)

    monkeypatch.setattr(runner, "step", spy_step)
    monkeypatch.setattr(crowd.model.decoder, "run", spy_run)
    turns = [Message("user", word) for word in ("hello", "Paris", "France")]
    await at_the_same_time(
        crowd, *(collect_progress(Conversation(crowd), SYSTEM, turn, max_tokens=30) for turn in turns)
    )
    assert batches.count(3) >= 10
    assert not any(host_rows)


async def test_running_out_of_memory_in_a_shared_step_fails_nobody_whose_own_step_fits(
    crowd: Engine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step for several runs out of memory, so each is tried alone. Later one conversation fails by itself."""
    launch, unlucky, failed = BatchStep.launch, set[int](), list[int]()

    def out_of_memory(step: BatchStep, bucket: int) -> object:
        if step.batch > 1 or unlucky & set(step._members):
            failed.append(step.batch)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return launch(step, bucket)

    monkeypatch.setattr(BatchStep, "launch", out_of_memory)
    conversations, turns = [Conversation(crowd) for _ in range(3)], [Message("user", w) for w in ("hello", "Paris")]
    expected = [
        committed_text(await collect_progress(Conversation(engine), SYSTEM, turn, max_tokens=20)) for turn in turns
    ]
    texts = await at_the_same_time(
        crowd,
        *(collect_progress(c, SYSTEM, t, max_tokens=20) for c, t in zip(conversations, turns, strict=False)),
    )
    assert [*map(committed_text, texts)] == expected and failed.count(2) > 5
    cache = conversations[0]._cache
    assert isinstance(cache, SlotCache) and cache.slot is not None
    unlucky.add(cache.slot)
    with pytest.raises(RuntimeError, match="ran out of memory for this request; other requests continue"):
        await collect_progress(conversations[0], SYSTEM, turns[0], max_tokens=20)
    again = await collect_progress(conversations[1], SYSTEM, turns[1], max_tokens=20)
    assert committed_text(again) == expected[1]


async def test_no_keys_are_copied_when_a_conversation_joins_or_leaves(
    crowd: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, turns = Conversation(crowd), [SYSTEM, Message("user", "hello to you")]
    first = committed_text(await collect_progress(conversation, *turns, max_tokens=20))
    cache = conversation._cache
    assert isinstance(cache, SlotCache) and cache.slot is not None
    slot = cache.slot
    monkeypatch.setattr(SlotCache, "_move_in", lambda self: pytest.fail("a conversation was copied"))
    monkeypatch.setattr(SlotCache, "copy_from", lambda self, other: pytest.fail("a conversation was copied"))
    turns += [Message("assistant", first), Message("user", "Paris")]
    assert (await collect_progress(conversation, *turns, max_tokens=20))[0].cached_tokens > 20
    assert cache.slot == slot
    keys = crowd._slab.keys_values[0, 0, slot] if crowd._slab else None
    assert keys is not None and cache.tensors()[0].data_ptr() == keys.data_ptr()


async def test_the_idle_conversation_used_longest_ago_loses_its_slot(crowd: Engine) -> None:
    conversations, turn = [Conversation(crowd) for _ in range(4)], Message("user", "hello to you")
    for conversation in conversations:
        await collect_progress(conversation, SYSTEM, turn, max_tokens=10)
    assert [len(conversation._cache.tokens) > 0 for conversation in conversations] == [False, True, True, True]
    again = await collect_progress(conversations[0], SYSTEM, turn, max_tokens=10)
    fresh = await collect_progress(Conversation(crowd), SYSTEM, turn, max_tokens=10)
    assert committed_text(again) == committed_text(fresh)


async def test_a_fork_of_an_attached_conversation_reads_the_tokens_that_only_the_runner_holds(
    varied_qwen2: Path,
) -> None:
    engine = Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"), cuda_graphs=True)
    try:
        for words, step in itertools.product(("hello to you", "the capital of France", "Paris is hello"), (2, 5, 9)):
            question, text = Message("user", words), ""
            conversation = Conversation(engine)
            async for progress in conversation.reply(Ask([SYSTEM, question], max_tokens=40)):
                text += progress.committed
                if progress.step == step:
                    messages = [SYSTEM, question, Message("assistant", text), Message("user", "to you")]
                    fork = asyncio.create_task(collect_progress(conversation.fork(), *messages, max_tokens=12))
                    await asyncio.sleep(0)
            expected = await collect_progress(Conversation(engine), *messages, max_tokens=12)
            assert committed_text(await fork) == committed_text(expected)
    finally:
        engine.close()


@pytest.mark.parametrize("context", [40, 120, 256, 512])
def test_the_largest_bucket_is_the_context_and_what_its_last_steps_write(tiny_qwen2: Path, context: int) -> None:
    """Rounding up to a power of two would double the memory of a context of 4,096."""
    decoder = Decoder(open_checkpoint(tiny_qwen2), META, "bfloat16")
    runner = new_runner(decoder, None, 0, context, 8)
    capacity = runner._slab.capacity
    assert context + 4 * 9 + 9 <= capacity < context + 4 * 9 + 9 + 64
    assert runner.buckets[-1] == capacity and runner.buckets == sorted(set(runner.buckets))
    cache = runner._slab.new_cache()
    decoder.forward([1] * (context - 20), cache, logits="none")
    cache.commit([1] * 20)
    assert runner.has_room(cache) == (context < decoder.config.context_length)
    runner.batch_step(1, 0).run(capacity)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize(("num_drafts", "num_copies"), [(0, 0), (0, 8), (1, 0), (4, 8)])
def test_a_step_never_waits_for_the_host(tiny_qwen2: Path, num_drafts: int, num_copies: int, batch: int) -> None:
    """A CUDA graph cannot capture a step that waits for the host."""
    decoder = Decoder(open_checkpoint(tiny_qwen2), META, "bfloat16")
    adapter = random_adapter(decoder.config, 4, 3, seed=0).to(META, torch.bfloat16) if num_drafts else None
    step = new_runner(decoder, adapter, num_drafts, 200, num_copies, 4).batch_step(batch, num_drafts)
    step.run(256)
    assert step._result.shape == (batch, 2 + max(num_drafts, num_copies) + 1 + 2 * num_drafts)


def test_a_model_with_its_own_mask_token_drafts_without_an_adapter(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, "i-dlm")
    step = new_runner(Decoder(open_checkpoint(folder), META, "bfloat16"), None, 2, 200).batch_step(2, 2)
    step.run(256)
    assert step._result.shape == (2, 2 + 3 + 4)


def test_a_conversation_that_has_just_joined_has_no_result_of_steps_launched_before(tiny_qwen2: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32")
    runner = new_runner(decoder, None, 0, 200)
    attachments = []
    for last in (40, 41):
        cache = runner._slab.new_cache()
        decoder.forward(list(range(1, 30)), cache, logits="none")
        attachment = runner.attach(cache, last, NO_DRAFT)
        assert attachment is not None
        attachments.append(attachment)
        found = runner.step(attachments)
        assert [one for one, _ in found] == attachments[:1]
        cache.commit([last])
    attachments[0].detach()
    assert [one for one, _ in runner.step(attachments[1:])] == attachments[1:]


def test_drafts_that_were_not_made_are_not_reported(varied_qwen2: Path) -> None:
    """The state has room for three; a step with one leaves the rest empty."""
    decoder = Decoder(open_checkpoint(varied_qwen2), torch.device("cpu"), "float32")
    runner = new_runner(decoder, random_adapter(decoder.config, 4, 3, seed=0), 3, 200)
    runner.num_drafts[1] = 1
    cache = runner._slab.new_cache()
    decoder.forward(list(range(1, 30)), cache, logits="none")
    attachment = runner.attach(cache, 40, Draft((7, 9, 11)))
    assert attachment is not None
    ((_, result),) = runner.step([attachment])
    assert len(result.draft.tokens) == len(result.draft.confidence) == 1
    assert runner.state.drafts[0, 1:].tolist() == [0, 0]

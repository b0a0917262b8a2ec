"""CUDA graph steps look up copies as the host does, and commit what decoding one token at a time would.

No GPU is needed: on a CPU the runner runs the same steps without capturing them. On torch's `meta` device, which
computes only shapes, it must never wait for the host: that device has no values to read.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from model.checkpoint.chat_template import TextMessage
from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft import NO_DRAFT, Draft
from model.decode.ngram import NgramLookup
from model.engine.conversation import Conversation
from model.engine.cuda_graph import CUDAGraphRunner
from model.engine.engine import Engine
from model.engine.loader import load_model
from model.nn.adapter import random_adapter
from model.nn.decoder import Decoder
from tests.model.dialogues import SYSTEM, collect_progress, committed_text
from tests.model.tiny_families import save_tiny_family

META = torch.device("meta")


@pytest.fixture(scope="module")
def runner(tiny_qwen2: Path) -> CUDAGraphRunner:
    return CUDAGraphRunner(Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32"), None, 0, 100, 4)


@given(tokens=st.lists(st.integers(1, 3), min_size=1, max_size=60))
def test_the_device_copies_what_the_host_would_look_up(runner: CUDAGraphRunner, tokens: list[int]) -> None:
    runner._state.past_length.fill_(len(tokens) - 1)
    runner._state.history.zero_()
    runner._state.history[: len(tokens)].copy_(torch.tensor(tokens))
    runner._look_up(128)
    expected = NgramLookup(tokens).find(4)
    assert runner._state.copied.tolist() == [*expected, *[0] * (4 - len(expected))]


@pytest.mark.parametrize("num_drafts", [0, 2])
async def test_a_text_that_repeats_itself_takes_fewer_steps(tiny_qwen2: Path, num_drafts: int) -> None:
    """This tiny model repeats itself. The conversation is detached after each turn, and attached again."""
    base = load_model(tiny_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, num_drafts, seed=num_drafts) if num_drafts else None
    with_runner = Engine(lambda: replace(base, adapter=adapter), cuda_graphs=True)
    without_runner = Engine(lambda: base, cuda_graphs=False)
    try:
        question = TextMessage("user", "hello to you and hello to you and hello")
        conversation, messages = Conversation(with_runner), [SYSTEM, question]
        for _ in range(2):
            progress = await collect_progress(conversation, *messages, max_tokens=60)
            undrafted = Conversation(without_runner, drafting=False)
            expected = await collect_progress(undrafted, *messages, max_tokens=60)
            assert committed_text(progress) == committed_text(expected)
            assert progress[-1].tokens == expected[-1].tokens
            # The previous occurrence is the token before, so each step copies one token.
            assert len(progress) < 0.6 * len(expected)
            messages += [TextMessage("assistant", committed_text(progress)), TextMessage("user", "Paris")]
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
            question = TextMessage("user", words)
            conversation = Conversation(with_runner)
            progress = await collect_progress(conversation, SYSTEM, question, max_tokens=60)
            expected = await collect_progress(Conversation(engine), SYSTEM, question, max_tokens=60)
            assert committed_text(progress) == committed_text(expected)
            assert [p.finished for p in progress] == [None] * (len(progress) - 1) + [expected[-1].finished]
            response = TextMessage("assistant", committed_text(progress))
            messages = [SYSTEM, question, response, TextMessage("user", "Paris")]
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


@pytest.mark.parametrize("num_drafts", [0, 2])
def test_steps_with_and_without_drafts_have_equally_many_rows(varied_qwen2: Path, num_drafts: int) -> None:
    """With other sizes a GPU may choose other kernels, which round differently, and so other tokens."""
    base = load_model(varied_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, num_drafts, seed=0) if num_drafts else None
    engine = Engine(lambda: replace(base, adapter=adapter), cuda_graphs=True)
    try:
        rows = engine.call(lambda _: {runner.num_rows for runner in engine._cuda_graph_runners.values()})
        assert rows == {(num_drafts + 1) ** 2 + 8}
    finally:
        engine.close()


@pytest.mark.parametrize("num_drafts", [0, 2])
def test_padding_rows_change_nothing_that_a_step_leaves(tiny_qwen2: Path, num_drafts: int) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32")
    adapter = random_adapter(decoder.config, 4, 2, seed=0)
    texts: list[list[int]] = []
    for min_rows in (0, 20):
        cache = decoder.new_cache()
        decoder.forward(list(range(1, 30)), cache, logits="none")
        runner = CUDAGraphRunner(decoder, adapter, num_drafts, 200, 3, min_rows)
        assert runner.num_rows == max(min_rows, (num_drafts + 1) ** 2 + 3)
        runner.attach(cache, 40, Draft((7, 9)[:num_drafts]))
        text = [40]
        for _ in range(8):
            committed = runner.step().committed
            cache.commit([text[-1], *committed[:-1]])
            text += committed
        texts.append(text)
    assert texts[0] == texts[1]


async def test_a_fork_of_an_attached_conversation_reads_the_tokens_that_only_the_runner_holds(
    varied_qwen2: Path,
) -> None:
    engine = Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"), cuda_graphs=True)
    try:
        for words, step in itertools.product(("hello to you", "the capital of France", "Paris is hello"), (2, 5, 9)):
            question, text = TextMessage("user", words), ""
            conversation = Conversation(engine)
            async for progress in conversation.reply([SYSTEM, question], max_tokens=40):
                text += progress.committed
                if progress.step == step:
                    messages = [SYSTEM, question, TextMessage("assistant", text), TextMessage("user", "to you")]
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
    runner = CUDAGraphRunner(decoder, None, 0, context, 8)
    assert context + 2 * runner.num_rows <= runner._capacity < context + 2 * runner.num_rows + 64
    assert runner._buckets[-1] == runner._capacity and runner._buckets == sorted(set(runner._buckets))
    cache = decoder.new_cache()
    decoder.forward([1] * (context - 20), cache, logits="none")
    runner.attach(cache, 1, NO_DRAFT)
    cache.commit([1] * 20)
    assert runner.fits(cache) == (context < decoder.config.context_length)
    runner._run(runner._capacity)
    assert runner._keys_values.shape[3] == runner._capacity


@pytest.mark.parametrize(("num_drafts", "num_copies"), [(0, 0), (0, 8), (1, 0), (4, 8)])
def test_a_step_never_waits_for_the_host(tiny_qwen2: Path, num_drafts: int, num_copies: int) -> None:
    """A CUDA graph cannot capture a step that waits for the host."""
    decoder = Decoder(open_checkpoint(tiny_qwen2), META, "bfloat16")
    adapter = random_adapter(decoder.config, 4, 3, seed=0).to(META, torch.bfloat16) if num_drafts else None
    runner = CUDAGraphRunner(decoder, adapter, num_drafts, 200, num_copies)
    runner._run(256)
    assert runner._state.result.shape == (2 + max(num_drafts, num_copies) + 1 + 2 * num_drafts,)


def test_a_model_with_its_own_mask_token_drafts_without_an_adapter(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, "i-dlm")
    runner = CUDAGraphRunner(Decoder(open_checkpoint(folder), META, "bfloat16"), None, 2, 200)
    runner._run(256)
    assert runner._state.result.shape == (2 + 3 + 4,)

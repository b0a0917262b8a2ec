"""Which requests take part in a forward pass, and how long the others wait."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chat.types import Ask, Message
from model.checkpoint.checkpoint import DecoderConfig
from model.decode.draft_length import DraftLengthController
from model.engine.conversation import Conversation
from model.engine.cuda_graph import Attachment
from model.engine.engine import Engine
from model.engine.loader import load_model
from model.engine.scheduler import BACKGROUND_DELAY_S, Request, next_ready_time, ready_requests, schedule
from model.nn.adapter import Adapter
from model.nn.attention import causal_mask
from model.nn.forward_batch import PREFILL_CHUNK, ForwardInput, ForwardInterrupted
from model.nn.kv_cache import KeyValueCache
from tests.model.dialogues import HELLO, SYSTEM, at_the_same_time, collect_progress, held
from tests.real_time import HANG_S

CONFIG = DecoderConfig("llama", "llama", 10, 8, 2, 2, 1, 4, 16, 64, 1e-6)


@pytest.fixture
def engine(varied_qwen2: Path) -> Iterator[Engine]:
    engine = Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"))
    yield engine
    engine.close()


def new_request(num_rows: int, last_progress_step: int, *, is_prefill: bool = False) -> Request:
    cache = KeyValueCache(CONFIG, torch.float32, torch.device("cpu"))
    rows = ForwardInput(
        cache,
        [0] * num_rows,
        range(num_rows),
        causal_mask(num_rows, 0),
        [False] * num_rows,
        num_rows,
        is_prefill=is_prefill,
    )
    return Request(
        (_ for _ in ()),
        lambda error: None,
        lambda: None,
        next_input=rows,
        last_progress_step=last_progress_step,
    )


REQUESTS = st.lists(
    st.builds(new_request, st.integers(1, 70), st.integers(0, 20), is_prefill=st.booleans()), max_size=12
)


def test_bulk_requests_wait_for_all_others() -> None:
    spoken, background, bulk = (new_request(1, 0) for _ in range(3))
    background.background = bulk.background = bulk.bulk = True
    later = 10 + BACKGROUND_DELAY_S
    assert ready_requests([spoken, background, bulk], later, 10) == [spoken]
    assert ready_requests([background, bulk], later, 10) == [background]
    assert ready_requests([bulk], 10, 10) == []
    assert ready_requests([bulk], later, 10) == [bulk]


@given(requests=REQUESTS, max_rows=st.integers(1, 80))
def test_the_longest_waiting_requests_are_scheduled_as_long_as_they_fit(requests: list[Request], max_rows: int) -> None:
    chosen = schedule(requests, max_rows)
    for is_prefill in (False, True):
        candidates = [r for r in requests if r.is_prefill == is_prefill]
        chosen_ones = [r for r in chosen if r.is_prefill == is_prefill]
        assert bool(chosen_ones) == bool(candidates)
        if chosen_ones:
            assert chosen_ones[0].last_progress_step == min(r.last_progress_step for r in candidates)
    generating, prefilling = [r for r in chosen if not r.is_prefill], [r for r in chosen if r.is_prefill]
    assert len(generating) == 1 or sum(r.num_rows for r in generating) <= max_rows
    assert len(prefilling) <= 1 or sum(r.num_rows for r in chosen) <= max_rows
    for request in requests:
        if not request.is_prefill and request not in chosen:
            assert sum(r.num_rows for r in generating) + request.num_rows > max_rows


@given(requests=REQUESTS, attached=st.integers(1, 70), max_rows=st.integers(1, 80))
def test_attached_conversations_always_take_part_and_need_no_rows(
    requests: list[Request], attached: int, max_rows: int
) -> None:
    """The device takes their steps together. What the others do is as without them."""
    attachments = [new_request(1, 20) for _ in range(attached)]
    for request in attachments:
        request.next_input = Attachment(None, None, True)  # type: ignore[arg-type]
    chosen = schedule([*requests, *attachments], max_rows)
    assert all(any(request is one for one in chosen) for request in attachments)
    others = [request for request in chosen if not isinstance(request.next_input, Attachment)]
    alone = schedule(requests, max_rows)
    assert len(others) == len(alone) and all(one is other for one, other in zip(others, alone, strict=True))


async def test_new_prompts_do_not_keep_a_generating_request_out_of_any_forward_pass(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dozen prompts arrive in the middle of a response, before its tenth forward pass. The response is in every
    forward pass, and at least one prompt."""
    generating, batches, prompts_arrived = Conversation(engine), [], threading.Event()
    run = engine.model.decoder.run

    def spy(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        batches.append((any(rows.cache is generating._cache for rows in batch), any(rows.is_prefill for rows in batch)))
        if len(batches) == 10:
            prompts_arrived.wait(HANG_S)
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", spy)
    tasks: list[asyncio.Task[object]] = []
    async for progress in generating.reply(Ask([SYSTEM, HELLO], max_tokens=120)):
        if progress.step == 3:
            start = len(batches)
            questions = [Message("user", f"{n} " + "hello to you " * 12) for n in range(12)]
            tasks += [
                asyncio.create_task(collect_progress(Conversation(engine), SYSTEM, question, max_tokens=2))
                for question in questions
            ]
            await asyncio.sleep(0)  # all have submitted their request
            prompts_arrived.set()
    await asyncio.gather(*tasks)
    end = max(n for n, (has_generating, _) in enumerate(batches) if has_generating)
    during = batches[start:end]
    assert sum(has_prefill for _, has_prefill in during) >= 12
    assert all(has_generating for has_generating, _ in during)


async def test_a_long_prompt_does_not_keep_a_generating_request_out_of_any_forward_pass(
    varied_qwen2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one conversation reads many chunks, another that generates has rows in each of those forward passes."""
    model = load_model(varied_qwen2, device="cpu", precision="float32")
    engine = Engine(lambda: replace(model, stop_tokens=frozenset()))
    engine.draft_length = DraftLengthController({64: 1.0, 100: 1.0}, 3, [0.9] * 3)
    batches: list[list[ForwardInput]] = []
    run = engine.model.decoder.run

    def spy(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        batches.append(list(batch))
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", spy)
    generating, reading = Conversation(engine), Conversation(engine)
    long_question = Message("user", "hello to you " * 90)
    try:
        task: asyncio.Task[object] | None = None
        async for progress in generating.reply(Ask([SYSTEM, HELLO], max_tokens=60)):
            if progress.step == 3:
                task = asyncio.create_task(collect_progress(reading, SYSTEM, long_question, max_tokens=2))
        assert task is not None
        await task
    finally:
        engine.close()
    with_output = [
        n
        for n, batch in enumerate(batches)
        if any(rows.cache is generating._cache and rows.num_outputs for rows in batch)
    ]
    with_chunk = [
        n
        for n, batch in enumerate(batches)
        if any(rows.cache is reading._cache and not rows.num_outputs for rows in batch)
    ]
    assert len(with_chunk) >= 3
    assert all(n in with_output for n in with_chunk if n < with_output[-1])
    assert all(sum(not rows.num_outputs for rows in batch) <= 1 for batch in batches)
    assert all(len(rows.tokens) <= PREFILL_CHUNK for batch in batches for rows in batch if not rows.num_outputs)


async def test_the_longest_waiting_requests_are_served_first(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two rows per forward pass, six conversations take turns: none waits more than three forward passes, or
    four."""
    engine._max_rows = 2
    batches: list[list[int]] = []
    run = engine.model.decoder.run

    def spy(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        batches.append([id(rows.cache) for rows in batch if not rows.is_prefill])
        sizes = [len(rows.tokens) for rows in batch if not rows.is_prefill]
        assert sum(sizes) <= 2 or len(sizes) == 1  # more only for copies that were planned while it was alone
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", spy)
    responses = (
        collect_progress(Conversation(engine), SYSTEM, Message("user", f"hello {n}"), max_tokens=12) for n in range(6)
    )
    assert all(progress[-1].finished for progress in await at_the_same_time(engine, *responses))
    caches = {cache for batch in batches for cache in batch}
    all_started = max(next(n for n, batch in enumerate(batches) if cache in batch) for cache in caches)
    for cache in caches:
        served = [n for n, batch in enumerate(batches) if cache in batch and n > all_started]
        # One more if copies that the first conversation planned while it was alone fill a forward pass.
        assert max(after - before for before, after in itertools.pairwise(served)) <= 4


async def test_a_request_that_commits_nothing_comes_before_one_that_does(engine: Engine) -> None:
    """Fairness goes by the time since the last commit, not since the last forward pass."""
    served: list[str] = []

    def steps(name: str, commits: bool) -> Iterator[ForwardInput]:
        cache = engine.model.decoder.new_cache()
        for _ in range(6):
            yield ForwardInput(cache, [1, 2], [0, 1], causal_mask(2, 0), [False] * 2, 1)
            served.append(name)
            if commits:
                engine.record_commit()

    engine._max_rows = 2
    done = [threading.Event() for _ in range(2)]
    with held(engine):
        for name, commits, event in (("commits", True, done[0]), ("computes", False, done[1])):
            engine.submit(steps(name, commits), lambda error: None, event.set)  # type: ignore[arg-type]
    for event in done:
        assert await asyncio.to_thread(event.wait, HANG_S)
    assert served == ["commits", *["computes"] * 6, *["commits"] * 5]


def test_the_background_waits_for_speakers() -> None:
    background, spoken = new_request(1, 0), new_request(1, 0)
    background.background = True
    assert ready_requests([background], 100.0, float("-inf")) == [background]
    assert ready_requests([background, spoken], 100.0, 100.0) == [spoken]
    spoken.paused_until = 100.5  # synthesis needs the processor
    assert ready_requests([background, spoken], 100.0, 100.0) == []
    assert next_ready_time([background, spoken], 100.0) == 100.5
    assert ready_requests([background], 100.0, 99.9) == []
    assert next_ready_time([background], 99.9) == pytest.approx(99.9 + BACKGROUND_DELAY_S)
    assert ready_requests([background], 99.9 + BACKGROUND_DELAY_S, 99.9) == [background]


async def test_a_speaker_interrupts_a_forward_pass_of_the_background(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass is abandoned between two layers and run again later, and both texts are what they would be alone."""
    alone = [
        [progress.committed async for progress in Conversation(engine).reply(Ask([SYSTEM, message], max_tokens=20))]
        for message in (HELLO, Message("user", "Paris"))
    ]
    run, outcomes = engine.model.decoder.run, list[str]()
    reader, speaker = Conversation(engine, background=True), Conversation(engine)
    loop, spoken = asyncio.get_running_loop(), asyncio.Event()
    arrive_in = 5  # forward passes

    def spy(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        nonlocal arrive_in
        arrive_in -= 1
        if arrive_in == 0:
            loop.call_soon_threadsafe(spoken.set)
            while not engine._waiting:
                time.sleep(0.001)
        try:
            outputs = run(batch, adapter)
        except ForwardInterrupted:
            outcomes.append("interrupted")
            raise
        outcomes.append("background" if any(rows.cache is reader._cache for rows in batch) else "spoken")
        return outputs

    monkeypatch.setattr(engine.model.decoder, "run", spy)

    async def speak() -> list[str]:
        await spoken.wait()
        return [progress.committed async for progress in speaker.reply(Ask([SYSTEM, HELLO], max_tokens=20))]

    speaking = asyncio.create_task(speak())
    other = Message("user", "Paris")
    texts = [progress.committed async for progress in reader.reply(Ask([SYSTEM, other], max_tokens=20))]
    assert ["".join(await speaking), "".join(texts)] == ["".join(text) for text in alone]
    first = outcomes.index("interrupted")
    last_spoken = len(outcomes) - 1 - outcomes[::-1].index("spoken")
    assert first == 4 and outcomes.count("interrupted") == 1
    assert "background" not in outcomes[first:last_spoken]

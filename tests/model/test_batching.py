"""Many conversations, one model: who is in a pass, what is read once for all, and who fails alone."""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.adapter import Adapter
from model.attention import causal_mask
from model.batching import Job, choose
from model.cache import KeyValueCache
from model.chat import TextMessage
from model.engine import Engine, load_model
from model.transformer import Rows
from model.weights import DecoderConfig
from tests.model.talk import HELLO, SYSTEM, all_of, livelier, text_of

CONFIG = DecoderConfig("llama", "llama", 10, 8, 2, 2, 1, 4, 16, 64, 1e-6)


@pytest.fixture(scope="module")
def tiny_qwen2(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return livelier(tiny_qwen2, tmp_path_factory.mktemp("lively"))


@pytest.fixture
def engine(tiny_qwen2: Path) -> Iterator[Engine]:
    engine = Engine(lambda: load_model(tiny_qwen2, device="cpu", precision="float32"))
    yield engine
    engine.close()


def job(size: int, since: int, *, reads: bool = False) -> Job:
    cache = KeyValueCache(CONFIG, torch.float32, torch.device("cpu"))
    rows = Rows(cache, [0] * size, range(size), causal_mask(size, 0), [False] * size, size, reads=reads)
    return Job((_ for _ in ()), lambda error: None, lambda: None, rows=rows, since=since)  # type: ignore[arg-type]


jobs = st.lists(st.builds(job, st.integers(1, 70), st.integers(0, 20), reads=st.booleans()), max_size=12)


@given(jobs=jobs, most=st.integers(1, 80))
def test_a_pass_holds_who_waited_longest_and_as_many_as_it_has_room_for(jobs: list[Job], most: int) -> None:
    chosen = choose(jobs, most)
    speaking, reading = [j for j in chosen if not j.reads], [j for j in chosen if j.reads]
    assert bool(speaking) == any(not j.reads for j in jobs) and bool(reading) == any(j.reads for j in jobs)
    for kind, wanting in ((speaking, [j for j in jobs if not j.reads]), (reading, [j for j in jobs if j.reads])):
        assert not kind or kind[0].since == min(j.since for j in wanting)
    assert len(speaking) == 1 or sum(j.size for j in speaking) <= most
    assert len(reading) <= 1 or sum(j.size for j in chosen) <= most
    for left in jobs:
        if not left.reads and left not in chosen:
            assert sum(j.size for j in speaking) + left.size > most


async def test_newcomers_delay_a_speakers_next_words_by_no_pass(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dozen prompts arrive in the middle of an answer; the speaker is in every pass, and one prompt at least."""
    speaker, seen = engine.conversation(), []
    run = engine.model.decoder.run

    def noted(batch: list[Rows], adapter: Adapter | None) -> list[torch.Tensor]:
        seen.append((any(rows.cache is speaker._cache for rows in batch), any(rows.reads for rows in batch)))
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", noted)
    newcomers: list[asyncio.Task[object]] = []
    async for progress in speaker.reply([SYSTEM, HELLO], max_tokens=120):
        if progress.step == 3:
            start = len(seen)
            asked = [TextMessage("user", f"{n} " + "hello to you " * 12) for n in range(12)]
            newcomers += [asyncio.create_task(all_of(engine.conversation(), SYSTEM, q, max_tokens=2)) for q in asked]
    end = len(seen)
    await asyncio.gather(*newcomers)
    passes = seen[start:end]
    assert sum(reads for _, reads in passes) >= 12
    assert all(speaks for speaks, _ in passes[:-2])


async def test_those_that_waited_longest_are_served_first(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that holds two rows serves six conversations in turn: none waits more than three passes, or four."""
    engine._most_rows = 2
    served: list[list[int]] = []
    run = engine.model.decoder.run

    def noted(batch: list[Rows], adapter: Adapter | None) -> list[torch.Tensor]:
        served.append([id(rows.cache) for rows in batch if not rows.reads])
        sizes = [len(rows.tokens) for rows in batch if not rows.reads]
        assert sum(sizes) <= 2 or len(sizes) == 1  # copies that were planned while it was alone
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", noted)
    talks = (all_of(engine.conversation(), SYSTEM, TextMessage("user", f"hello {n}"), max_tokens=12) for n in range(6))
    assert all(progress[-1].finished for progress in await asyncio.gather(*talks))
    caches = {cache for batch in served for cache in batch}
    prompted = max(next(n for n, batch in enumerate(served) if cache in batch) for cache in caches)
    for cache in caches:
        places = [n for n, batch in enumerate(served) if cache in batch and n > prompted]
        # One more where copies that were planned by the first speaker alone fill a pass.
        assert max(after - before for before, after in itertools.pairwise(places)) <= 4


async def test_conversations_share_their_instructions(engine: Engine) -> None:
    long = TextMessage("system", "the capital of France is Paris and hello to you " * 4)
    first = await all_of(engine.conversation(), long, HELLO, max_tokens=9)
    other = await all_of(engine.conversation(), long, TextMessage("user", "Paris"), max_tokens=9)
    shared = len(engine.model.template.encode([long], answer=False))
    assert first[0].cached_tokens == 0
    assert other[0].cached_tokens >= shared
    again = await all_of(engine.conversation(), long, HELLO, max_tokens=9)
    assert text_of(again) == text_of(first)


async def test_a_request_that_runs_out_of_memory_fails_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = engine.model.decoder.run

    def small(batch: list[Rows], adapter: object) -> list[torch.Tensor]:
        if any(len(rows.cache.tokens) > 60 for rows in batch):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(batch, None)

    monkeypatch.setattr(engine.model.decoder, "run", small)
    short = asyncio.create_task(all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=9))
    with pytest.raises(RuntimeError, match="ran out of memory for this request; the others go on"):
        await all_of(engine.conversation(), SYSTEM, TextMessage("user", "hello to you " * 30), max_tokens=9)
    assert (await short)[-1].finished


async def test_who_commits_nothing_comes_before_who_does(engine: Engine) -> None:
    """Fairness is by the time since the last commit, not since the last pass."""
    served: list[str] = []

    def passes(name: str, commits: bool) -> Iterator[Rows]:
        cache = engine.model.decoder.new_cache()
        for _ in range(6):
            yield Rows(cache, [1, 2], [0, 1], causal_mask(2, 0), [False] * 2, 1)
            served.append(name)
            if commits:
                engine.committed()

    engine._most_rows = 2
    done = [threading.Event() for _ in range(2)]
    held = threading.Event()
    blocker = threading.Thread(target=engine.call, args=(lambda model: held.wait(5),))
    blocker.start()  # both arrive before the same pass
    for name, commits, event in (("says", True, done[0]), ("works", False, done[1])):
        engine.submit(passes(name, commits), lambda error: None, event.set)  # type: ignore[arg-type]
    held.set()
    for event in done:
        assert await asyncio.to_thread(event.wait, 10)
    blocker.join()
    assert served == ["says", *["works"] * 6, *["says"] * 5]


async def test_cancelling_takes_effect_before_the_pass_after_the_next(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, passes, at = engine.conversation(), 0, 0
    run = engine.model.decoder.run

    def counted(batch: list[Rows], adapter: Adapter | None) -> list[torch.Tensor]:
        nonlocal passes, at
        passes += 1
        if passes == 5:
            conversation.cancel()
            at = passes
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", counted)
    progress = await all_of(conversation, SYSTEM, HELLO, max_tokens=400)
    assert at == 5 and passes == 5 and progress[-1].finished is None


async def test_what_one_has_read_ahead_is_lent_to_the_next(engine: Engine) -> None:
    long = TextMessage("system", "the capital of France is Paris and hello to you " * 4)
    first = engine.conversation()
    first.prepare([long])
    wanted = len(engine.model.template.encode([long], answer=False))
    while first.cached_tokens < wanted:  # noqa: ASYNC110 - nothing tells when reading ahead is done
        await asyncio.sleep(0.005)
    (other, *_) = await all_of(engine.conversation(), long, HELLO, max_tokens=3)
    assert other.cached_tokens >= wanted


async def test_reading_ahead_again_reads_only_what_is_new(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a user speaks the same is read ahead again and again, a few words longer each time."""
    conversation, words, rows = engine.conversation(), "hello to you and hello " * 20, 0
    run = engine.model.decoder.run

    def noted(batch: list[Rows], adapter: Adapter | None) -> list[torch.Tensor]:
        nonlocal rows
        rows += sum(len(one.tokens) for one in batch)
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", noted)
    for said in (words, f"{words} to you", f"{words} to you and Paris"):
        asked = [SYSTEM, TextMessage("user", said)]
        conversation.prepare(asked)
        wanted = len(engine.model.template.encode(asked, answer=False))
        while conversation.cached_tokens != wanted:  # noqa: ASYNC110 - nothing tells when reading ahead is done
            await asyncio.sleep(0.005)
    assert rows < wanted + 40  # the template's closing, each time


async def test_what_one_reads_helps_another_that_is_reading_the_same(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second arrives when the first has read half of long instructions: it ends by copying."""
    long = TextMessage("system", "the capital of France is Paris and hello to you " * 40)
    rows: dict[int, int] = {}
    run, late = engine.model.decoder.run, asyncio.Event()
    loop = asyncio.get_running_loop()

    def noted(batch: list[Rows], adapter: Adapter | None) -> list[torch.Tensor]:
        for one in batch:
            rows[id(one.cache)] = rows.get(id(one.cache), 0) + len(one.tokens)
        loop.call_soon_threadsafe(late.set)
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", noted)
    first = asyncio.create_task(all_of(engine.conversation(), long, HELLO, max_tokens=2))
    await late.wait()
    second = engine.conversation()
    both = await asyncio.gather(first, all_of(second, long, HELLO, max_tokens=2))
    assert text_of(both[0]) == text_of(both[1])
    assert rows[id(second._cache)] < max(rows.values())


TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "the capital of France", "parameters": {"type": "object"}},
    }
]


@pytest.mark.parametrize("said", [[SYSTEM], []])
async def test_tools_are_read_once_for_all(engine: Engine, said: list[TextMessage]) -> None:
    template = "{% for t in tools %}{{ t.function.description }} {% endfor %}"
    template += "{% for m in messages %}{{ m.content }} {% endfor %}"
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        from model.chat import ChatTemplate

        patch.setattr(engine.model.template, "_template", ChatTemplate(template, engine.model.tokenizer)._template)
        tools = TOOLS * 4
        await all_of(engine.conversation(), *said, HELLO, tools=tools, max_tokens=2)
        (other, *_) = await all_of(
            engine.conversation(), *said, TextMessage("user", "Paris"), tools=tools, max_tokens=2
        )
    assert other.cached_tokens >= 8


async def test_a_pass_that_ran_out_of_memory_holds_nothing_while_the_others_are_tried(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, held, alive = engine.model.decoder.run, [], []

    def full(batch: list[Rows], adapter: Adapter | None) -> list[torch.Tensor]:
        large = torch.empty(1000)
        if len(batch) > 1:
            held.append(weakref.ref(large))
            raise torch.OutOfMemoryError("CUDA out of memory")
        alive.extend(ref() is not None for ref in held)
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", full)
    talks = (all_of(engine.conversation(), SYSTEM, TextMessage("user", f"hello {n}"), max_tokens=6) for n in range(3))
    assert all(progress[-1].finished for progress in await asyncio.gather(*talks))
    assert alive and not any(alive)


async def test_a_fork_of_a_conversation_in_whole_passes_on_the_device_knows_what_it_lacks(tiny_qwen2: Path) -> None:
    """Its newest keys are on the device; the fork reads those tokens itself."""
    striding = Engine(lambda: load_model(tiny_qwen2, device="cpu", precision="float32"), strides=True)
    try:
        for words, step in itertools.product(("hello to you", "the capital of France", "Paris is hello"), (2, 5, 9)):
            question, text = TextMessage("user", words), ""
            conversation = striding.conversation()
            async for progress in conversation.reply([SYSTEM, question], max_tokens=40):
                text += progress.committed
                if progress.step == step:
                    again = [SYSTEM, question, TextMessage("assistant", text), TextMessage("user", "to you")]
                    guess = asyncio.create_task(all_of(conversation.fork(), *again, max_tokens=12))
                    await asyncio.sleep(0)
            alone = await all_of(striding.conversation(), *again, max_tokens=12)
            assert text_of(await guess) == text_of(alone)
    finally:
        striding.close()

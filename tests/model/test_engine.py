"""The engine: streaming, cancelling between passes, and reading only what is new."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from model.adapter import Adapter, random_adapter
from model.cache import KeyValueCache
from model.chat import ChatTemplate, TextMessage
from model.conversation import PromptTooLong
from model.decode.pace import Pace
from model.decode.schedule import Effort, schedule_for
from model.engine import Engine, LoadedModel, load_model
from model.gguf_file import BadModelFile
from model.sampling import Sampling
from model.stride import Strider
from model.transformer import Decoder, Rows
from tests.conftest import save_tiny
from tests.model.talk import HELLO, SYSTEM, all_of, livelier, text_of


@pytest.fixture(scope="module")
def tiny_qwen2(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return livelier(tiny_qwen2, tmp_path_factory.mktemp("lively"))


@pytest.fixture(scope="module")
def engine(tiny_qwen2: Path) -> Iterator[Engine]:
    engine = Engine(lambda: load_model(tiny_qwen2, device="cpu", precision="float32"))
    yield engine
    engine.close()


def greedy(model: LoadedModel, messages: list[TextMessage], count: int) -> list[int]:
    """The slow, obvious way: the whole text again for every token."""
    ids = model.template.encode(messages)
    said: list[int] = []
    for _ in range(count):
        logits = model.decoder.forward(ids + said, model.decoder.new_cache(), logits="last")
        said.append(int(logits[-1].argmax()))
        if said[-1] in model.stop_tokens:
            break
    return said


async def test_a_reply_is_what_greedy_decoding_gives_one_token_at_a_time(engine: Engine) -> None:
    progresses = await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=40)
    expected = greedy(engine.model, [SYSTEM, HELLO], 40)
    stream = engine.model.tokenizer.stream()
    assert text_of(progresses) == "".join(stream.push(t) for t in expected if t not in engine.model.stop_tokens)
    assert [progress.step for progress in progresses] == list(range(1, len(progresses) + 1))
    assert progresses[-1].tokens == len(expected)
    assert progresses[-1].finished == ("stop" if expected[-1] in engine.model.stop_tokens else "length")


async def test_the_next_turn_reads_only_what_is_new(engine: Engine) -> None:
    conversation = engine.conversation()
    first = await all_of(conversation, SYSTEM, HELLO, max_tokens=5)
    read = len(engine.model.template.encode([SYSTEM, HELLO]))
    again = [SYSTEM, HELLO, TextMessage("assistant", text_of(first)), TextMessage("user", "to you")]
    second = await all_of(conversation, *again, max_tokens=5)
    assert first[0].cached_tokens <= len(engine.model.template.encode([SYSTEM], answer=False))
    assert second[0].cached_tokens >= read - 1
    fresh = await all_of(engine.conversation(), *again, max_tokens=5)
    assert text_of(second) == text_of(fresh)


async def test_reading_ahead_leaves_nothing_to_read(engine: Engine) -> None:
    conversation = engine.conversation()
    conversation.prepare([SYSTEM, HELLO])
    wanted = len(engine.model.template.encode([SYSTEM, HELLO], answer=False))
    while conversation.cached_tokens < wanted:  # noqa: ASYNC110 - nothing tells when reading ahead is done
        await asyncio.sleep(0.005)
    progresses = await all_of(conversation, SYSTEM, HELLO, max_tokens=2)
    assert progresses[0].prompt_tokens - progresses[0].cached_tokens <= 12  # the assistant's opening


async def test_leaving_a_reply_stops_it_and_the_cache_stays_right(engine: Engine) -> None:
    conversation = engine.conversation()
    async for progress in conversation.reply([SYSTEM, HELLO], max_tokens=200):
        if progress.step == 3:
            break
    again = await all_of(conversation, SYSTEM, HELLO, max_tokens=20)
    assert text_of(again) == text_of(await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=20))


@pytest.mark.parametrize("slots", [1, 3])
async def test_with_any_adapter_the_text_is_the_base_models(tiny_qwen2: Path, engine: Engine, slots: int) -> None:
    """Drafts of an adapter that knows nothing are mostly wrong; what is committed never is."""
    base = load_model(tiny_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, slots, seed=slots)
    drafting = Engine(lambda: replace(base, adapter=adapter))
    drafting.pace = Pace({1: 1.0, 100: 1.0}, slots, [0.9] * slots)  # rows cost nothing, so it always drafts
    drafted = 0
    try:
        for words in ("hello to you", "the capital of France", "Paris is hello", "to to to"):
            question = TextMessage("user", words)
            ours = await all_of(drafting.conversation(), SYSTEM, question, max_tokens=60)
            alone = await all_of(engine.conversation(), SYSTEM, question, max_tokens=60)
            assert text_of(ours) == text_of(alone)
            assert ours[-1].tokens == alone[-1].tokens
            drafted += sum(bool(progress.draft) for progress in ours)
            assert all(len(p.confidence) <= slots for p in ours)
        assert drafted > 20
    finally:
        drafting.close()


async def test_a_fork_goes_its_own_way_and_leaves_no_trace(engine: Engine) -> None:
    conversation = engine.conversation()
    first = await all_of(conversation, SYSTEM, HELLO, max_tokens=5)
    before = conversation.cached_tokens
    (guess, *_) = await all_of(conversation.fork(), SYSTEM, HELLO, TextMessage("user", "Paris"), max_tokens=9)
    assert guess.cached_tokens > 20
    assert conversation.cached_tokens == before
    again = [SYSTEM, HELLO, TextMessage("assistant", text_of(first)), TextMessage("user", "to you")]
    alone = await all_of(engine.conversation(), *again, max_tokens=9)
    assert text_of(await all_of(conversation, *again, max_tokens=9)) == text_of(alone)


async def test_two_conversations_are_answered_in_turn(engine: Engine) -> None:
    order: list[str] = []

    async def run(name: str) -> str:
        conversation, text = engine.conversation(), ""
        async for progress in conversation.reply([SYSTEM, TextMessage("user", name)], max_tokens=30):
            order.append(name)
            text += progress.committed
        return text

    both = await asyncio.gather(run("hello"), run("Paris"))
    assert 0 < order.index("Paris") < len(order) // 2
    alone = [
        text_of(await all_of(engine.conversation(), SYSTEM, TextMessage("user", n), max_tokens=30))
        for n in ("hello", "Paris")
    ]
    assert both == alone


async def test_sampled_replies_repeat_with_their_seed(engine: Engine) -> None:
    sampling = Sampling(temperature=1.2, seed=11)
    texts = [
        text_of(await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=25, sampling=sampling)) for _ in "ab"
    ]
    assert texts[0] == texts[1]
    assert texts[0] != text_of(await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=25))


async def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(engine: Engine) -> None:
    long = TextMessage("user", "hello to you " * 400)
    with pytest.raises(PromptTooLong, match=rf"needs \d+ tokens.*holds {engine.context}"):
        await all_of(engine.conversation(), SYSTEM, long)
    assert await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=2)


async def test_an_outgrown_conversation_keeps_its_instructions_and_its_newest_message(engine: Engine) -> None:
    turns = [TextMessage("user" if n % 2 == 0 else "assistant", f"hello to you {n} " * 8) for n in range(9)]
    (progress, *_) = await all_of(engine.conversation(), SYSTEM, *turns, max_tokens=2)
    assert engine.context // 4 < progress.prompt_tokens <= engine.context * 7 // 8


async def test_what_was_left_out_stays_out_so_that_the_cache_is_kept(engine: Engine) -> None:
    turns = [TextMessage("user" if n % 2 == 0 else "assistant", f"hello to you {n} " * 8) for n in range(9)]
    conversation = engine.conversation()
    first = await all_of(conversation, SYSTEM, *turns, max_tokens=2)
    said = TextMessage("assistant", text_of(first))
    (again, *_) = await all_of(conversation, SYSTEM, *turns, said, TextMessage("user", "Paris"), max_tokens=2)
    assert again.cached_tokens > again.prompt_tokens * 0.8
    (anew, *_) = await all_of(conversation, SYSTEM, HELLO, max_tokens=2)
    assert anew.prompt_tokens == len(engine.model.template.encode([SYSTEM, HELLO]))


async def test_an_endless_conversation_is_shortened_before_it_is_encoded(engine: Engine) -> None:
    turns = [TextMessage("user", "x" * 100_000) for _ in range(30)]
    (progress, *_) = await all_of(engine.conversation(), SYSTEM, *turns, HELLO, max_tokens=2)
    assert progress.prompt_tokens == len(engine.model.template.encode([SYSTEM, HELLO]))


async def test_a_failure_in_one_request_leaves_the_others(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run, unlucky = Decoder.run, engine.conversation()

    def flaky(self: Decoder, batch: Sequence[Rows], adapter: Adapter | None = None) -> list[torch.Tensor]:
        if any(rows.cache is unlucky._cache and rows.positions[0] > 60 for rows in batch):
            raise RuntimeError("out of memory")
        return run(self, batch, adapter)

    monkeypatch.setattr(Decoder, "run", flaky)
    talks = [engine.conversation(), unlucky, engine.conversation()]
    outcomes = await asyncio.gather(
        *(all_of(talk, SYSTEM, HELLO, max_tokens=40) for talk in talks), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [list, RuntimeError, list]
    assert text_of(outcomes[0]) == text_of(outcomes[2])  # type: ignore[arg-type]


def test_what_cannot_be_loaded_is_said_by_the_constructor(tmp_path: Path, tiny_qwen2: Path) -> None:
    with pytest.raises(BadModelFile, match="there is no model file"):
        Engine(lambda: load_model(tmp_path / "none.gguf"))
    with pytest.raises(ValueError, match="choose auto, cpu, cuda"):
        load_model(tiny_qwen2, device="toaster")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            load_model(tiny_qwen2, device="cuda")


async def test_a_template_that_refuses_is_the_requests_error(engine: Engine, tiny_qwen2: Path) -> None:
    picky = load_model(tiny_qwen2, device="cpu", precision="float32")
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", picky.tokenizer)
    refusing = Engine(lambda: LoadedModel(picky.decoder, picky.tokenizer, template, picky.stop_tokens))
    with pytest.raises(ValueError, match="roles must alternate"):
        await all_of(refusing.conversation(), HELLO)
    refusing.close()


def test_int8_weights_are_kept_for_the_next_start_and_a_damaged_file_is_made_again(
    tmp_path: Path, tiny_qwen2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from model import prepared
    from model.weights import open_checkpoint

    monkeypatch.setattr(prepared, "_WORTH_KEEPING", 0)
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))

    def logits() -> torch.Tensor:
        decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "int8")
        return decoder.forward([1, 2, 3], decoder.new_cache(), logits="all")

    first = logits()
    (kept,) = (tmp_path / "prepared").glob("*.safetensors")
    made = kept.stat().st_mtime_ns
    assert torch.equal(logits(), first)
    assert kept.stat().st_mtime_ns == made
    kept.write_bytes(b"nonsense")
    assert torch.equal(logits(), first)
    assert kept.stat().st_size > 1000


async def test_running_out_of_memory_between_passes_is_said_in_a_sentence(
    tiny_qwen2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork, a lent beginning and a stride's landing copy keys inside the request itself."""
    engine = Engine(lambda: load_model(tiny_qwen2, device="cpu", precision="float32"), strides=True)

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    try:
        conversation = engine.conversation()
        await all_of(conversation, SYSTEM, HELLO, max_tokens=5)
        for part in ("begin_with", "store"):
            with monkeypatch.context() as patch:
                patch.setattr(KeyValueCache, part, full)
                with pytest.raises(RuntimeError, match="the GPU ran out of memory for this request; the others go on"):
                    await all_of(conversation.fork() if part == "begin_with" else conversation, SYSTEM, HELLO)
        after = await all_of(conversation, SYSTEM, HELLO, max_tokens=12)
        assert text_of(after) == text_of(await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=12))
    finally:
        engine.close()


def test_a_gpu_without_room_for_the_passes_is_said_at_the_start(
    tiny_qwen2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Strider) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Strider, "warm_up", full)
    with pytest.raises(ValueError, match="holds the model, but not what its passes need beside it: choose a smaller"):
        Engine(lambda: load_model(tiny_qwen2, device="cpu", precision="float32"), strides=True)


@pytest.mark.parametrize("effort", ["instant", "high"])
async def test_an_own_conversion_runs_without_its_verifier(tiny_qwen2: Path, effort: Effort) -> None:
    base = load_model(tiny_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, 3, seed=3)
    engine = Engine(lambda: replace(base, adapter=adapter), decoding="blocks", schedule=schedule_for(effort))
    try:
        progress = await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=24)
        assert progress[-1].finished
        assert progress[-1].tokens / progress[-1].step >= 4 / engine.schedule.max_steps
        # The first token of every block is the base model's own.
        alone = await all_of(Engine(lambda: base).conversation(), SYSTEM, HELLO, max_tokens=1)
        assert text_of(progress).startswith(text_of(alone))
    finally:
        engine.close()


def test_blocks_are_refused_where_nothing_was_taught(tiny_qwen2: Path) -> None:
    with pytest.raises(ValueError, match="was not taught to denoise: run `rejoinder convert`"):
        Engine(lambda: load_model(tiny_qwen2, device="cpu", precision="float32"), decoding="blocks")


async def test_a_deadline_gives_a_block_fewer_passes(tiny_qwen2: Path) -> None:
    base = load_model(tiny_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, 15, seed=3)
    engine = Engine(lambda: replace(base, adapter=adapter), decoding="blocks", schedule=schedule_for("high"))
    try:
        passes = []
        for deadline in (None, time.monotonic()):
            conversation, steps = engine.conversation(), 0
            async for progress in conversation.reply([SYSTEM, HELLO], max_tokens=64, deadline=deadline):
                steps += 1
                if progress.tokens >= 16:
                    break
            passes.append(steps)
        assert passes[1] < passes[0]
    finally:
        engine.close()


@pytest.mark.parametrize("slots", [0, 1, 3])
async def test_whole_passes_on_the_device_say_the_same(tiny_qwen2: Path, engine: Engine, slots: int) -> None:
    """What a CUDA graph captures, run here without one; another conversation in between lands it and takes turns."""
    base = load_model(tiny_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, slots, seed=slots) if slots else None
    striding = Engine(lambda: replace(base, adapter=adapter), strides=True)
    try:
        for words in ("hello to you", "the capital of France"):
            question = TextMessage("user", words)
            conversation = striding.conversation()
            ours = await all_of(conversation, SYSTEM, question, max_tokens=60)
            alone = await all_of(engine.conversation(), SYSTEM, question, max_tokens=60)
            assert text_of(ours) == text_of(alone)
            assert [p.finished for p in ours] == [None] * (len(ours) - 1) + [alone[-1].finished]
            again = [SYSTEM, question, TextMessage("assistant", text_of(ours)), TextMessage("user", "Paris")]
            both = await asyncio.gather(
                all_of(conversation, *again, max_tokens=40), all_of(striding.conversation(), *again, max_tokens=30)
            )
            wanted = await all_of(engine.conversation(), *again, max_tokens=40)
            assert text_of(both[0]) == text_of(wanted)
            assert text_of(wanted).startswith(text_of(both[1]))
            assert both[0][0].cached_tokens > 20
            plain = await all_of(striding.conversation(drafting=False), SYSTEM, question, max_tokens=60)
            assert text_of(plain) == text_of(alone)
            assert [p.tokens for p in plain] == list(range(1, len(plain) + 1))
    finally:
        striding.close()


async def test_an_answer_ends_where_the_models_positions_do(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    """Drafts, blocks and whole passes near the last position that the model has."""
    folder = save_tiny(tmp_path, tiny_tokenizer, "qwen2", max_position_embeddings=48)
    base = load_model(folder, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, 3, seed=3)
    texts = set()
    for options in (
        {},
        {"strides": True},
        {"decoding": "blocks"},
        {"decoding": "blocks", "schedule": schedule_for("high")},
    ):
        engine = Engine(lambda: replace(base, adapter=adapter), **options)  # type: ignore[arg-type]
        try:
            progress = await all_of(engine.conversation(), HELLO)
            assert progress[-1].finished
            if progress[-1].finished == "length":
                assert progress[-1].prompt_tokens + progress[-1].tokens == 48
            if "decoding" not in options:
                texts.add(text_of(progress))
        finally:
            engine.close()
    assert len(texts) == 1


async def test_a_closed_engine_says_so(tiny_qwen2: Path) -> None:
    engine = Engine(lambda: load_model(tiny_qwen2, device="cpu", precision="float32"))
    conversation = engine.conversation()

    async def talk() -> None:
        async for progress in conversation.reply([SYSTEM, HELLO], max_tokens=400, sampling=Sampling(2.0, seed=1)):
            if progress.step == 2:
                await asyncio.to_thread(engine.close)

    with pytest.raises(RuntimeError, match="the engine was closed"):
        await talk()
    with pytest.raises(RuntimeError, match="the engine was closed"):
        await all_of(conversation, SYSTEM, HELLO)


async def test_no_tokens_cannot_be_asked_for(engine: Engine) -> None:
    with pytest.raises(ValueError, match="max_tokens is 0 and must be 1 or more"):
        await all_of(engine.conversation(), SYSTEM, HELLO, max_tokens=0)

"""The engine: loading, closing, cancelling between forward passes, and requests that fail without harm to others."""

from __future__ import annotations

import asyncio
import re
import weakref
from pathlib import Path

import pytest
import torch

from chat.types import Ask, Message
from model.checkpoint.chat_template import ChatTemplate
from model.checkpoint.gguf import BadModelFile
from model.decode.sampling import Sampling
from model.engine.conversation import Conversation
from model.engine.cuda_graph import CUDAGraphRunner
from model.engine.engine import DeviceFailed, Engine
from model.engine.loader import LoadedModel, load_model
from model.nn.adapter import Adapter
from model.nn.forward_batch import ForwardInput
from model.nn.kv_cache import KeyValueCache
from model.nn.kv_slab import SlotCache
from tests.model.dialogues import HELLO, SYSTEM, at_the_same_time, collect_progress, committed_text
from tests.real_time import HANG_S


async def test_two_conversations_are_answered_at_the_same_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_sizes: list[int] = []
    run = engine.model.decoder.run

    def spy(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        batch_sizes.append(len(batch))
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", spy)

    async def respond(name: str) -> str:
        return committed_text(
            await collect_progress(Conversation(engine), SYSTEM, Message("user", name), max_tokens=30)
        )

    both = await at_the_same_time(engine, respond("hello"), respond("Paris"))
    assert batch_sizes.count(2) >= 25
    assert both == [await respond("hello"), await respond("Paris")]


async def test_cancelling_takes_effect_after_the_current_forward_pass(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, count, cancelled_at = Conversation(engine), 0, 0
    run = engine.model.decoder.run

    def cancel_in_the_fifth(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        nonlocal count, cancelled_at
        count += 1
        if count == 5:
            conversation.cancel()
            cancelled_at = count
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", cancel_in_the_fifth)
    progress = await collect_progress(conversation, SYSTEM, HELLO, max_tokens=400)
    assert cancelled_at == 5 and count == 5 and progress[-1].finished is None


async def test_a_failure_in_one_request_leaves_the_others(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run, failing = engine.model.decoder.run, Conversation(engine)

    def flaky(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        if any(rows.cache is failing._cache and rows.positions[0] > 60 for rows in batch):
            raise RuntimeError("out of memory")
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", flaky)
    conversations = [Conversation(engine), failing, Conversation(engine)]
    outcomes = await asyncio.gather(
        *(collect_progress(conversation, SYSTEM, HELLO, max_tokens=40) for conversation in conversations),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [list, RuntimeError, list]
    assert committed_text(outcomes[0]) == committed_text(outcomes[2])  # type: ignore[arg-type]


async def test_a_request_that_runs_out_of_memory_fails_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = engine.model.decoder.run

    def limited(batch: list[ForwardInput], adapter: object) -> list[torch.Tensor]:
        if any(len(rows.cache.tokens) > 60 for rows in batch):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(batch, None)

    monkeypatch.setattr(engine.model.decoder, "run", limited)
    short = asyncio.create_task(collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=9))
    with pytest.raises(RuntimeError, match="ran out of memory for this request; other requests continue"):
        long = Message("user", "hello to you " * 30)
        await collect_progress(Conversation(engine), SYSTEM, long, max_tokens=9)
    assert (await short)[-1].finished


async def test_a_forward_pass_that_ran_out_of_memory_releases_its_tensors_before_the_retries(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = engine.model.decoder.run
    tensors: list[weakref.ref[torch.Tensor]] = []
    still_alive: list[bool] = []

    def fail_for_several(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        large = torch.empty(1000)
        if len(batch) > 1:
            tensors.append(weakref.ref(large))
            raise torch.OutOfMemoryError("CUDA out of memory")
        still_alive.extend(ref() is not None for ref in tensors)
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", fail_for_several)
    responses = (
        collect_progress(Conversation(engine), SYSTEM, Message("user", f"hello {n}"), max_tokens=6) for n in range(3)
    )
    assert all(progress[-1].finished for progress in await at_the_same_time(engine, *responses))
    assert still_alive and not any(still_alive)


async def test_running_out_of_memory_between_forward_passes_fails_only_that_request(
    varied_qwen2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork and a shared prefix copy keys within the request itself, and a conversation takes a slot in it."""
    engine = Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"), cuda_graphs=True)

    def out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    try:
        conversation = Conversation(engine)
        await collect_progress(conversation, SYSTEM, HELLO, max_tokens=5)
        for method in ("copy_from", "_move_in"):
            failing = conversation.fork() if method == "copy_from" else Conversation(engine)
            with monkeypatch.context() as patch:
                patch.setattr(KeyValueCache if method == "copy_from" else SlotCache, method, out_of_memory)
                expected = "the GPU ran out of memory for this request; other requests continue"
                with pytest.raises(RuntimeError, match=expected):
                    await collect_progress(failing, SYSTEM, HELLO)
        after = await collect_progress(conversation, SYSTEM, HELLO, max_tokens=12)
        fresh = await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=12)
        assert committed_text(after) == committed_text(fresh)
    finally:
        engine.close()


@pytest.mark.parametrize("where", ["in the forward pass", "when its results are read"])
async def test_a_gpu_that_fails_ends_every_request_and_the_engine(
    varied_qwen2: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """After an error inside a kernel every later CUDA call fails, in whichever request it was."""
    engine = Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"))
    run, broken = engine.model.decoder.run, False

    def illegal_access(*_: object) -> None:
        nonlocal broken
        broken = True
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")

    def fail_later(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        if any(len(rows.cache.tokens) > 50 for rows in batch):
            if where == "in the forward pass":
                illegal_access()
            monkeypatch.setattr("model.decode.verify.greedy_tokens", illegal_access)
        return run(batch, adapter)

    monkeypatch.setattr("model.engine.engine.device_failed", lambda device: broken)
    monkeypatch.setattr(engine.model.decoder, "run", fail_later)
    responses = (collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=60) for _ in range(3))
    outcomes = await asyncio.gather(*responses, return_exceptions=True)
    expected = (
        r"the GPU failed \(CUDA error: an illegal memory access was encountered\), and after that no other call to it "
        "can succeed in this process: start the process again"
    )
    for outcome in (*outcomes, engine.failure.result(timeout=HANG_S)):
        assert isinstance(outcome, DeviceFailed) and re.fullmatch(expected, str(outcome))
    with pytest.raises(DeviceFailed, match="the GPU failed"):
        await collect_progress(Conversation(engine), SYSTEM, HELLO)
    engine.close()


def test_a_gpu_without_memory_for_forward_passes_is_reported_at_the_start(
    varied_qwen2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(self: CUDAGraphRunner) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(CUDAGraphRunner, "warm_up", out_of_memory)
    expected = "holds the model, but not what its forward passes need in addition: choose a smaller"
    with pytest.raises(ValueError, match=expected):
        Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"), cuda_graphs=True)


def test_the_constructor_raises_what_loading_raises(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="there is no model file"):
        Engine(lambda: load_model(tmp_path / "none.gguf"))


def test_block_decoding_is_refused_without_an_adapter(varied_qwen2: Path) -> None:
    with pytest.raises(ValueError, match="was not trained to denoise: run `rejoinder convert`"):
        Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"), decoding="blocks")


async def test_a_template_that_refuses_a_conversation_fails_the_request(varied_qwen2: Path) -> None:
    loaded = load_model(varied_qwen2, device="cpu", precision="float32")
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", loaded.tokenizer)
    engine = Engine(lambda: LoadedModel(loaded.decoder, loaded.tokenizer, template, loaded.stop_tokens))
    with pytest.raises(ValueError, match="roles must alternate"):
        await collect_progress(Conversation(engine), HELLO)
    engine.close()


async def test_a_closed_engine_fails_active_and_new_requests(varied_qwen2: Path) -> None:
    engine = Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"))
    conversation = Conversation(engine)

    async def close_after_two_steps() -> None:
        async for progress in conversation.reply(Ask([SYSTEM, HELLO], max_tokens=400, sampling=Sampling(2.0, seed=1))):
            if progress.step == 2:
                await asyncio.to_thread(engine.close)

    with pytest.raises(RuntimeError, match="the engine was closed"):
        await close_after_two_steps()
    with pytest.raises(RuntimeError, match="the engine was closed"):
        await collect_progress(conversation, SYSTEM, HELLO)

"""Captured forward passes denoise blocks as any others do, and are really used. A GPU is not needed: on a CPU they run
without being captured, or as recorded graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from chat.types import Message
from model.checkpoint.checkpoint import open_checkpoint
from model.decode.effort import schedule_for_effort
from model.engine.conversation import Conversation
from model.engine.cuda_blocks import CapturedBlocks
from model.engine.cuda_step import CapturedFunction, all_captured
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.nn.adapter import Adapter, random_adapter
from model.nn.decoder import Decoder
from model.nn.forward_batch import ForwardInput
from model.nn.kv_slab import KeyValueSlab
from tests.model.dialogues import SYSTEM, at_the_same_time, collect_progress, committed_text
from tests.model.engine.recorded_graphs import use_recorded_graphs
from tests.model.tiny_families import save_tiny_family


@pytest.fixture(params=["sdar", "fast-dllm-v2", "i-dlm", "an adapter"])
def model(request: pytest.FixtureRequest, tmp_path: Path, tiny_tokenizer: Tokenizer, varied_qwen2: Path) -> LoadedModel:
    if request.param == "an adapter":
        loaded = load_model(varied_qwen2, device="cpu", precision="float32")
        return replace(loaded, adapter=random_adapter(loaded.decoder.config, 4, 3, seed=3))
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, request.param)
    return load_model(folder, device="cpu", precision="float32", family=request.param)


async def test_the_text_is_that_of_passes_that_are_not_captured(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, with another conversation, and in a second turn."""
    captured, others = list[bool](), list[int]()
    run_captured, run = CapturedBlocks.run, model.decoder.run

    def spy_captured(self: CapturedBlocks, inputs: ForwardInput) -> Tensor | None:
        logits = run_captured(self, inputs)
        captured.append(logits is not None)
        return logits

    def spy_run(batch: list[ForwardInput], adapter: Adapter | None) -> list[Tensor]:
        others.append(sum(not rows.is_prefill for rows in batch))
        return run(batch, adapter)

    texts: list[list[str]] = []
    for graphs in (False, True):
        engine = Engine(
            lambda: model, decoding="blocks", denoising_schedule=schedule_for_effort("low"), cuda_graphs=graphs
        )
        try:
            with monkeypatch.context() as patch:
                if graphs:
                    patch.setattr(CapturedBlocks, "run", spy_captured)
                    patch.setattr(model.decoder, "run", spy_run)
                conversation, turns = Conversation(engine), [SYSTEM, Message("user", "hello to you")]
                first = committed_text(await collect_progress(conversation, *turns, max_tokens=40))
                turns += [Message("assistant", first), Message("user", "Paris")]
                both = await at_the_same_time(
                    engine,
                    collect_progress(conversation, *turns, max_tokens=30),
                    collect_progress(Conversation(engine), *turns, max_tokens=30),
                )
                texts.append([first, *map(committed_text, both)])
        finally:
            engine.close()
    assert texts[0] == texts[1]
    assert sum(captured) > 10 and sum(captured) >= 0.8 * len(captured)


def test_a_function_is_captured_once_and_replayed_on_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs, calls = use_recorded_graphs(monkeypatch), 0
    count, doubled = torch.zeros(1), torch.zeros(1)

    def work() -> None:
        nonlocal calls
        calls += 1
        count.add_(1)
        doubled.copy_(count * 2)

    function = CapturedFunction(work, torch.device("cpu"))
    assert [function.capture(), function.capture("another")] == ["pool", "pool"]
    assert graphs.num_captured == 1 and calls == 3  # twice before the capture: libraries prepare themselves
    function()
    function()
    assert calls == 3 and graphs.num_replayed == 2
    assert (float(count), float(doubled)) == (5, 10)


def test_a_function_that_cannot_be_captured_is_called(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graphs, count = use_recorded_graphs(monkeypatch), torch.zeros(1)
    function = CapturedFunction(lambda: count.add_(1) and None, torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "graph", lambda *arguments, **options: 1 / 0)
    assert not all_captured(function.capture)
    assert "steps cannot be captured here, so each starts hundreds of kernels: division by zero" in caplog.text
    count.zero_()
    function()
    assert float(count) == 1 and not graphs.num_replayed


@pytest.mark.parametrize("family", ["sdar", "fast-dllm-v2", "i-dlm"])
async def test_replayed_passes_give_the_same_text(
    tmp_path: Path, tiny_tokenizer: Tokenizer, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, family)
    model, texts = load_model(folder, device="cpu", precision="float32", family=family), list[str]()
    for graphs in (False, True):
        recorded = use_recorded_graphs(monkeypatch) if graphs else None
        engine = Engine(lambda: model, decoding="blocks", cuda_graphs=graphs)
        try:
            both = await at_the_same_time(
                engine,
                *(
                    collect_progress(Conversation(engine), SYSTEM, Message("user", words), max_tokens=24)
                    for words in ("hello to you", "Paris")
                ),
            )
            texts.append("|".join(map(committed_text, both)))
        finally:
            engine.close()
    assert recorded is not None and recorded.num_captured == len(engine._blocks._passes if engine._blocks else ())
    assert recorded.num_replayed > 10
    assert texts[0] == texts[1]


@pytest.mark.parametrize("family", ["sdar", "fast-dllm-v2"])
def test_a_pass_never_waits_for_the_host(tmp_path: Path, tiny_tokenizer: Tokenizer, family: str) -> None:
    """A CUDA graph cannot capture a pass that does. The meta device has no values that it could wait for."""
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, family)
    decoder = Decoder(open_checkpoint(folder, family), torch.device("meta"), "bfloat16")
    assert decoder.config.diffusion is not None
    slab = KeyValueSlab(decoder.config, decoder.dtype, decoder.device, 1, 128)
    blocks = CapturedBlocks(decoder, None, decoder.config.diffusion, slab)
    assert len(blocks._passes) == 2
    for block_pass in blocks._passes.values():
        block_pass._run()

"""Captured forward passes denoise blocks as any others do, and are really used. A GPU is not needed: on a CPU they run
without being captured, and a fake graph shows how they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from model.checkpoint.chat_template import TextMessage
from model.checkpoint.checkpoint import open_checkpoint
from model.decode.effort import schedule_for_effort
from model.engine.captured import CapturedFunction
from model.engine.captured_blocks import CapturedBlocks
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.nn.adapter import Adapter, random_adapter
from model.nn.decoder import Decoder
from model.nn.forward_batch import ForwardInput
from model.nn.kv_slab import KeyValueSlab
from tests.model.dialogues import SYSTEM, at_the_same_time, collect_progress, committed_text
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
                conversation, turns = Conversation(engine), [SYSTEM, TextMessage("user", "hello to you")]
                first = committed_text(await collect_progress(conversation, *turns, max_tokens=40))
                turns += [TextMessage("assistant", first), TextMessage("user", "Paris")]
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


class FakeGraph:
    """Replays what was called while it was captured."""

    capturing: FakeGraph | None = None

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def replay(self) -> None:
        for call in self.calls:
            call()

    def pool(self) -> str:
        return "pool"


def test_a_function_is_captured_once_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    pools, called = list[Any](), list[str]()

    @contextmanager
    def graph(fake: FakeGraph, pool: Any) -> Iterator[None]:
        pools.append(pool)
        FakeGraph.capturing = fake
        yield
        FakeGraph.capturing = None

    @contextmanager
    def on_stream(stream: object) -> Iterator[None]:
        yield

    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "stream", on_stream)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)

    def work() -> None:
        if FakeGraph.capturing is not None:
            FakeGraph.capturing.calls.append(lambda: called.append("replayed"))
        else:
            called.append("called")

    function = CapturedFunction(work, torch.device("cuda", 0))
    assert [function.capture(), function.capture("another")] == ["pool", "pool"]
    assert pools == [None] and called == ["called"] * 2  # libraries prepare themselves before the capture
    function()
    assert called[2:] == ["replayed"]


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

"""A block drafter in kernels drafts what `BatchDrafter` does, and the check at the start tells right kernels from wrong
ones. In Triton's interpreter."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lab.benchmarks.gpu_acceptance.random_models import TINY, RandomCheckpoint
from model.decode.draft import NO_DRAFT
from model.engine.cuda_graph import CUDAGraphRunner, slot_capacity
from model.nn.batch_drafter import BatchDrafter
from model.nn.decoder import Decoder, Precision, row_features
from model.nn.forward_batch import feature_layers, num_features
from model.nn.gpu.drafter_operations import TorchDrafterOperations
from model.nn.gpu.fused_drafter import FusedDrafter
from model.nn.gpu.selection import select_drafter
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.kv_slab import KeyValueSlab
from tests.model.random_draft_head import random_block_drafter, random_draft_head

pytest.importorskip("triton", "3.9", "Triton before 3.9 does not work with numpy 2.4: pip install -U triton")

from lab.benchmarks.gpu_mistakes.mistakes import DRAFTER_MISTAKES
from lab.benchmarks.gpu_mistakes.running import (
    CPU,
    LayersInPyTorch,
    OneDrafterKernel,
    mistaken,
    selected_drafter,
    wide_tiles,
)
from model.nn.gpu.triton_operations import TritonOperations

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

CONFIG = replace(TINY, layers=3)
DRAFTS, UNIT = 3, 1_000_000


def _model(precision: Precision) -> tuple[Decoder, BatchDrafter]:
    decoder = Decoder(RandomCheckpoint(CONFIG, CPU), CPU, precision)
    head = random_draft_head(num_features(CONFIG), CONFIG.hidden, CONFIG.vocab_size, seed=1, size=256)
    weights = random_block_drafter(replace(head, vocabulary=torch.arange(600)), DRAFTS + 1)
    rows = torch.randn(600, 256, generator=torch.Generator().manual_seed(2)) / 8
    return decoder, BatchDrafter(weights, rows, decoder.embedding, CPU, decoder.dtype)


@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.proof), "bfloat16"])
def test_right_kernels_are_accepted(precision: Precision) -> None:
    decoder, drafter = _model(precision)
    operations = TritonOperations(CPU)
    with wide_tiles():
        assert select_drafter(decoder, drafter, operations, 9, DRAFTS) is not None
    assert not operations.counters.any()


@pytest.mark.parametrize("name", sorted({name for name, *_ in DRAFTER_MISTAKES.values()}))
def test_each_right_kernel_is_accepted_alone(name: str) -> None:
    """As it is rejected with a mistake."""
    assert selected_drafter(*_model("bfloat16"), OneDrafterKernel(name), 9, DRAFTS) is not None


@pytest.mark.parametrize("mistake", DRAFTER_MISTAKES)
def test_wrong_kernels_are_rejected(mistake: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    decoder, drafter = _model("bfloat16")
    with mistaken(mistake, tmp_path), caplog.at_level(logging.WARNING, "rejoinder.model"):
        own = OneDrafterKernel(DRAFTER_MISTAKES[mistake][0])
        assert selected_drafter(decoder, drafter, own, 9, DRAFTS) is None
    assert f"their results differ from PyTorch's ({DRAFTER_MISTAKES[mistake][0]}" in caplog.messages[0]


@pytest.mark.parametrize("count", [1, DRAFTS])
def test_drafts_are_those_of_the_drafter_in_plain_pytorch(count: int) -> None:
    decoder, drafter = _model("float32")
    assert isinstance(decoder.embedding.__self__, torch.Tensor)  # type: ignore[attr-defined]
    fused = FusedDrafter(
        drafter, decoder.norm, CONFIG.norm_eps, decoder.embedding.__self__, TorchOperations(),  # type: ignore[attr-defined]
        TorchDrafterOperations(),
    )  # fmt: skip
    draw, n = torch.Generator().manual_seed(3), 20
    *tapped, states = torch.randn(len(feature_layers(CONFIG)) + 1, 40, CONFIG.hidden, generator=draw)
    rows, slots = torch.randperm(40, generator=draw)[:n], torch.randperm(n + 1, generator=draw)[:n]
    tokens = torch.randint(0, CONFIG.vocab_size, (n + 1,), generator=draw)
    kept, result = torch.full((n + 1, DRAFTS), 7), torch.full((n, 5 + 2 * DRAFTS), 7)
    fused.draft(tapped, states, rows, tokens, slots, kept, result, count, UNIT)
    features = row_features([part[rows] for part in tapped], decoder.normalize(states[rows], decoder.norm))
    drafts, chances = drafter.draft_batch(features, tokens[slots], count)
    assert len(drafts.unique()) > 5
    padded = torch.nn.functional.pad(drafts, (0, DRAFTS - count))
    assert torch.equal(kept[slots], padded) and torch.equal(result[:, 5 : 5 + DRAFTS], padded)
    assert (result[:, :5] == 7).all()
    likely = torch.nn.functional.pad(chances, (0, DRAFTS - count))
    torch.testing.assert_close(result[:, 5 + DRAFTS :] / UNIT, likely, atol=1e-4, rtol=1e-3)


def test_a_head_that_denoises_nothing_has_no_kernels() -> None:
    decoder, drafter = _model("float32")
    drafter.block = 0
    assert select_drafter(decoder, drafter, TritonOperations(CPU), 9, DRAFTS) is None
    assert select_drafter(decoder, _model("float32")[1], TorchOperations(), 9, DRAFTS) is None


def test_steps_draft_what_they_draft_in_plain_pytorch() -> None:
    """Whole steps of two conversations: the drafts that they leave for the next ones, and the text."""
    decoder, drafter = _model("float32")
    left = []
    for operations in (LayersInPyTorch(), None):
        slab = KeyValueSlab(CONFIG, decoder.dtype, CPU, 2, slot_capacity(300, DRAFTS, 2))
        with wide_tiles():
            runner = CUDAGraphRunner(decoder, None, DRAFTS, slab, 2, operations, head=drafter)
            assert (runner._drafter is None) == (operations is None)
            members = []
            for last in (40, 50):
                cache = slab.new_cache()
                decoder.forward(list(range(last, last + 9)), cache, logits="none")
                members.append(runner.attach(cache, last, NO_DRAFT))
            for _ in range(2):
                for member, result in runner.step(members):
                    member.cache.commit([7, *result.committed[:-1]])
        left.append([*(part.clone() for part in runner.state.parts)])
    assert all(torch.equal(one, other) for one, other in zip(*left, strict=True))
    assert runner.state.drafts.any()

"""The kernel that chooses tokens does what plain PyTorch does, in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.constraint import RowRule
from model.decode.device_steps import MAX_TOP, TokenSettings
from model.decode.sampling import Sampler, Sampling
from model.decode.token_set import packed
from model.engine.cuda_graph import CUDAGraphRunner, slot_capacity
from model.engine.token_choice import ANY, TokenChoice, read_scores
from model.nn.decoder import Decoder
from model.nn.kv_slab import KeyValueSlab

pytest.importorskip("triton", "3.9", "Triton before 3.9 does not work with numpy 2.4: pip install -U triton")

from model.nn.gpu.triton_operations import TritonOperations

pytestmark = pytest.mark.slow

VOCABULARY, SLOTS, CLEAN, NOISE = 2100, 6, 2, 2


def random_rule(draw: np.random.Generator) -> RowRule:
    allowed = draw.random(VOCABULARY) < draw.choice([0.01, 0.5])
    allowed[draw.integers(VOCABULARY)] = True
    lowered = draw.random(VOCABULARY) < 0.5 if draw.random() < 0.3 else None
    both = RowRule(packed(allowed), None if lowered is None else packed(lowered), 1.5)
    return [RowRule(), RowRule(int(draw.integers(VOCABULARY))), both][draw.integers(3)]


@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_chooses_what_plain_pytorch_does(seed: int) -> None:
    draw, device = np.random.default_rng(seed), torch.device("cpu")
    state = SimpleNamespace(history=torch.zeros(SLOTS + 1, 50, dtype=torch.long))
    choice = TokenChoice(state, VOCABULARY, SLOTS * CLEAN, TritonOperations(device).launch)  # type: ignore[arg-type]
    tops = [None, 0, 3, 20, 5, 1]
    for slot, num_top in enumerate(tops):
        temperature, top_k, top_p = (draw.choice(one) for one in ([0, 0.6, 1.3], [0, 1, 40], [1.0, 0.9, 0.3]))
        sampling = Sampling(float(temperature), int(top_k), float(top_p))
        choice.set(slot, TokenSettings(Sampler(sampling, torch.Generator().manual_seed(slot)), num_top))
    choice.fill([[random_rule(draw) for _ in range(CLEAN)] for _ in range(SLOTS)], CLEAN)
    rows = SLOTS * CLEAN
    logits = torch.from_numpy(draw.normal(0, 3, (rows + NOISE, VOCABULARY)).astype(np.float32))
    logits[:, 7] = logits[:, 9]  # a tie
    slots = torch.tensor([slot for slot in range(SLOTS) for _ in range(CLEAN)] + [0] * NOISE)
    positions = torch.from_numpy(draw.integers(0, 49, rows + NOISE))
    scores = [torch.zeros(rows, 1 + 2 * MAX_TOP, dtype=torch.int32) for _ in range(2)]
    found = choice.choose(logits.clone(), slots, positions, scores[0])
    expected = choice.in_pytorch(logits.clone(), slots, positions, scores[1])
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.confidence, expected.confidence, atol=1e-5, rtol=1e-4)
    for slot, num_top in enumerate(tops):
        if num_top is not None:
            own = slice(slot * CLEAN, (slot + 1) * CLEAN)
            one, other = (read_scores(part[own], found.tokens[own].tolist(), num_top) for part in scores)
            for kernel, pytorch in zip(one, other, strict=True):
                assert kernel.value == pytest.approx(pytorch.value, abs=1e-4)
                assert sorted(token for token, _ in kernel.top) == sorted(token for token, _ in pytorch.top)
                assert [v for _, v in kernel.top] == pytest.approx([v for _, v in pytorch.top], abs=1e-4)


@pytest.mark.parametrize("broken", ["", "raises", "chooses others"])
def test_a_kernel_that_is_wrong_here_is_not_used(
    tiny_qwen2: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32")
    slab = KeyValueSlab(decoder.config, decoder.dtype, decoder.device, 3, slot_capacity(100, 0, 0))
    runner = CUDAGraphRunner(decoder, None, 0, slab)
    assert runner.choice is not None
    launch = TritonOperations(decoder.device).launch

    def wrong(kernel: object, grid: tuple[int, ...], *arguments: object, **constants: object) -> None:
        if broken == "raises":
            raise RuntimeError("no kernel image is available")
        launch(kernel, grid, *arguments, **constants)
        if broken:
            arguments[12].sub_(1)  # type: ignore[attr-defined]

    runner.choice.launch = wrong
    runner._check_choice()
    assert (runner.choice.launch is None) == bool(broken)
    assert ("the kernel that chooses tokens cannot be used here" in caplog.text) == bool(broken)
    assert not runner.choice.temperature.any() and (runner.choice.rules == ANY).all()

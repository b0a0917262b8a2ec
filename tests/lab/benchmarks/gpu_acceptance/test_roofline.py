"""The number of kernels and the bytes of a step are what the roofline says, for the shapes of real models: no change
can quietly double them."""

from __future__ import annotations

import pytest
import torch

from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B, TINY_BLOCKS
from lab.benchmarks.gpu_acceptance.roofline import (
    DRAFTER_BYTES,
    OTHER_KERNELS,
    Roofline,
    drafter_kernels,
    step_roofline,
)
from model.checkpoint.checkpoint import DecoderConfig

pytest.importorskip("triton", reason='Triton is not installed: pip install -e ".[test]"')

from lab.benchmarks.gpu_acceptance.recording import (
    meta_adapter,
    meta_decoder,
    meta_drafter,
    recorded_pass,
    recorded_step,
)

PAST = 640


@pytest.mark.parametrize("rank", [0, 32])
@pytest.mark.parametrize("config", [QWEN_05B, QWEN_15B, TINY_BLOCKS], ids=["0.5b", "1.5b", "tiny qwen3"])
def test_a_step_starts_five_kernels_a_layer_and_reads_every_weight_once(config: DecoderConfig, rank: int) -> None:
    launches = recorded_pass(config, torch.bfloat16, 4 if rank else 0, 7, rank, PAST)
    expected = step_roofline(config, 2, rank, PAST)
    assert len(launches) == expected.nodes == 5 * config.layers + 2
    read = {"project": 0, "gate_up": 0, "attend": 0, "predict_tile": 0}
    for launch in launches:
        if launch.name in ("project", "gate_up"):
            read[launch.name] += sum(part.nbytes for part in launch.arguments[1:6] if part is not None)
        elif launch.name == "attend":  # the weights of the heads' norms, keys and values
            read[launch.name] += sum(part.nbytes for part in launch.arguments[5:8] if part is not None)
        elif launch.name == "predict_tile":
            read[launch.name] += sum(part.nbytes for part in launch.arguments[1:3])
    assert sum(read.values()) == expected.num_bytes, read
    activations = sum(part.nbytes for launch in launches for part in launch.tensors) - expected.num_bytes
    assert config.hidden < 100 or activations < 0.35 * expected.num_bytes


@pytest.mark.parametrize(("batch", "drafts"), [(1, 4), (64, 2)])
def test_the_kernels_of_a_whole_step_are_counted(batch: int, drafts: int) -> None:
    """Those outside of layers and head: embedding, acceptance, look-up and copies."""
    decoder, adapter = meta_decoder(QWEN_05B, torch.bfloat16), meta_adapter(QWEN_05B, torch.bfloat16, 32, 4)
    assert recorded_step(decoder, drafts, batch, adapter=adapter).nodes <= 5 * 24 + 2 + OTHER_KERNELS


@pytest.mark.parametrize(("config", "most"), [(QWEN_05B, 124), (QWEN_15B, 144)], ids=["0.5b", "1.5b"])
@pytest.mark.parametrize("batch", [1, 64])
def test_a_greedy_step_has_few_nodes(config: DecoderConfig, most: int, batch: int) -> None:
    """All of a step, from the state of the one before to the result for the host: without drafts, and with those of a
    block drafter, which adds eleven kernels, and four for each draft but the first."""
    decoder = meta_decoder(config, torch.bfloat16)
    assert recorded_step(decoder, 0, batch).nodes <= most
    assert meta_drafter(decoder).nbytes == pytest.approx(DRAFTER_BYTES, rel=0.05)
    for drafts in (1, 4):
        step = recorded_step(decoder, drafts, batch, head=meta_drafter(decoder))
        assert step.nodes <= most + drafter_kernels(drafts)


@pytest.mark.parametrize("batch", [1, 64])
def test_a_step_that_chooses_tokens_has_at_most_25_nodes_more(batch: int) -> None:
    """With sampling, masks of grammars and log probabilities. A kernel chooses, so it is hardly any."""
    decoder = meta_decoder(QWEN_05B, torch.bfloat16)
    for drafts, head in ((0, None), (4, meta_drafter(decoder))):
        plain, choosing = (recorded_step(decoder, drafts, batch, head=head, choosing=one) for one in (False, True))
        assert choosing.nodes <= plain.nodes + 2


def test_the_least_time_is_that_of_the_bytes_and_of_the_nodes() -> None:
    assert Roofline(4_000_000_000, 500).milliseconds(4000, 2.0) == pytest.approx(1.0 + 1.0)


def test_by_estimate_the_goals_are_within_reach_of_an_h200() -> None:
    """0.66 to 0.78 ms a step are 2,500 tokens/s with the 0.5B, and 1.63 to 1.93 ms are 1,009 with the 1.5B."""
    small, large = (
        step_roofline(config, 2, 32, 600, OTHER_KERNELS).milliseconds(4300) for config in (QWEN_05B, QWEN_15B)
    )
    assert small < 0.78 and large < 1.63

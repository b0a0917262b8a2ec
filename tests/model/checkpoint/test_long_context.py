"""Contexts beyond the trained length: which models have one, and YaRN's frequencies against published definitions."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from model.checkpoint.checkpoint import DecoderConfig, open_checkpoint
from model.checkpoint.long_context import RopeScaling, scaling_for
from model.checkpoint.rope import rope_from_config
from model.nn.decoder import Decoder

QWEN_7B = DecoderConfig("qwen2", "qwen2", 152_064, 3584, 28, 28, 4, 128, 18_944, 32_768, 1e-6)
QWEN_HALF_B = DecoderConfig("qwen2", "qwen2", 151_936, 896, 24, 14, 2, 64, 4864, 32_768, 1e-6)
OTHER = DecoderConfig("llama", "llama", 49_152, 576, 30, 9, 3, 64, 1536, 8192, 1e-5)


def test_a_context_beyond_the_trained_length_switches_yarn_on_where_a_card_describes_it() -> None:
    assert scaling_for(QWEN_7B, 32_768) is None
    scaling = scaling_for(QWEN_7B, 32_769)
    assert scaling == RopeScaling(4.0, 32_768, promised=True) and scaling.context_length == 131_072
    smaller = scaling_for(QWEN_HALF_B, 100_000)
    assert smaller is not None and not smaller.promised
    assert scaling_for(OTHER, 100_000) is None


@pytest.mark.parametrize(("theta", "head_dim"), [(1e6, 128), (1e6, 64), (5e5, 96)])
def test_the_frequencies_are_those_of_transformers(theta: float, head_dim: int) -> None:
    from transformers import Qwen2Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    settings = RopeScaling(4.0, 32_768, promised=True).settings()
    config = Qwen2Config(
        hidden_size=head_dim * 4,
        num_attention_heads=4,
        max_position_embeddings=131_072,
        rope_parameters={**settings, "rope_theta": theta},
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    ours = rope_from_config(settings, theta, head_dim, "tiny")
    torch.testing.assert_close(ours.frequencies, frequencies, rtol=1e-6, atol=0)
    assert ours.scale == pytest.approx(factor)


def test_the_frequencies_are_those_of_the_paper() -> None:
    """Section 3 of arXiv 2309.00071 in float64: a pair of dimensions keeps its frequency if it turns more than 32 times
    within the trained context, is interpolated if it turns less than once, and is mixed in between."""
    theta, size, factor, trained = 1e6, 128, 4.0, 32_768
    pairs = np.arange(size // 2, dtype=np.float64)
    plain = theta ** (-2 * pairs / size)

    def pair_that_turns(times: float) -> float:
        return size * math.log(trained / (times * 2 * math.pi)) / (2 * math.log(theta))

    first, last = math.floor(pair_that_turns(32)), math.ceil(pair_that_turns(1))
    interpolated = np.clip((pairs - first) / (last - first), 0, 1)
    expected = plain * (1 - interpolated) + plain / factor * interpolated
    ours = rope_from_config(RopeScaling(factor, trained, promised=True).settings(), theta, size, "tiny")
    np.testing.assert_allclose(ours.frequencies.numpy(), expected, rtol=1e-6)
    assert ours.scale == pytest.approx(0.1 * math.log(factor) + 1)
    assert (plain[:first] == expected[:first]).all() and np.allclose(expected[last:], plain[last:] / 4)


def test_a_decoder_spans_the_longer_context(tiny_qwen2: Path) -> None:
    checkpoint = open_checkpoint(tiny_qwen2)
    trained = checkpoint.config.context_length
    scaling = RopeScaling(4.0, trained, promised=True)
    decoder = Decoder(checkpoint, torch.device("cpu"), "float32", scaling=scaling)
    assert decoder.config.context_length == 4 * trained == len(decoder.rotary.cos)
    plain = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32")
    assert not torch.equal(decoder.rotary.cos[:trained], plain.rotary.cos)
    tokens = [3, 99, 7] * (trained // 2)
    logits = decoder.forward(tokens, decoder.new_cache(), logits="last")
    assert len(tokens) > trained and torch.isfinite(logits).all()

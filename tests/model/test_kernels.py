"""The kernels of int8 passes compute what torch computes, each row the same to the last bit whatever is beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from model import kernels
from model.adapter import random_adapter
from model.attention import attend
from model.decode.draft import Draft
from model.decode.verify import Pass
from model.linear import int8_runs_here
from model.transformer import Decoder, Rows, rotate, text_rows
from model.weights import open_checkpoint
from tests.conftest import save_tiny

F32 = np.float32
EPS = F32(1e-6)
NOTHING = np.empty((0, 0), F32)


def drawn(seed: int, *shape: int) -> kernels.Floats:
    return np.random.default_rng(seed).standard_normal(shape, F32)


def close(ours: kernels.Floats, theirs: torch.Tensor | kernels.Floats, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(torch.from_numpy(ours), torch.as_tensor(theirs), atol=tolerance, rtol=tolerance)


def test_levels_are_rounded_around_128_and_reach_255() -> None:
    x = np.array([[0, 1, -1, 0.5, -0.25], [0, 0, 0, 0, 0], [3e-3, -1e4, 0, 1, 40]], F32)
    levels, largest = np.empty((3, 5), np.uint8), np.empty(3, F32)
    kernels.quantize(x, levels, largest)
    assert levels.tolist() == [[128, 255, 1, 192, 96], [128] * 5, [128, 1, 128, 128, 129]]
    assert largest.tolist() == [1, pytest.approx(1e-12), 1e4]


@given(rows=st.integers(1, 5), size=st.integers(1, 70), seed=st.integers(0, 99))
@settings(deadline=None)
def test_a_residual_is_added_and_normalized_as_torch_does(rows: int, size: int, seed: int) -> None:
    x, product, normal = drawn(seed, rows, size), drawn(seed + 1, rows, size), drawn(seed, rows, size)
    scale, bias, weight = drawn(seed + 2, rows), drawn(seed + 3, size), drawn(seed + 4, size)
    levels, largest = np.empty((rows, size), np.uint8), np.empty(rows, F32)
    expected = torch.from_numpy(x + product * scale[:, None] + bias)
    kernels.add_and_normalize(x, product, scale, bias, weight, EPS, normal, levels, largest)
    close(x, expected)
    close(normal, torch.nn.functional.rms_norm(expected, (size,), torch.from_numpy(weight), 1e-6), 1e-4)
    close(largest, np.abs(normal).max(1))
    again = (levels.astype(F32) - 128) / 127 * largest[:, None]
    assert (np.abs(again - normal) <= largest[:, None] / 250).all()


@given(rows=st.integers(1, 4), size=st.integers(1, 70), reach=st.sampled_from([1.0, 30.0, 1e4]), seed=st.integers(0, 9))
@settings(deadline=None)
def test_the_gate_is_silu_times_up(rows: int, size: int, reach: float, seed: int) -> None:
    product, bias = drawn(seed, rows, 2 * size) * F32(reach), drawn(seed + 1, 2 * size)
    scale, inner = np.abs(drawn(seed + 2, rows)), drawn(seed, rows, size)
    levels, largest = np.empty((rows, size), np.uint8), np.empty(rows, F32)
    kernels.swiglu(product, scale, bias, inner, levels, largest)
    half, up = torch.from_numpy(product * scale[:, None] + bias).chunk(2, -1)
    close(inner, torch.nn.functional.silu(half) * up)


@pytest.mark.parametrize("normed", [False, True])
def test_heads_are_normalized_turned_and_written_to_their_places(normed: bool) -> None:
    rows, heads, kv_heads, size, past = 3, 4, 2, 8, 5
    product, bias = drawn(0, rows, 64), drawn(1, 64)
    scale, grown, norm = np.abs(drawn(2, rows)), np.abs(drawn(3, rows)), drawn(4, heads + kv_heads, size)
    angles = torch.from_numpy(drawn(5, rows, size // 2)).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()
    sin[:, : size // 2].neg_()
    query, keys, values = drawn(6, rows, heads, size), drawn(7, kv_heads, 9, size), drawn(8, kv_heads, 9, size)
    before = keys.copy()
    given_norm, turn = norm if normed else NOTHING, (cos.numpy(), sin.numpy())
    kernels.split_heads(product, scale, bias, given_norm, EPS, *turn, grown, past, query, keys, values)
    split = torch.from_numpy(product * scale[:, None] + bias).view(rows, 8, size)
    both = split[:, :6]
    if normed:
        both = torch.nn.functional.rms_norm(both, (size,), None, 1e-6) * torch.from_numpy(norm)
    turned = rotate(both, cos[:, None], sin[:, None])
    close(query, turned[:, :4] * torch.from_numpy(grown)[:, None, None])
    close(keys[:, past : past + rows], turned[:, 4:].transpose(0, 1))
    close(values[:, past : past + rows], split[:, 6:].transpose(0, 1))
    assert (keys[:, :past] == before[:, :past]).all() and (keys[:, past + rows :] == before[:, past + rows :]).all()


@given(rows=st.integers(1, 9), past=st.integers(0, 40), seed=st.integers(0, 99))
@settings(deadline=None)
def test_attention_is_torchs_and_a_row_does_not_depend_on_what_is_beside_it(rows: int, past: int, seed: int) -> None:
    query, keys = drawn(seed, rows, 6, 8), drawn(seed + 1, 2, past + rows, 8)
    values = drawn(seed + 2, 2, past + rows, 8)
    sees = np.random.default_rng(seed).random((rows, rows)) < 0.5
    sees |= np.eye(rows, dtype=bool)
    out = drawn(seed, rows, 48)
    kernels.attend_rows(query, keys, values, past, sees, out)
    mask = torch.from_numpy(np.concatenate((np.ones((rows, past), bool), sees), 1))
    close(out, attend(*(torch.from_numpy(part) for part in (query, keys, values)), mask))
    alone = drawn(seed, 1, 48)
    for row in range(rows):  # as if what it sees were all there is, already read
        places = mask[row].numpy()
        count = int(places.sum()) - 1
        own = (np.ascontiguousarray(part[:, places]) for part in (keys, values))
        kernels.attend_rows(query[row : row + 1], *own, count, np.ones((1, 1), bool), alone)
        assert (alone[0] == out[row]).all()


@given(
    rows=st.integers(2, 9),
    size=st.sampled_from([8, 64, 72]),
    past=st.integers(0, 90),
    offset=st.integers(0, 15),
    seed=st.integers(0, 9),
)
@settings(deadline=None, max_examples=40)
def test_every_kernel_gives_a_row_alone_the_same_bits(rows: int, size: int, past: int, offset: int, seed: int) -> None:
    """A row among others, and alone in arrays that lie elsewhere."""
    width, heads, kv_heads, rank = 4 * size, 4, 2, 6
    wide, scale = drawn(seed, rows, 2 * width), np.abs(drawn(seed + 1, rows)) + F32(0.1)
    bias, weight, state = drawn(seed + 2, 2 * width), drawn(seed + 3, width), drawn(seed + 4, rows, width)
    norm, turn = drawn(seed + 5, heads + kv_heads, size), (drawn(seed + 6, rows, size), drawn(seed + 7, rows, size))
    keys, values = drawn(seed + 8, kv_heads, past + rows, size), drawn(seed + 9, kv_heads, past + rows, size)
    draw = np.random.default_rng(seed)
    a, b = (draw.integers(-127, 128, shape, np.int8) for shape in ((2 * rank, width), (rank, 2 * width)))
    sees = np.tril(np.ones((rows, rows), bool))

    def moved(array: kernels.Floats) -> kernels.Floats:
        room = np.empty(array.size + offset, array.dtype)[offset:].reshape(array.shape)
        room[:] = array
        return room

    def run(at: slice, before: int) -> list[kernels.Floats]:
        x, product, by = moved(state[at]), moved(wide[at]), moved(scale[at])
        n = len(x)
        normal, levels, largest = np.empty((n, width), F32), np.empty((n, width), np.uint8), np.empty(n, F32)
        kernels.add_and_normalize(
            x, product[:, :width].copy(), by, bias[:width].copy(), weight, EPS, normal, levels, largest
        )
        inner, inner_levels, most = np.empty((n, width), F32), np.empty((n, width), np.uint8), np.empty(n, F32)
        kernels.swiglu(product, by, bias, inner, inner_levels, most)
        k, v = moved(keys[:, : before + n]), moved(values[:, : before + n])
        query, out = np.empty((n, heads, size), F32), np.empty((n, width), F32)
        args = (np.ones(n, F32), before, query, k, v)
        kernels.split_heads(product, by, bias, norm, EPS, moved(turn[0][at]), moved(turn[1][at]), *args)
        kernels.attend_rows(query, k, v, before, sees[:n, :n].copy(), out)
        ends, places = np.array([width, 2 * width]), np.arange(n)
        kernels.add_low_rank(normal, places, by, a, np.ones(2 * rank, F32), b, bias, ends, product)
        again, top = np.empty((n, width), np.uint8), np.empty(n, F32)
        kernels.quantize(out, again, top)
        keys[:, before : before + n], values[:, before : before + n] = k[:, before:], v[:, before:]
        return [x, normal, levels, largest, inner, inner_levels, most, query, out, product, again, top]

    together = run(slice(0, rows), past)
    for row in range(rows):
        alone = run(slice(row, row + 1), past + row)
        assert all((one[0] == all_[row]).all() for one, all_ in zip(alone, together, strict=True))


def test_kernels_are_compiled_anew_where_they_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that a power cut left empty, and no place to keep them in."""

    def double(x: kernels.Floats) -> None:
        for n in range(len(x)):
            x[n] *= 2

    x = np.ones(3, F32)
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    kernels._compiled("F1")(double)(x)
    (index,) = (tmp_path / "kernels").rglob("*.nbi")
    index.write_bytes(b"")
    kernels._compiled("F1")(double)(x)
    assert "compiled kernels cannot be kept" in caplog.text
    caplog.clear()
    without_a_file: dict[str, Callable[..., None]] = {}
    exec("def double(x):\n    for n in range(len(x)):\n        x[n] *= 2", without_a_file)
    kernels._compiled("F1")(without_a_file["double"])(x)
    assert x.tolist() == [8, 8, 8]
    assert "compiled kernels cannot be kept" in caplog.text


FAMILIES: list[tuple[str, dict[str, object]]] = [
    ("qwen2", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    ("qwen3", {"head_dim": 24, "attention_bias": True}),
    ("ministral3", {}),
]


@pytest.mark.skipif(not int8_runs_here(), reason="no int8 products on this processor")
@pytest.mark.parametrize(("family", "said"), FAMILIES)
@pytest.mark.parametrize("kind", ["text", "reading", "drafts", "two conversations"])
def test_int8_layers_compute_what_the_decoder_computes_layer_by_layer(
    tmp_path: Path, tiny_tokenizer: Tokenizer, family: str, said: dict[str, object], kind: str
) -> None:
    """Both with the same int8 weights; roundings that fall on another side make the difference."""
    decoder = Decoder(open_checkpoint(save_tiny(tmp_path, tiny_tokenizer, family, **said)), torch.device("cpu"), "int8")
    adapter = random_adapter(decoder.config, 4, 3, seed=1)

    def batch() -> list[Rows]:
        caches = [decoder.new_cache() for _ in range(2)]
        for cache, text in zip(caches, ([3, 99, 7, 250, 41], [5, 61]), strict=True):
            decoder.forward(text, cache, logits="none")
        drafts = Pass(12, Draft((200, 9)), (5, 61, 7), 2).rows(caches[0])
        return {
            "text": [text_rows(caches[0], [12, 13, 14], 3)],
            "reading": [replace(text_rows(caches[0], list(range(20)), 1), exact=False)],
            "drafts": [drafts],
            "two conversations": [drafts, Pass(7, Draft((1,)), (), 1).rows(caches[1])],
        }[kind]

    ours = decoder.run(batch(), adapter)
    decoder._int8_layers = None
    theirs = decoder.run(batch(), adapter)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.isfinite(one).all()
        assert not len(one) or torch.nn.functional.cosine_similarity(one, other, dim=-1).min() > 0.999

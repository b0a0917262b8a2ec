"""The row kernels compute what torch computes, and a row is bit-identical whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from model.nn.cpu import row_codegen as codegen
from model.nn.cpu.block_formats import Floats
from model.nn.cpu.jobs import RowJob, call_table
from model.nn.cpu.linear import QuantizedActivations
from model.nn.cpu.team import shared_team
from model.nn.rotary import rotate
from tests.model.nn.cpu.random_blocks import dequantized, set_sums
from tests.model.nn.cpu.test_row_attention import attend_rows

F32 = np.float32
EPS = np.array([1e-6], F32)
NO_NORM = np.empty((0, 0), F32)


def random(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, F32)


def assert_close(ours: Floats, theirs: torch.Tensor | Floats, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(torch.from_numpy(ours), torch.as_tensor(theirs), atol=tolerance, rtol=tolerance)


def run(kernel: int, fields: Sequence[str], items: int, size: int, **values: Any) -> None:
    """Run a kernel for all its items."""
    call, team = call_table(fields, 1, **values), shared_team()
    job = RowJob(kernel, items, size, team.threads)
    team.run(job.segments.ctypes.data, call.ctypes.data, job.chunks)


def quantize(x: Floats, to: QuantizedActivations) -> None:
    rows, size = x.shape
    run(codegen.quantize_kernel(shared_team(), size), codegen.QUANTIZE, rows, size, x=x, **to.fields)


def add_and_normalize(
    x: Floats, product: Floats, bias: Floats, weight: Floats, normal: Floats, to: QuantizedActivations
) -> None:
    rows, size = x.shape
    run(
        codegen.normalize_kernel(shared_team(), size), codegen.NORMALIZE, rows, size,
        x=x, product=product, bias=bias, weight=weight, normal=normal, eps=EPS, **to.fields,
    )  # fmt: skip


def swiglu(product: Floats, bias: Floats, inner: Floats, to: QuantizedActivations) -> None:
    rows, size = inner.shape
    values = {"product": product, "bias": bias, "inner": inner, **to.fields}
    items = rows * codegen.swiglu_parts(size)
    run(codegen.swiglu_kernel(shared_team(), size), codegen.SWIGLU, items, 2 * size, **values)


def split_heads(
    product: Floats,
    bias: Floats,
    norm: Floats,
    cos: Floats,
    sin: Floats,
    query_scale: Floats,
    past: int,
    query: Floats,
    keys: Floats,
    values: Floats,
) -> None:
    rows, heads, size = query.shape
    kv_heads, capacity, _ = keys.shape
    run(
        codegen.split_kernel(shared_team(), size, norm.size > 0), codegen.SPLIT, rows, product.shape[1],
        product=product, bias=bias, norm=norm, cos=cos, sin=sin, query_scale=query_scale, query=query, keys=keys,
        values=values, heads=heads, kv_heads=kv_heads, capacity=capacity, past=past, eps=EPS,
    )  # fmt: skip


def assert_quantized(x: QuantizedActivations, values: Floats) -> None:
    """Every value is within half a level of its block, and the sums are those of the levels."""
    size = values.shape[1]
    half_level = np.repeat(x.scale.T, 32, axis=1)[:, :size] / 2
    assert (np.abs(dequantized(x)[:, :size] - values) <= half_level * 1.01 + 1e-9).all()
    expected = QuantizedActivations(*values.shape)
    expected.levels[:], expected.scale[:] = x.levels, x.scale
    set_sums(expected)
    assert (x.sums == expected.sums).all() and (x.minimum == expected.minimum).all()


def test_each_block_of_32_is_quantized_with_its_own_scale() -> None:
    x, approx_zero = np.zeros((2, 70), F32), pytest.approx(0)
    x[0, :3], x[0, 32:34], x[1, 69] = (1, -1, 0.5), (1e4, -3e-3), -0.25
    quantized = QuantizedActivations(2, 70)
    quantize(x, quantized)
    assert quantized.levels[0, 0, :3].tolist() == [127, -127, 64]
    assert quantized.levels[1, 0, :2].tolist() == [127, 0]
    assert quantized.levels[2, 1, 5] == -127 and not quantized.levels[2, :, 6:].any()
    assert quantized.scale[:2, 0].tolist() == [pytest.approx(1 / 127), pytest.approx(1e4 / 127)]
    assert quantized.scale[2:, 0].tolist() == [approx_zero, approx_zero]
    assert_quantized(quantized, x)


@given(rows=st.integers(1, 5), size=st.integers(1, 70), seed=st.integers(0, 99))
@settings(deadline=None)
def test_add_and_normalize_equals_torch(rows: int, size: int, seed: int) -> None:
    x, product, normal = random(seed, rows, size), random(seed + 1, rows, size), random(seed, rows, size)
    bias, weight, quantized = random(seed + 3, size), random(seed + 4, size), QuantizedActivations(rows, size)
    expected = torch.from_numpy(x + product + bias)
    add_and_normalize(x, product, bias, weight, normal, quantized)
    assert_close(x, expected)
    assert_close(normal, torch.nn.functional.rms_norm(expected, (size,), torch.from_numpy(weight), 1e-6), 1e-4)
    assert_quantized(quantized, normal)


@given(
    rows=st.integers(1, 4),
    size=st.one_of(st.integers(1, 70), st.just(4200)),
    magnitude=st.sampled_from([1.0, 30.0, 1e4]),
    seed=st.integers(0, 9),
)
@settings(deadline=None)
def test_swiglu_is_silu_of_gate_times_up(rows: int, size: int, magnitude: float, seed: int) -> None:
    product, bias = random(seed, rows, 2 * size) * F32(magnitude), random(seed + 1, 2 * size)
    inner, quantized = random(seed, rows, size), QuantizedActivations(rows, size)
    swiglu(product, bias, inner, quantized)
    half, up = torch.from_numpy(product + bias).chunk(2, -1)
    assert_close(inner, torch.nn.functional.silu(half) * up)
    assert_quantized(quantized, inner)


@pytest.mark.parametrize("with_norm", [False, True])
def test_heads_are_normalized_rotated_and_written_to_the_cache(with_norm: bool) -> None:
    rows, heads, kv_heads, size, past = 3, 4, 2, 8, 5
    product, bias = random(0, rows, 64), random(1, 64)
    query_scale, norm = np.abs(random(3, rows)), random(4, heads + kv_heads, size)
    angles = torch.from_numpy(random(5, rows, size // 2)).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()
    sin[:, : size // 2].neg_()
    query, keys, values = random(6, rows, heads, size), random(7, kv_heads, 9, size), random(8, kv_heads, 9, size)
    before = keys.copy()
    weight, rotation = norm if with_norm else NO_NORM, (cos.numpy(), sin.numpy())
    split_heads(product, bias, weight, *rotation, query_scale, past, query, keys, values)
    split = torch.from_numpy(product + bias).view(rows, 8, size)
    query_key = split[:, :6]
    if with_norm:
        query_key = torch.nn.functional.rms_norm(query_key, (size,), None, 1e-6) * torch.from_numpy(norm)
    rotated = rotate(query_key, cos[:, None], sin[:, None])
    assert_close(query, rotated[:, :4] * torch.from_numpy(query_scale)[:, None, None])
    assert_close(keys[:, past : past + rows], rotated[:, 4:].transpose(0, 1))
    assert_close(values[:, past : past + rows], split[:, 6:].transpose(0, 1))
    assert (keys[:, :past] == before[:, :past]).all() and (keys[:, past + rows :] == before[:, past + rows :]).all()


@given(
    rows=st.integers(2, 9),
    size=st.sampled_from([8, 64, 72]),
    past=st.integers(0, 90),
    offset=st.integers(0, 15),
    seed=st.integers(0, 9),
)
@settings(deadline=None, max_examples=40)
def test_every_kernel_computes_bit_identical_rows_alone_and_in_a_batch(
    rows: int, size: int, past: int, offset: int, seed: int
) -> None:
    """A row in a batch, and alone in arrays with another memory alignment."""
    width, heads, kv_heads = 4 * size, 4, 2
    wide = random(seed, rows, 2 * width)
    bias, weight, state = random(seed + 2, 2 * width), random(seed + 3, width), random(seed + 4, rows, width)
    norm, rotation = (
        random(seed + 5, heads + kv_heads, size),
        (random(seed + 6, rows, size), random(seed + 7, rows, size)),
    )
    keys, values = random(seed + 8, kv_heads, past + rows, size), random(seed + 9, kv_heads, past + rows, size)
    new = np.tril(np.ones((rows, rows), bool))

    def realigned(array: Floats) -> Floats:
        copy = np.empty(array.size + offset, array.dtype)[offset:].reshape(array.shape)
        copy[:] = array
        return copy

    def run_all(rows: slice, before: int) -> list[NDArray[Any]]:
        x, product = realigned(state[rows]), realigned(wide[rows])
        n = len(x)
        normal, narrow = np.empty((n, width), F32), QuantizedActivations(n, width)
        add_and_normalize(x, product[:, :width].copy(), bias[:width].copy(), weight, normal, narrow)
        inner, middle = np.empty((n, width), F32), QuantizedActivations(n, width)
        swiglu(product, bias, inner, middle)
        k, v = realigned(keys[:, : before + n]), realigned(values[:, : before + n])
        query, out = np.empty((n, heads, size), F32), np.empty((n, width), F32)
        args = (np.ones(n, F32), before, query, k, v)
        split_heads(product, bias, norm, realigned(rotation[0][rows]), realigned(rotation[1][rows]), *args)
        attend_rows(query, k, v, before, new[:n, :n].copy(), out)
        attended = QuantizedActivations(n, width)
        quantize(out, attended)
        keys[:, before : before + n], values[:, before : before + n] = k[:, before:], v[:, before:]
        quantized = [part.swapaxes(0, 1) for one in (narrow, middle, attended) for part in one.arrays]
        return [x, normal, inner, query, out, product, *quantized]

    together = run_all(slice(0, rows), past)
    for row in range(rows):
        alone = run_all(slice(row, row + 1), past + row)
        assert all((own[0] == batched[row]).all() for own, batched in zip(alone, together, strict=True))

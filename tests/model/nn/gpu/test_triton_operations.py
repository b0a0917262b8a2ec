"""Every kernel computes what its twin in plain PyTorch does, in Triton's interpreter. tests/conftest.py turns it on."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from model.decode.verify import verification_mask
from model.nn.gpu.operations import Projection
from model.nn.gpu.tiling import POSITIONS, UnsupportedShape, padded_rows
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.rotary import RotaryEmbedding
from model.nn.step_pass import RowPlaces, StepShape

pytest.importorskip("triton", "3.9", "interpreters before it do not work with numpy 2.4")

from model.nn.gpu.triton_operations import TritonOperations

# The interpreter divides by zero in rows that are not stored.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CPU = torch.device("cpu")
TWIN = TorchOperations()
DTYPES = [torch.float32, torch.bfloat16]
EPS = 1e-6


@pytest.fixture(scope="module")
def kernels() -> TritonOperations:
    return TritonOperations(CPU)


@pytest.fixture
def draw() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _normal(draw: torch.Generator, dtype: torch.dtype, *shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(*shape, generator=draw) * scale).to(dtype)


def _assert_close(found: Tensor, expected: Tensor) -> None:
    """Equal but for the order of sums, and for bfloat16, which the interpreter truncates where a GPU rounds."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    error = (found.double() - expected.double()).norm() / expected.double().norm()
    assert error < (1e-5 if found.dtype == torch.float32 else 1.2e-2)
    largest = (found.double() - expected.double()).abs().max()
    assert largest < (1e-4 if found.dtype == torch.float32 else 3e-2) * expected.double().abs().max()


def _projection(
    draw: torch.Generator, dtype: torch.dtype, sizes: tuple[int, ...], depth: int, rank: int, bias: bool
) -> Projection:
    columns, scale = sum(sizes), depth**-0.5
    return Projection(
        _normal(draw, dtype, columns, depth, scale=scale),
        _normal(draw, dtype, columns) if bias else None,
        _normal(draw, dtype, rank * len(sizes), depth, scale=scale) if rank else None,
        _normal(draw, dtype, columns, rank) if rank else None,
        sizes,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "sizes", "depth", "rank", "bias", "norm", "residual"),
    [
        (9, (64, 32, 32), 72, 4, True, True, False),  # queries, keys and values, as in Qwen2
        (1, (96, 48, 48), 64, 0, False, True, False),  # one row, heads of 24, no adapter
        (33, (40,), 1100, 20, False, False, True),  # the depth in two parts, columns that fill no tile
        (17, (64, 32, 32), 1030, 4, True, True, True),  # everything at once
    ],
)
def test_a_projection(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, rows: int, sizes: tuple[int, ...],
    depth: int, rank: int, bias: bool, norm: bool, residual: bool,
) -> None:  # fmt: skip
    x, projection = _normal(draw, dtype, rows, depth), _projection(draw, dtype, sizes, depth, rank, bias)
    weight = _normal(draw, dtype, depth) if norm else None
    added = _normal(draw, dtype, rows, sum(sizes)) if residual else None
    found, expected = (
        do.project(x, projection, rows // 2, norm=weight, eps=EPS, residual=added) for do in (kernels, TWIN)
    )
    _assert_close(found, expected)
    assert not kernels._counters.any()  # ready for the next kernel
    if rank:
        clean = TWIN.project(x, projection, rows, norm=weight, eps=EPS, residual=added)
        _assert_close(found[: rows // 2], clean[: rows // 2])
        assert (found - clean)[rows // 2 :].abs().min(-1).values.max() > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns", "depth", "rank", "bias"), [(9, 112, 64, 4, False), (2, 40, 72, 0, True)])
def test_gate_and_up(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, rows: int, columns: int, depth: int,
    rank: int, bias: bool,
) -> None:  # fmt: skip
    x, norm = _normal(draw, dtype, rows, depth), _normal(draw, dtype, depth)
    projection = _projection(draw, dtype, (columns, columns), depth, rank, bias)
    _assert_close(*(do.gate_up(x, norm, projection, 3, EPS) for do in (kernels, TWIN)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("head_dim", "normed", "scaled"), [(16, False, False), (24, True, True)])
def test_heads_are_rotated_and_stored(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, head_dim: int, normed: bool, scaled: bool
) -> None:
    rows, heads, kv_heads, capacity = 5, 4, 2, 64
    fused = _normal(draw, dtype, rows, (heads + 2 * kv_heads) * head_dim)
    positions, cells = torch.tensor([40, 41, 42, 41, 42]), torch.tensor([40, 41, 42, 3, 4])
    places = RowPlaces(torch.tensor([1, 1, 1, 2, 2]), cells)
    tables = (_normal(draw, dtype, 50, 1, head_dim) for _ in range(2))
    rotary = RotaryEmbedding(*tables, _normal(draw, dtype, 50, 1, 1) if scaled else None)
    head_norm = _normal(draw, dtype, heads + kv_heads, head_dim) if normed else None
    before = _normal(draw, dtype, 2, 3, kv_heads, capacity, head_dim)
    caches = [before.clone(), before.clone()]
    queries = [
        do.rotate_and_store(fused, positions, places, rotary, head_norm, EPS, *cache)
        for do, cache in zip((kernels, TWIN), caches, strict=True)
    ]
    _assert_close(*queries)
    _assert_close(*caches)
    written = torch.zeros(3, capacity, dtype=torch.bool)
    written[places.slots, places.cells] = True
    kept = ~written[:, None, :, None].expand_as(before)
    assert torch.equal(caches[0][kept], before[kept]) and not torch.equal(caches[0][~kept], before[~kept])


BORDERS = [0, 1, POSITIONS - 10, POSITIONS - 9, POSITIONS - 1, POSITIONS, 2 * POSITIONS - 8, 2 * POSITIONS + 65]
"""Earlier tokens with which a step of 9 rows ends before, at and after the border of a part, or lies across it."""


@pytest.mark.parametrize(
    ("dtype", "past"), [*itertools.product([torch.float32], BORDERS), (torch.bfloat16, 250), (torch.bfloat16, 577)]
)
def test_attention_reads_its_length_on_the_device(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, past: int
) -> None:
    head_dim = 16 if past % 2 else 24
    keys, values = keys_values = _normal(draw, dtype, 2, 2, 1, 640, head_dim)
    shape = StepShape(keys_values[:, None], verification_mask(2, 0, 2), 3)
    query = _normal(draw, dtype, shape.num_rows, 2, head_dim)
    past_length, slots = torch.tensor([past]), torch.tensor([1])
    keys[0] = torch.nan  # nothing there may be used
    keys[1, :, past + shape.num_rows :] = torch.nan
    found = kernels.attend(query, keys, values, past_length, slots, shape)
    expected = TWIN.attend(query, keys.nan_to_num(), values, past_length, slots, shape)
    _assert_close(found, expected)
    assert not kernels._counters.any()


def test_a_row_gets_the_same_attention_whatever_follows_it(kernels: TritonOperations, draw: torch.Generator) -> None:
    """So a token that is verified as a draft is chosen as it would be alone, to the last bit."""
    past, rows = POSITIONS - 2, 5
    query = _normal(draw, torch.float32, rows, 2, 16)
    keys, values = keys_values = _normal(draw, torch.float32, 2, 1, 1, 2 * POSITIONS, 16)
    causal, slots = torch.ones(rows, rows, dtype=torch.bool).tril_(), torch.tensor([0])
    shapes = [StepShape(keys_values[:, None], causal[:n, :n], n) for n in (rows, 1)]
    together = kernels.attend(query, keys, values, torch.tensor([past]), slots, shapes[0])
    for row in range(rows):
        alone = kernels.attend(query[row : row + 1], keys, values, torch.tensor([past + row]), slots, shapes[1])
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_conversation_of_a_batch_attends_to_its_own_slot(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype
) -> None:
    """Two of them are nobody's, in the last slot. Clean rows of all come first."""
    keys, values = keys_values = _normal(draw, dtype, 2, 4, 2, 320, 16)
    shape = StepShape(keys_values[:, None], verification_mask(1, 1, 1), 3, 4)
    past_length, slots = torch.tensor([300, 17, 0, 0]), torch.tensor([2, 0, 3, 3])
    query = _normal(draw, dtype, shape.num_rows, 4, 16)
    found = kernels.attend(query, keys, values, past_length, slots, shape)
    _assert_close(found, TWIN.attend(query, keys, values, past_length, slots, shape))
    one = StepShape(keys_values[:, None], verification_mask(1, 1, 1), 3)
    for n in range(2):
        alone = kernels.attend(query[shape.order[n]], keys, values, past_length[n : n + 1], slots[n : n + 1], one)
        _assert_close(found[shape.order[n]], alone)
    assert not kernels._counters.any()


def test_more_rows_than_a_tile_has_are_computed_in_several(kernels: TritonOperations, draw: torch.Generator) -> None:
    x, norm = _normal(draw, torch.float32, 130, 32), torch.ones(32)
    projection = _projection(draw, torch.float32, (16,), 1030, 4, True)
    deep = _normal(draw, torch.float32, 130, 1030)
    _assert_close(*(do.project(deep, projection, 129, residual=None) for do in (kernels, TWIN)))
    gated = _projection(draw, torch.float32, (16, 16), 32, 4, False)
    _assert_close(*(do.gate_up(x, norm, gated, 129, EPS) for do in (kernels, TWIN)))
    weight = _normal(draw, torch.float32, 70, 32)
    found, expected = (do.predict(x, norm, weight, EPS, None) for do in (kernels, TWIN))
    assert torch.equal(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1], atol=1e-4, rtol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("excluded", [None, 129])
def test_the_most_likely_token_and_its_probability(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, excluded: int | None
) -> None:
    """The vocabulary ends within a tile. Row 1 is most sure of the token that may be excluded."""
    x, norm = _normal(draw, dtype, 3, 72), torch.ones(72, dtype=dtype)
    weight = _normal(draw, dtype, 130, 72, scale=0.2)
    weight[129] = x[1]
    weight[70] = weight[3]  # of equal tokens the first
    found, expected = (do.predict(x, norm, weight, EPS, excluded) for do in (kernels, TWIN))
    assert torch.equal(found[0], expected[0])
    assert (int(found[0][1]) == 129) == (excluded is None)
    torch.testing.assert_close(found[1], expected[1], atol=1e-4 if dtype == torch.float32 else 1e-2, rtol=1e-2)


def test_a_conversation_with_more_rows_than_a_tile_has_is_not_supported(
    kernels: TritonOperations, draw: torch.Generator
) -> None:
    assert [padded_rows(rows) for rows in (1, 16, 17, 33, 128, 129)] == [16, 16, 32, 64, 128, 128]
    keys, values = keys_values = _normal(draw, torch.float32, 2, 1, 1, 256, 16)
    shape = StepShape(keys_values[:, None], torch.ones(129, 129, dtype=torch.bool), 129)
    query, zero = _normal(draw, torch.float32, 129, 2, 16), torch.tensor([0])
    with pytest.raises(UnsupportedShape, match="up to 128 rows of a conversation, not 129"):
        kernels.attend(query, keys, values, zero, zero, shape)

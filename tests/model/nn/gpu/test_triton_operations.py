"""Every kernel computes what its twin in plain PyTorch does, in Triton's interpreter. tests/conftest.py turns it on."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from model.decode.verify import verification_mask
from model.nn.gpu.operations import Operations, Projection
from model.nn.gpu.tiling import KEYS, POSITIONS, UnsupportedShape, padded_rows
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.rotary import RotaryEmbedding
from model.nn.step_pass import StepShape

pytest.importorskip("triton", "3.9", "Triton before 3.9 does not work with numpy 2.4: pip install -U triton")

from model.nn.gpu.triton_operations import TritonOperations

# The interpreter divides by zero in rows that are not stored.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

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
    assert not kernels.counters.any()  # ready for the next kernel
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


def _attend(
    do: Operations, fused: Tensor, keys_values: Tensor, past: Tensor, slots: Tensor, shape: StepShape,
    head_norm: Tensor | None = None, *, scaled: bool = False,
) -> Tensor:  # fmt: skip
    """Attention of rows that are rotated to the positions that they are written to."""
    head_dim, draw = keys_values.shape[-1], torch.Generator().manual_seed(5)
    tables = [_normal(draw, fused.dtype, 700, 1, head_dim) for _ in range(2)]
    rotary = RotaryEmbedding(*tables, _normal(draw, fused.dtype, 700, 1, 1) if scaled else None)
    positions = shape.places(past, slots).cells
    return do.attend(fused, positions, rotary, head_norm, EPS, *keys_values, past, slots, shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("head_dim", "normed", "scaled"), [(16, False, False), (24, True, True)])
def test_keys_and_values_are_written_to_the_slots(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, head_dim: int, normed: bool, scaled: bool
) -> None:
    """Rotated, and nothing else is written. Two conversations, and more queries than a tile has."""
    heads, kv_heads = 8, 2
    before = _normal(draw, dtype, 2, 3, kv_heads, 320, head_dim)
    shape = StepShape(before[:, None], verification_mask(2, (), 2), 3, 2)
    past, slots = torch.tensor([61, 250]), torch.tensor([2, 1])
    fused = _normal(draw, dtype, shape.num_rows, (heads + 2 * kv_heads) * head_dim)
    head_norm = _normal(draw, dtype, heads + kv_heads, head_dim) if normed else None
    caches = [before.clone(), before.clone()]
    found, expected = (
        _attend(do, fused, cache, past, slots, shape, head_norm, scaled=scaled)
        for do, cache in zip((kernels, TWIN), caches, strict=True)
    )
    _assert_close(found, expected)
    _assert_close(*caches)
    places, written = shape.places(past, slots), torch.zeros(3, 320, dtype=torch.bool)
    written[places.slots, places.cells] = True
    kept = ~written[:, None, :, None].expand_as(before)
    assert torch.equal(caches[0][kept], before[kept]) and not torch.equal(caches[0][~kept], before[~kept])
    assert not kernels.counters.any()


BORDERS = [0, 1, POSITIONS - 10, POSITIONS - 9, POSITIONS - 1, POSITIONS, 2 * POSITIONS - 8, 2 * POSITIONS + 65]
"""Earlier tokens with which a step of 9 rows ends before, at and after the border of a part, or lies across it."""


@pytest.mark.parametrize(
    ("dtype", "past"), [*itertools.product([torch.float32], BORDERS), (torch.bfloat16, 250), (torch.bfloat16, 577)]
)
def test_attention_reads_its_length_on_the_device(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, past: int
) -> None:
    head_dim = 16 if past % 2 else 24
    keys_values = _normal(draw, dtype, 2, 2, 1, 640, head_dim)
    shape = StepShape(keys_values[:, None], verification_mask(2, (), 2), 3)
    fused = _normal(draw, dtype, shape.num_rows, 4 * head_dim)
    past_length, slots = torch.tensor([past]), torch.tensor([1])
    keys_values[:, 0] = torch.nan  # nothing there may be used
    keys_values[0, 1, :, past:] = torch.nan
    expected = _attend(TWIN, fused, keys_values.nan_to_num(), past_length, slots, shape)
    _assert_close(_attend(kernels, fused, keys_values, past_length, slots, shape), expected)
    assert not kernels.counters.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("past", [POSITIONS - 2, 2 * KEYS - 1])
def test_a_row_gets_the_same_attention_whatever_follows_it(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, past: int
) -> None:
    """So a token that is verified as a draft is chosen as it would be alone, to the last bit: whether the keys before
    it are from the cache or from its own step. NumPy, with which the interpreter multiplies, sums the first six of a
    tile's queries alike."""
    rows = 3
    fused = _normal(draw, dtype, rows, 4 * 16)
    keys_values = _normal(draw, dtype, 2, 1, 1, 2 * POSITIONS, 16)
    causal, slots = torch.ones(rows, rows, dtype=torch.bool).tril_(), torch.tensor([0])
    shapes = [StepShape(keys_values[:, None], causal[:n, :n], n) for n in (rows, 1)]
    together = _attend(kernels, fused, keys_values.clone(), torch.tensor([past]), slots, shapes[0])
    for row in range(rows):
        alone = _attend(kernels, fused[row : row + 1], keys_values, torch.tensor([past + row]), slots, shapes[1])
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_conversation_of_a_batch_attends_to_its_own_slot(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype
) -> None:
    """Two of them are nobody's, in the last slot. Clean rows of all come first."""
    keys_values = _normal(draw, dtype, 2, 4, 2, 320, 16)
    shape = StepShape(keys_values[:, None], verification_mask(1, ((0, 1),), 1), 3, 4)
    past_length, slots = torch.tensor([300, 17, 0, 0]), torch.tensor([2, 0, 3, 3])
    fused = _normal(draw, dtype, shape.num_rows, 8 * 16)
    found = _attend(kernels, fused, keys_values.clone(), past_length, slots, shape)
    own = shape.order[:2].flatten()  # what is left in nobody's slot depends on who writes last
    _assert_close(found[own], _attend(TWIN, fused, keys_values.clone(), past_length, slots, shape)[own])
    one = StepShape(keys_values[:, None], verification_mask(1, ((0, 1),), 1), 3)
    for n in range(2):
        rows = shape.order[n]
        alone = _attend(kernels, fused[rows], keys_values.clone(), past_length[n : n + 1], slots[n : n + 1], one)
        _assert_close(found[rows], alone)
    assert not kernels.counters.any()


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


def test_a_step_with_too_many_tiles_is_not_supported(kernels: TritonOperations, draw: torch.Generator) -> None:
    assert [padded_rows(rows) for rows in (1, 16, 17, 33, 128, 129)] == [16, 16, 32, 64, 128, 128]
    keys_values = torch.zeros(2, 1, 1, 64, 16)
    shape = StepShape(keys_values[:, None], torch.ones(1, 1, dtype=torch.bool), 1, 16_385)
    past, slots = torch.zeros(2, 16_385, dtype=torch.long)
    with pytest.raises(UnsupportedShape, match="too many tiles for 16385 times 1 rows"):
        _attend(kernels, torch.zeros(16_385, 48), keys_values, past, slots, shape)

"""The kernels for weights in blocks compute what their twins do with expanded weights, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model.nn.cpu.block_formats import FORMATS
from model.nn.gpu.agreement import difference, prediction_difference
from model.nn.gpu.block_matrix import BlockMatrix, BlockWeight
from model.nn.gpu.operations import Projection
from model.nn.gpu.torch_operations import TorchOperations
from tests.model.nn.cpu.random_blocks import random_blocks

pytest.importorskip("triton", "3.9", "Triton before 3.9 does not work with numpy 2.4: pip install -U triton")

from model.nn.gpu.block_launches import expand
from model.nn.gpu.triton_operations import TritonOperations

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

CPU = torch.device("cpu")
TWIN = TorchOperations()
EPS = 1e-6


@pytest.fixture(scope="module")
def kernels() -> TritonOperations:
    return TritonOperations(CPU)


@pytest.fixture
def draw() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _matrix(name: str, outputs: int, inputs: int) -> BlockMatrix:
    form = FORMATS[name]
    return BlockMatrix.of(form, random_blocks(form, outputs, inputs, 0), inputs, CPU)


def _projection(
    draw: torch.Generator, dtype: torch.dtype, sections: list[tuple[str, int]], sizes: tuple[int, ...], depth: int,
    rank: int,
) -> Projection:  # fmt: skip
    weight = BlockWeight(tuple(_matrix(name, outputs, depth) for name, outputs in sections), dtype)
    if not rank:
        return Projection(weight, None, None, None, sizes)
    bias, b = (torch.randn(sum(sizes), *shape, generator=draw).to(dtype) for shape in ((), (rank,)))
    a = (torch.randn(rank * len(sizes), depth, generator=draw) * depth**-0.5).to(dtype)
    return Projection(weight, bias, a, b, sizes)


def _rows(draw: torch.Generator, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw).to(dtype)


@pytest.mark.parametrize("name", FORMATS)
def test_a_kernel_expands_to_what_the_file_stores(name: str) -> None:
    matrix = _matrix(name, 40, 512 if FORMATS[name].stored_block == 256 else 416)
    for dtype in (torch.float32, torch.bfloat16):
        out = torch.full((40, matrix.inputs), torch.nan, dtype=dtype)
        expand(matrix, out)
        assert torch.equal(out, matrix.expanded(0, 40).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("sections", "sizes", "depth", "rank"),
    [
        ([("Q5_0", 96), ("Q8_0", 32)], (64, 32, 32), 416, 4),  # queries, keys and values of the 0.5B
        ([("Q4_K", 96), ("Q6_K", 32)], (64, 32, 32), 512, 0),  # of the 1.5B
        ([("Q6_K", 40)], (40,), 1280, 20),  # the depth in two parts, columns that fill no tile
        ([("Q5_K", 32)], (32,), 1024, 0),
    ],
)
def test_a_projection(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, sections: list[tuple[str, int]],
    sizes: tuple[int, ...], depth: int, rank: int,
) -> None:  # fmt: skip
    projection = _projection(draw, dtype, sections, sizes, depth, rank)
    x, norm, added = _rows(draw, dtype, 9, depth), _rows(draw, dtype, depth), _rows(draw, dtype, 9, sum(sizes))
    for options in ({"norm": norm, "eps": EPS}, {"residual": added}):
        found, expected = (do.project(x, projection, 4, **options) for do in (kernels, TWIN))
        assert difference(found, expected) is None
        assert not kernels.counters.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("name", "depth"), [("Q5_0", 416), ("Q4_K", 256)])
def test_gate_and_up(
    kernels: TritonOperations, draw: torch.Generator, dtype: torch.dtype, name: str, depth: int
) -> None:
    projection = _projection(draw, dtype, [(name, 80)], (40, 40), depth, 4)
    x, norm = _rows(draw, dtype, 5, depth), _rows(draw, dtype, depth)
    assert difference(*(do.gate_up(x, norm, projection, 2, EPS) for do in (kernels, TWIN))) is None


@pytest.mark.parametrize(("name", "depth"), [("Q8_0", 416), ("Q6_K", 256)])
def test_the_most_likely_token(kernels: TritonOperations, draw: torch.Generator, name: str, depth: int) -> None:
    weight = BlockWeight((_matrix(name, 130, depth),), torch.bfloat16)
    x, norm = _rows(draw, torch.bfloat16, 9, depth) * 0.1, torch.ones(depth, dtype=torch.bfloat16)
    assert prediction_difference(*(do.predict(x, norm, weight, EPS, 7) for do in (kernels, TWIN))) is None

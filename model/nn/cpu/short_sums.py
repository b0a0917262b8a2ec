"""Generates dot products for AVX2, which has no instruction that adds four products of bytes to an int32.

`vpmaddubsw` adds two products to a 16-bit number, and `vpmaddwd` two such numbers to an int32. As many 16-bit numbers
as cannot overflow are added before that: eight with 4-bit weights, which are all those of a block. 8-bit weights are
multiplied in two halves of four bits.
"""

from __future__ import annotations

from model.nn.cpu.block_formats import BlockFormat
from model.nn.cpu.block_reader import BlockReader
from model.nn.cpu.ir import Body

_LARGEST_ACTIVATION = 127
"""The quantizer does not use -128."""

_WHOLE_BLOCK = 4
"""Bits of weights whose sums are carried from line to line of a block in registers, which is faster than unrolling."""

_MAX_DOTS = 12
"""Dot products of a tile with two vectors of outputs. With more, the processor loads and stores too many sums."""

MAX_ROWS = 8
"""Rows of a tile. A row has one 16-bit sum in a register; its other sums are in memory most of the time."""


def vectors_together(rows: int, chains: int) -> int:
    """Vectors of outputs in a tile.

    Args:
        chains: dot products per block, row and vector.
    """
    return 2 if 2 * rows * chains <= _MAX_DOTS else 1


def carries_sums(form: BlockFormat) -> bool:
    """Whether 16-bit sums are carried from line to line."""
    return form.bits == _WHOLE_BLOCK


def lines_per_step(form: BlockFormat, chains: int) -> int:
    """Lines of a block (pairs of vectors of weights) in a step of the loop over them: one if 16-bit sums are carried,
    otherwise as many as are added as 16-bit numbers.

    Args:
        chains: dot products per block.
    """
    if carries_sums(form):
        return 1
    largest = (1 << (4 if form.bits == 8 else form.bits)) - 1
    return (2**15 - 1) // (2 * largest * _LARGEST_ACTIVATION) * chains // 2


class ShortSums:
    """The sums of a few lines.

    Args:
        body: the function under construction.
        sums: of each dot product the sum so far, if there is one; with 8-bit weights those of their lower and their
            upper half.
    """

    def __init__(self, body: Body, read: BlockReader, form: BlockFormat, sums: list[list[str]]) -> None:
        self._b, self._read, self._halved, self._sums = body, read, form.bits == 8, sums

    @property
    def carried(self) -> list[str]:
        """The sums, one of each dot product."""
        return [total for (total,) in self._sums]

    def add(self, number: int, weights: str, x: str) -> None:
        """Add the products of unsigned weights and signed activations to a dot product."""
        b, read = self._b, self._read
        parts = [read.masked(weights, 15), read.upper_half(weights)] if self._halved else [weights]
        operands = (f"<32 x i8> {part}, <32 x i8> {x}" for part in parts)
        products = [b.op(f"call <16 x i16> @llvm.x86.avx2.pmadd.ub.sw({both})") for both in operands]
        before = self._sums[number]
        if before:
            products = [b.op(f"add <16 x i16> {one}, {two}") for one, two in zip(before, products, strict=True)]
        self._sums[number] = products

    def added_to(self, dots: list[str]) -> list[str]:
        """The dot products so far, as int32, and these sums."""
        return [self._added(dot, *sums) for dot, sums in zip(dots, self._sums, strict=True)]

    def _added(self, dot: str, lower: str, upper: str = "") -> str:
        b = self._b
        dot = b.op(f"add {b.integers} {dot}, {self._wide(lower)}")
        if not upper:
            return dot
        return b.op(f"add {b.integers} {dot}, {b.op(f'shl {b.integers} {self._wide(upper)}, splat (i32 4)')}")

    def _wide(self, total: str) -> str:
        operands = f"<16 x i16> {total}, <16 x i16> splat (i16 1)"
        return self._b.op(f"call {self._b.integers} @llvm.x86.avx2.pmadd.wd({operands})")

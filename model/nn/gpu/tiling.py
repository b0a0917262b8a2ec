"""How the kernels divide their work among programs. Sizes depend on the shapes of a model and of a step only, never on
the length of a text, so that a row's result is the same in every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

_ENOUGH_PROGRAMS = 96
"""Programs that read from memory at the same time before more make it no faster. H100 and H200 have 132
multiprocessors, A100 108, RTX 4090 128."""

_FULL_PROGRAMS = 128
"""Programs that a matrix is divided into at most by summing its depth in parts."""

_LEAST_DEPTH = 512
"""The least depth of such a part: below it, adding the parts up costs more than reading them."""

_WIDTHS = (64, 32, 16)
"""Columns of a tile. Wider ones read the rows and the adapter less often; 16 is the least that a tensor core takes."""

POSITIONS = 256
"""Cache positions that a program of the attention reads."""

KEYS = 64
"""Cache positions that it reads at a time."""

HEAD_COLUMNS = 64
"""Tokens of a tile of the output head."""


class UnsupportedShape(ValueError):
    """The kernels cannot run a model of this shape."""


@dataclass(frozen=True)
class Tiling:
    """How a projection is divided.

    Attributes:
        columns: columns of a tile.
        splits: parts of the depth.
    """

    columns: int
    splits: int

    @staticmethod
    def of(sizes: tuple[int, ...], depth: int, *, splittable: bool = True, row_tiles: int = 1) -> Tiling:
        """The tiling of projections that share an input.

        Args:
            sizes: columns of each projection. No tile contains columns of two.
            splittable: whether the kernel can sum the depth in parts.
            row_tiles: tiles that the rows are divided into, each of which has its own programs.

        Raises:
            UnsupportedShape: no tile fits.
        """
        common = math.gcd(*sizes)
        widths = [width for width in _WIDTHS if common % width == 0 or len(sizes) == 1]
        if not widths:
            raise UnsupportedShape(f"projections of {sizes} columns have no common tile")
        for width in widths:
            tiles = -(-sum(sizes) // width) * row_tiles
            splits = max(1, min(depth // _LEAST_DEPTH, -(-_FULL_PROGRAMS // tiles))) if splittable else 1
            if tiles * splits >= _ENOUGH_PROGRAMS:
                return Tiling(width, splits)
        return Tiling(widths[-1], splits)


def padded_rows(rows: int) -> int:
    """Rows of a tile as tensor cores take them: a power of two, at least 16. A step of more than 128 rows has several
    tiles of rows, which read the weights from the GPU's cache after the first of them."""
    return min(128, max(16, 1 << (rows - 1).bit_length()))


def query_rows(queries: int) -> int:
    """Queries of a tile of the attention, of those that share their keys. Not more than 32: tiles of 64 would be
    multiplied by another instruction of some GPUs, and need twice the registers."""
    return 16 if queries <= 16 else 32


def fitting_rows(rows: int, most: int) -> int:
    """How many more rows, up to `most`, fit beside `rows` without making the tile larger; `most` if none does."""
    return min(most, max(0, padded_rows(rows) - rows)) or most


def padded_rank(rank: int) -> int:
    """The rank of an adapter as tensor cores take it."""
    return max(16, 1 << (max(rank, 1) - 1).bit_length())


def depth_step(rows: int, itemsize: int) -> int:
    """How much of the depth a program loads at a time: what keeps three or four loads within the 99 KiB of shared
    memory of the GPUs that have the least."""
    return 64 * 2 // itemsize if rows <= 64 else 32 * 2 // itemsize

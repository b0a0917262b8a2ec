"""Generates the matrix-multiplication kernels as LLVM IR, for this processor's vector instructions.

There is one function per format: `run(segment, call, begin, end)` multiplies output groups `begin` to `end` with all
activation rows. It divides them into tiles (`tile.py`).
"""

from __future__ import annotations

from model.nn.cpu.block_formats import BLOCK, ROWS, BlockFormat
from model.nn.cpu.ir import KernelBody
from model.nn.cpu.matrix_registers import MatrixKernel
from model.nn.cpu.target import Target
from model.nn.cpu.tile import SUMS, Tile, tile_rows, tile_vectors

SEGMENT = ("kernel", "weights", "records", "outputs", "first_output", "groups", "groups_per_chunk", "first_chunk")
"""64-bit fields that describe a packed matrix: the addresses of its kernel and its weights, records per group, outputs,
the column of its first output in the result, and how its groups are divided into chunks (`team.py`)."""

CALL = ("x", "x_scale", "x_minimum", "x_sum", "out", "rows", "out_stride")
"""64-bit fields that describe activations and result: addresses of the activations [blocks, rows, 32] int8, their
scales [blocks, rows] float32, what minimums are multiplied by [blocks, rows] float32, the negated sums of activations
[blocks, rows, SUMS] int32 and the result [rows, outputs] float32; the number of rows; and the stride of the result's
rows in elements."""


def kernel_name(form: BlockFormat) -> str:
    """The name of a format's kernel."""
    return f"run_{form.name}"


def kernel_text(form: BlockFormat, target: Target) -> str:
    """The IR of a format's kernel for a processor: a range of groups, each with all activation rows."""
    b = KernelBody(kernel_name(form), target, CALL, SEGMENT)
    f, most, functions = b.f, tile_rows(form, target), []
    tiles: set[tuple[int, int]] = set()  # rows, vectors of outputs
    if target.isa == "amx":
        matrices = MatrixKernel(form, target)
        many = b.op(f"icmp ugt i64 {f['rows']}, {most}")
        b.do(f"br i1 {many}, label %matrices, label %vectors")
        b.label("matrices")
        matrices.all_groups(b)
        b.do("ret void")
        b.label("vectors")
        functions = matrices.functions()
    group_bytes, groups = b.mul(f["records"], form.record_bytes), b.op("sub i64 %end, %begin")
    row_tiles = b.op(f"udiv i64 {b.add(f['rows'], most - 1)}, {most}")

    def tile(number: str, group: str, together: int) -> None:
        """All outputs of one group, or of two together, and one tile of rows."""
        row, output = b.mul(number, most), b.mul(group, ROWS)
        weights = b.at("i8", f["weights"], b.mul(group, group_bytes))
        x, x_sum = b.at("i8", f["x"], b.mul(row, BLOCK)), b.at("i32", f["x_sum"], b.mul(row, SUMS))
        x_scale, x_minimum = b.at("float", f["x_scale"], row), b.at("float", f["x_minimum"], row)
        out = b.at("float", f["out"], b.add(b.add(output, f["first_output"]), b.mul(row, f["out_stride"])))
        valid, left = b.op(f"sub i64 {f['outputs']}, {output}"), b.op(f"sub i64 {f['rows']}, {row}")
        limit = most // together
        cases = " ".join(f"i64 {rows}, label %tile{rows}.{together}" for rows in range(1, limit))
        b.do(f"switch i64 {left}, label %tile{limit}.{together} [{cases}]")
        for rows in range(1, limit + 1):
            b.label(f"tile{rows}.{together}")
            vectors = together * tile_vectors(form, target, rows)
            tiles.add((rows, vectors))
            for first in range(0, ROWS, target.lanes * vectors):
                b.do(
                    f"call void @tile_{form.name}_{rows}_{vectors}(ptr {weights}, i64 {group_bytes}, ptr {x}, "
                    f"ptr {x_scale}, ptr {x_minimum}, ptr {x_sum}, ptr {out}, i64 {f['records']}, i64 {f['rows']}, "
                    f"i64 {f['out_stride']}, i64 {first}, i64 {valid})"
                )
            b.do(f"br label %tiles.{together}")
        b.label(f"tiles.{together}")

    def all_rows(group: str, together: int) -> None:
        b.loop_or_skip(f"rows.{together}", row_tiles, lambda number: tile(number, group, together))

    rest = "%begin"
    if target.pairs:
        few = b.op(f"icmp ule i64 {f['rows']}, {most // 2}")
        pairs = b.op(f"select i1 {few}, i64 {b.op(f'udiv i64 {groups}, 2')}, i64 0")
        b.loop_or_skip("pair", pairs, lambda number: all_rows(b.add("%begin", b.mul(number, 2)), 2))
        paired = b.mul(pairs, 2)
        rest, groups = b.add("%begin", paired), b.op(f"sub i64 {groups}, {paired}")
    b.loop_or_skip("group", groups, lambda number: all_rows(b.add(rest, number), 1))
    return b.text([*functions, *(Tile(form, target, *shape).text() for shape in sorted(tiles))])

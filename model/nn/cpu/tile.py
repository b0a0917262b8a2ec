"""Generates the inner loops of the matrix-multiplication kernels: some activation rows times some outputs, over all
inputs, with the sums in registers.

A row's sums are always formed in the same order: integers within a block of 32 inputs, which are exact, then fused
multiply-adds in float32, block after block. So a row's result does not depend on the shape of the tile or on the rows
next to it.

Dot products multiply unsigned weights by signed activations, four to an int32 lane: `vpdpbusd` with AVX-512 VNNI or
AVX-VNNI, `vpmaddubsw` and `vpmaddwd` with AVX2 (`short_sums.py`), `sdot` on ARM, and plain multiplications elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from model.nn.cpu.block_formats import BLOCK, LINE, ROWS, BlockFormat
from model.nn.cpu.block_reader import BlockReader
from model.nn.cpu.ir import Body, splat
from model.nn.cpu.short_sums import MAX_ROWS, ShortSums, carries_sums, lines_per_step, vectors_together
from model.nn.cpu.target import Target

SUMS = 3
"""Integers per block that offsets are multiplied by: minus the sum of its activations, minus the sum of each half."""

PARAMETERS = (
    "ptr %weights, i64 %group_bytes, ptr %x, ptr %x_scale, ptr %x_minimum, ptr %x_sum, ptr %out, i64 %records, "
    "i64 %rows, i64 %out_stride, i64 %first, i64 %valid"
)
"""Of a tile: its first group of weights and a group's size; its first row of activations and result (`codegen.CALL`);
records in a group; all rows, which are next to each other in every block; and within the group, the tile's first output
and the number of outputs."""

_SHIFT, _SHIFT_BITS = 1.5 * 2**23, 0x4B400000
"""Dot products start from the bits of this float32. A dot product is less than 2^22, so it changes only the low bits,
and subtracting the float gives its value exactly. Converting the integer would occupy the units that multiply. With
AVX2, where other instructions limit the speed, it is converted, which is one instruction instead of two."""

_SPARE_REGISTERS = 7
"""For weights, scales and constants."""


def chains(form: BlockFormat) -> int:
    """Integer sums per block, row and vector: one for each scale."""
    return 2 if form.layout == "super" else 1


def tile_rows(form: BlockFormat, target: Target) -> int:
    """Activation rows in a tile: as many as there are registers for their sums. A tile of two groups has half."""
    if target.isa == "avx2":
        return MAX_ROWS
    return (target.registers - _SPARE_REGISTERS) // (target.vectors * (1 + chains(form)))


def tile_vectors(form: BlockFormat, target: Target, rows: int) -> int:
    """Vectors of outputs in a tile of so many rows: those of a whole group if there are registers for their sums, since
    fewer read every cache line of weights more than once."""
    if target.isa == "avx2":
        return vectors_together(rows, chains(form))
    group, most = ROWS // target.lanes, (target.registers - _SPARE_REGISTERS) // (rows * (1 + chains(form)))
    return max(target.vectors, group) if group <= most else target.vectors


class Tile:
    """`tile_<format>_<rows>_<vectors>`, a function of PARAMETERS.

    Args:
        rows: activation rows.
        vectors: vectors of outputs.
    """

    def __init__(self, form: BlockFormat, target: Target, rows: int, vectors: int) -> None:
        self._form, self._target, self._rows = form, target, rows
        self._lanes, self._bytes, self._chains = target.lanes, 4 * target.lanes, chains(form)
        self._places = [divmod(n * target.lanes, ROWS) for n in range(vectors)]
        """Of each vector the group, and the first output in it."""
        self._short = target.isa == "avx2"
        self._carries = self._short and carries_sums(form)
        self._lines = lines_per_step(form, self._chains) if self._short else 1
        """Lines per step of a loop over those of a block."""
        self._name = f"tile_{form.name}_{rows}_{vectors}"
        self._b = Body(target.lanes, target.fused)
        self._read = BlockReader(self._b, form, target)

    def text(self) -> str:
        """The function's IR."""
        b = self._b
        self._groups = [b.at("i8", "%weights", b.mul("%group_bytes", n)) for n in range(self._places[-1][0] + 1)]
        self._outputs = [b.add("%first", first) for _, first in self._places]
        count = self._rows * len(self._places)
        sums = b.loop("record", "%records", [self._b.floats] * count, ["zeroinitializer"] * count, self._record)
        columns = [b.add("%first", n * self._lanes) for n in range(len(self._places))]
        for row in range(self._rows):
            own = sums[row * len(columns) : (row + 1) * len(columns)]
            store_sums(b, self._lanes, b.at("float", "%out", b.mul("%out_stride", row)), columns, own)
        b.do("ret void")
        return "\n".join((f"define internal void @{self._name}({PARAMETERS}) #0 {{\nentry:", *b.lines, "}"))

    def _record(self, number: str, sums: list[str]) -> Sequence[str]:
        """Add a record to the sums of all rows, those of each vector next to each other."""
        b, form = self._b, self._form
        start = b.mul(number, form.record_bytes)
        records = [b.at("i8", group, start) for group in self._groups]
        factors = [
            self._read.factors(records[group], output)
            for (group, _), output in zip(self._places, self._outputs, strict=True)
        ]
        first_block = b.mul(number, form.record_blocks)

        # A loop, not eight copies of its body: LLVM would move all their prefetches to the top, more than a processor
        # tracks.
        def block(number: str, sums: list[str]) -> Sequence[str]:
            return self._block(records, factors, number, b.mul(b.add(first_block, number), "%rows"), sums)

        return b.loop("block", form.record_blocks, [self._b.floats] * len(sums), sums, block)

    def _block(
        self, records: list[str], factors: list[list[str]], number: str, entry: str, sums: list[str]
    ) -> Sequence[str]:
        """Add a block to the sums.

        Args:
            number: of the block in its record.
            entry: index of the block's first row among the blocks of all rows.
        """
        b, form = self._b, self._form
        blocks = [self._read.block(record, number) for record in records]
        for record, block in zip(records, blocks, strict=True):
            self._read.prefetch_header(record, block, number)
        dots = self._dots(blocks, b.at("i8", "%x", b.mul(entry, BLOCK)), b.at("i32", "%x_sum", b.mul(entry, SUMS)))
        x_scale, x_minimum = b.at("float", "%x_scale", entry), b.at("float", "%x_minimum", entry)
        scales = [
            self._read.scales(records[group], number, *parts)
            for (group, _), parts in zip(self._places, zip(factors, self._outputs, strict=True), strict=True)
        ]
        out: list[str] = []
        for row in range(self._rows):
            by_row = b.splat("float", b.load("float", x_scale, row))
            minimum_by = b.splat("float", b.load("float", x_minimum, row)) if form.has_minimum else ""
            for own_scales, minimum in scales:
                total = sums[len(out)]
                for scale in own_scales:
                    total = b.fma(self._value(dots.pop(0)), b.op(f"fmul {self._b.floats} {scale}, {by_row}"), total)
                if form.has_minimum:
                    total = b.fma(minimum, minimum_by, total)
                out.append(total)
        return out

    def _dots(self, blocks: list[str], x: str, x_sum: str) -> list[str]:
        """The dot products of a block's weights, without their offset, and activations, of each row, vector and chain;
        plus _SHIFT, except with AVX2."""
        b, read = self._b, self._read
        upper = [
            line
            for (group, _), output in zip(self._places, self._outputs, strict=True)
            for line in read.upper(blocks[group], output)
        ]
        starts = []
        for row in range(self._rows):
            own = [self._start(x_sum, row, n + 1 if self._chains == 2 else 0) for n in range(self._chains)]
            starts += own * len(self._places)

        def lines(number: str, carried: list[str]) -> Sequence[str]:
            bits, dots = carried[: len(upper)], carried[len(upper) :]
            sums_so_far = [[dot] if self._carries else [] for dot in dots]
            short = ShortSums(b, read, self._form, sums_so_far) if self._short else None
            for within in range(self._lines):
                line = number if self._lines == 1 else b.add(b.mul(number, self._lines), within)
                addresses = [b.at("i8", block, b.mul(line, LINE)) for block in blocks]
                for address in addresses:
                    read.prefetch(address)
                each = len(bits) // len(self._places)
                pairs = [
                    read.pair(addresses[group], output, bits[n * each : (n + 1) * each])
                    for n, ((group, _), output) in enumerate(zip(self._places, self._outputs, strict=True))
                ]
                quads = b.at("i32", x, line)
                for row in range(self._rows):
                    activations = [self._quad(quads, BLOCK // 4 * row + 4 * half) for half in range(2)]
                    for n, pair in enumerate(pairs, row * len(pairs)):
                        for half in range(2):
                            place = n * self._chains + half % self._chains
                            if short is None:
                                dots[place] = self._dot(dots[place], pair[half], activations[half])
                            else:
                                short.add(place, pair[half], activations[half])
                bits = read.next_upper(bits)
            if short is not None:
                dots = short.carried if self._carries else short.added_to(dots)
            return [*bits, *dots]

        kind, first = (b.integers, starts) if not self._carries else ("<16 x i16>", ["zeroinitializer"] * len(starts))
        kinds = [f"<{self._bytes} x i8>"] * len(upper) + [kind] * len(first)
        dots = b.loop("line", 4 // self._lines, kinds, [*upper, *first], lines)[len(upper) :]
        return ShortSums(b, read, self._form, [[dot] for dot in dots]).added_to(starts) if self._carries else dots

    def _start(self, x_sum: str, row: int, part: int) -> str:
        """What a row's dot products start from: minus the offset times the sum of its activations, plus _SHIFT."""
        b, kind, shift = self._b, self._b.integers, 0 if self._short else _SHIFT_BITS
        if not self._form.offset:
            return f"splat (i32 {shift})"
        total = b.splat("i32", b.load("i32", x_sum, SUMS * row + part))
        moved = b.op(f"shl {kind} {total}, splat (i32 {self._form.offset.bit_length() - 1})")
        return b.op(f"add {kind} {moved}, splat (i32 {shift})")

    def _value(self, dot: str) -> str:
        """A dot product as float."""
        b = self._b
        if self._short:
            return b.op(f"sitofp {b.integers} {dot} to {b.floats}")
        return b.op(f"fsub {b.floats} {b.op(f'bitcast {b.integers} {dot} to {b.floats}')}, {splat(_SHIFT)}")

    def _quad(self, x: str, number: int) -> str:
        """Four activations, in every lane."""
        b = self._b
        return b.op(f"bitcast {b.integers} {b.splat('i32', b.load('i32', x, number))} to <{self._bytes} x i8>")

    def _dot(self, total: str, weights: str, x: str) -> str:
        """Add products of unsigned weights and signed activations, four to a lane."""
        b, isa, lanes, size = self._b, self._target.isa, self._lanes, self._bytes
        if isa in ("amx", "avx512vnni", "avxvnni"):
            width = 256 if isa == "avxvnni" else 512
            return b.op(
                f"call <{lanes} x i32> @llvm.x86.avx512.vpdpbusd.{width}"
                f"(<{lanes} x i32> {total}, <{size} x i8> {weights}, <{size} x i8> {x})"
            )
        if isa == "sdot":
            if self._form.bits < 8:
                return self._sdot(total, weights, x)
            # It multiplies signed numbers, so 8-bit weights are split here, too.
            low, high = self._read.masked(weights, 15), self._read.upper_half(weights)
            upper = b.op(f"shl <4 x i32> {self._sdot('zeroinitializer', high, x)}, splat (i32 4)")
            return b.op(f"add <4 x i32> {self._sdot(total, low, x)}, {upper}")
        wide_w = b.op(f"zext <{size} x i8> {weights} to <{size} x i32>")
        wide_x = b.op(f"sext <{size} x i8> {x} to <{size} x i32>")
        product = b.op(f"mul <{size} x i32> {wide_w}, {wide_x}")
        for n in range(4):
            indices = ", ".join(f"i32 {4 * lane + n}" for lane in range(lanes))
            part = b.op(f"shufflevector <{size} x i32> {product}, <{size} x i32> poison, <{lanes} x i32> <{indices}>")
            total = b.op(f"add <{lanes} x i32> {total}, {part}")
        return total

    def _sdot(self, total: str, weights: str, x: str) -> str:
        operands = f"<4 x i32> {total}, <16 x i8> {weights}, <16 x i8> {x}"
        return self._b.op(f"call <4 x i32> @llvm.aarch64.neon.sdot.v4i32.v16i8({operands})")


def store_sums(b: Body, lanes: int, out: str, columns: Sequence[str], sums: Sequence[str]) -> None:
    """Write the sums of a row; the last group of a matrix may have fewer than 16 outputs (`%valid`).

    Args:
        out: address of the row's result for the group's first output.
        columns: the first output of each vector.
    """
    lane_numbers = ", ".join(f"i64 {n}" for n in range(lanes))
    valid = b.splat("i64", "%valid")
    for column, total in zip(columns, sums, strict=True):
        index = b.op(f"add <{lanes} x i64> {b.splat('i64', column)}, <{lane_numbers}>")
        mask = b.op(f"icmp ult <{lanes} x i64> {index}, {valid}")
        operands = f"{b.floats} {total}, ptr {b.at('float', out, column)}, i32 4, <{lanes} x i1> {mask}"
        b.do(f"call void @llvm.masked.store.v{lanes}f32.p0({operands})")

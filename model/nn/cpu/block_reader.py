"""Generates the code that reads packed weights: a block's quantized weights as vectors of bytes, its scales and its
minimum."""

from __future__ import annotations

from model.nn.cpu.block_formats import LINE, ROWS, BlockFormat
from model.nn.cpu.ir import Body
from model.nn.cpu.target import Target


class BlockReader:
    """Reads blocks of one format.

    Args:
        body: the function under construction.
    """

    def __init__(self, body: Body, form: BlockFormat, target: Target) -> None:
        self._b, self._form, self._target = body, form, target
        self._lanes, self._bytes = target.lanes, 4 * target.lanes

    def factors(self, record: str, output: str | int) -> list[str]:
        """The factors that the scales of a record share, and those of its minimums: a vector each; none in formats
        without superblocks."""
        count = {"super": 1, "super_min": 2}.get(self._form.layout, 0)
        return [self._float16(record, 2 * ROWS * n, output) for n in range(count)]

    def block(self, record: str, number: str) -> str:
        """The address of a block's lines."""
        b, form = self._b, self._form
        return b.at("i8", record, b.add(b.mul(number, form.block_bytes), form.header_bytes))

    def prefetch_header(self, record: str, block: str, number: str) -> None:
        """Prefetch a block's share of the header of a later record, and what a later block has beside the lines of its
        low bits."""
        b = self._b
        self.prefetch(b.at("i8", record, b.mul(number, LINE)))
        for line in range(4, self._form.block_bytes // LINE):
            self.prefetch(b.at("i8", block, LINE * line))

    def prefetch(self, address: str) -> None:
        """Prefetch what is `Target.prefetch_bytes` further on."""
        ahead = self._b.at("i8", address, self._target.prefetch_bytes)
        self._b.do(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")

    def upper(self, block: str, output: str | int) -> list[str]:
        """The lines with the bits above the lower four."""
        lines = self._form.bits - 4 if self._form.bits < 8 else 0
        return [self._line(block, LINE * (4 + n), output) for n in range(lines)]

    def next_upper(self, upper: list[str]) -> list[str]:
        """`upper` for the next pair."""
        return [self._shift(one, -1 if self._form.bits == 5 else -2) for one in upper]

    def pair(self, line: str, output: str | int, upper: list[str]) -> tuple[str, str]:
        """Vectors n and n + 4 of a block, quantized weights [outputs, 4 inputs] as bytes.

        Args:
            line: address of line n.
            upper: the lines with the upper bits, shifted right so that those of vectors n and n + 4 (5-bit formats), or
                of one vector each (6-bit), are at fixed places.
        """
        if self._form.bits == 8:
            return self._line(line, 0, output), self._line(line, 4 * LINE, output)
        both = self._line(line, 0, output)
        low, high = self.masked(both, 15), self.upper_half(both)
        if self._form.bits == 5:
            low = self._or(low, self.masked(self._shift(upper[0], 4), 16))
            high = self._or(high, self.masked(upper[0], 16))
        elif self._form.bits == 6:
            low = self._or(low, self.masked(self._shift(upper[0], 4), 48))
            high = self._or(high, self.masked(self._shift(upper[1], 4), 48))
        return low, high

    def scales(self, record: str, block: str, factors: list[str], output: str | int) -> tuple[list[str], str]:
        """The scales of a block of a record, two where half blocks have their own, and the minimum if the format has
        them.

        Args:
            block: its number in the record.
        """
        b, form, floats = self._b, self._form, self._b.floats
        if form.layout.startswith("pair"):
            here = b.at("i8", record, b.mul(block, 2 * ROWS * (2 if form.has_minimum else 1)))
            minimum = self._float16(here, 2 * ROWS, output) if form.has_minimum else ""
            return [self._float16(here, 0, output)], minimum
        if form.layout == "super":
            here = b.at("i8", record, b.mul(block, 2 * ROWS))
            parts = [self._small(here, LINE + n * ROWS, "sext", output) for n in range(2)]
            return [b.op(f"fmul {floats} {factors[0]}, {part}") for part in parts], ""
        here = b.at("i8", record, b.mul(block, ROWS))
        parts = [self._small(here, LINE, "zext", output), self._small(here, 3 * LINE, "zext", output)]
        scale, minimum = (b.op(f"fmul {floats} {factor}, {part}") for factor, part in zip(factors, parts, strict=True))
        return [scale], minimum

    def masked(self, value: str, mask: int) -> str:
        """Some bits of each byte."""
        return self._b.op(f"and <{self._bytes} x i8> {value}, splat (i8 {mask})")

    def upper_half(self, value: str) -> str:
        """The upper four bits of each byte."""
        return self.masked(self._shift(value, -4), 15)

    def _float16(self, start: str, offset: int, output: str | int) -> str:
        """A scale of each output of a vector."""
        b, lanes = self._b, self._lanes
        at = b.at("half", b.at("i8", start, offset), output)
        if self._target.isa != "portable":
            half = b.op(f"load <{lanes} x half>, ptr {at}, align 8")
            return b.op(f"fpext <{lanes} x half> {half} to <{lanes} x float>")
        # Without a conversion instruction LLVM calls a library function that is not there. Scales are finite, so moving
        # the exponent's bits and bias converts them.
        bits = b.op(f"zext <{lanes} x i16> {b.op(f'load <{lanes} x i16>, ptr {at}, align 8')} to <{lanes} x i32>")
        moved = b.op(f"shl <{lanes} x i32> {b.op(f'and <{lanes} x i32> {bits}, splat (i32 32767)')}, splat (i32 13)")
        small = b.op(f"bitcast <{lanes} x i32> {moved} to <{lanes} x float>")
        size = b.op(f"fmul <{lanes} x float> {small}, splat (float 0x46F0000000000000)")  # 2^112
        sign = b.op(f"shl <{lanes} x i32> {b.op(f'and <{lanes} x i32> {bits}, splat (i32 32768)')}, splat (i32 16)")
        joined = b.op(f"or <{lanes} x i32> {b.op(f'bitcast <{lanes} x float> {size} to <{lanes} x i32>')}, {sign}")
        return b.op(f"bitcast <{lanes} x i32> {joined} to <{lanes} x float>")

    def _small(self, start: str, offset: int, extend: str, output: str | int) -> str:
        """A small integer of each output of a vector, as float."""
        b, lanes = self._b, self._lanes
        at = b.at("i8", b.at("i8", start, offset), output)
        wide = b.op(f"{extend} <{lanes} x i8> {b.op(f'load <{lanes} x i8>, ptr {at}, align 4')} to {self._b.integers}")
        return b.op(f"sitofp {self._b.integers} {wide} to {self._b.floats}")

    def _line(self, start: str, offset: int, output: str | int) -> str:
        at = self._b.at("i32", self._b.at("i8", start, offset), output)
        return self._b.op(f"load <{self._bytes} x i8>, ptr {at}, align {self._bytes}")

    def _or(self, a: str, b: str) -> str:
        return self._b.op(f"or <{self._bytes} x i8> {a}, {b}")

    def _shift(self, value: str, left: int) -> str:
        """Shift 16-bit lanes (bytes have no shift of their own); the caller masks what crosses from the other byte."""
        b, size = self._b, self._bytes
        wide = b.op(f"bitcast <{size} x i8> {value} to <{size // 2} x i16>")
        moved = b.op(f"{'shl' if left > 0 else 'lshr'} <{size // 2} x i16> {wide}, splat (i16 {abs(left)})")
        return b.op(f"bitcast <{size // 2} x i16> {moved} to <{size} x i8>")

"""Generates the matrix-multiplication kernels as LLVM IR, for this processor's vector instructions.

There is one function per format: `run(segment, call, begin, end)` multiplies output groups `begin` to `end` with all
activation rows, up to eight rows at a time, so that weights are unpacked once for those rows. A row's sums are always
formed in the same order: integers within a block of 32 inputs, which are exact, then one fused multiply-add in float32
per block. So a row's result does not depend on the rows next to it.

Dot products multiply unsigned weights by signed activations, four to an int32 lane: `vpdpbusd` with AVX-512 VNNI or
AVX-VNNI, `vpmaddubsw` and `vpmaddwd` with AVX2, `sdot` on ARM, and plain multiplications elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from model.nn.cpu.block_formats import BLOCK, FORMATS, LINE, ROWS, BlockFormat

Isa = Literal["avx512vnni", "avxvnni", "avx2", "sdot", "portable"]

TILE = 8
"""Activation rows multiplied at a time at most. Their sums and a block of weights fit into 32 vector registers."""

PREFETCH = 4096
"""Bytes ahead of the weights being read. Without it the hardware's own prefetching reached 19 of 24 GB/s."""

SEGMENT = ("kernel", "weights", "records", "outputs", "first_output", "groups", "groups_per_chunk", "first_chunk")
"""64-bit fields that describe a packed matrix: the addresses of its kernel and its weights, records per group, outputs,
the column of its first output in the result, and how its groups are divided into chunks (`team.py`)."""

CALL = ("x", "x_scale", "x_sum", "out", "rows", "x_stride", "block_stride", "out_stride")
"""64-bit fields that describe activations and result: addresses of the activations [rows, inputs] int8, their scales
[rows, blocks] float32, their negated sums (SUMS) and the result [rows, outputs] float32; the number of rows; the
strides of a row in elements."""

SUMS = 3
"""Numbers per block that offsets and minimums are multiplied by: minus the sum of its activations, and minus the sum of
each half."""

POINTERS = ("kernel", "weights", "x", "x_scale", "x_sum", "out")


@dataclass(frozen=True)
class Target:
    """How vectors are computed on a processor.

    Attributes:
        lanes: int32 lanes of a vector; a group's 16 outputs take 16 / lanes passes.
        features: what LLVM may use besides the baseline.
    """

    isa: Isa
    lanes: int
    features: str


TARGETS: dict[Isa, Target] = {
    "avx512vnni": Target("avx512vnni", 16, "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512vnni,+f16c,+fma,+avx2"),
    "avxvnni": Target("avxvnni", 8, "+avx2,+avxvnni,+f16c,+fma"),
    "avx2": Target("avx2", 8, "+avx2,+f16c,+fma"),
    "sdot": Target("sdot", 4, "+neon,+dotprod,+fullfp16"),
    "portable": Target("portable", 4, ""),
}


class _Body:
    """Instructions of a function under construction; every value gets a new name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def op(self, text: str) -> str:
        """Append an instruction and return its result's name."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")


def module_text(target: Target, names: Sequence[str] = tuple(FORMATS)) -> str:
    """The IR of all kernels for a processor: `run_<format>` for each of the formats `names`."""
    parts = [_DECLARATIONS]
    for name in names:
        form = FORMATS[name]
        parts += [_Tile(form, target, rows).text() for rows in range(1, TILE + 1)]
        parts.append(_run(form, target))
    features = f' "target-features"="{target.features}"' if target.features else ""
    width = ' "prefer-vector-width"="512"' if target.lanes == 16 else ""
    parts.append(f"attributes #0 = {{ nounwind{features}{width} }}")
    return "\n".join(parts)


_DECLARATIONS = """
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, i32, <16 x i1>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, i32, <8 x i1>)
declare void @llvm.masked.store.v4f32.p0(<4 x float>, ptr, i32, <4 x i1>)
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <64 x i8>, <64 x i8>)
declare <8 x i32> @llvm.x86.avx512.vpdpbusd.256(<8 x i32>, <32 x i8>, <32 x i8>)
declare <16 x i16> @llvm.x86.avx2.pmadd.ub.sw(<32 x i8>, <32 x i8>)
declare <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)
declare <4 x i32> @llvm.aarch64.neon.sdot.v4i32.v16i8(<4 x i32>, <16 x i8>, <16 x i8>)
"""


class _Tile:
    """`tile_<format>_<rows>`: one pass of one group with a fixed number of activation rows."""

    def __init__(self, form: BlockFormat, target: Target, rows: int) -> None:
        self._form, self._target, self._rows = form, target, rows
        self._lanes, self._bytes = target.lanes, 4 * target.lanes
        self._b = _Body()

    def text(self) -> str:
        b, form, lanes = self._b, self._form, self._lanes
        sums = [f"%sum{r}" for r in range(self._rows)]
        b.do("br label %record")
        b.label("record")
        b.lines.append("  %n = phi i64 [0, %entry], [%n.next, %record.end]")
        for name in sums:
            b.lines.append(
                f"  {name}.record = phi <{lanes} x float> [zeroinitializer, %entry], [{name}.next, %record.end]"
            )
        record = b.op(f"mul i64 %n, {form.record_bytes}")
        b.lines.append(f"  %w = getelementptr i8, ptr %weights, i64 {record}")
        factors = [self._float16("%w", 2 * ROWS * n) for n in range({"super": 1, "super_min": 2}.get(form.layout, 0))]
        b.lines.append(f"  %first.block = mul i64 %n, {form.record_blocks}")
        b.do("br label %block")
        # A loop, not eight copies of its body: LLVM would move all their prefetches to the top, more than a processor
        # tracks.
        b.label("block")
        b.lines.append("  %k = phi i64 [0, %record], [%k.next, %block]")
        for name in sums:
            b.lines.append(f"  {name} = phi <{lanes} x float> [{name}.record, %record], [{name}.next, %block]")
        for name, value in zip(sums, self._block(factors, sums), strict=True):
            b.lines.append(f"  {name}.next = bitcast <{lanes} x float> {value} to <{lanes} x float>")
        b.lines.append("  %k.next = add i64 %k, 1")
        more = b.op(f"icmp ult i64 %k.next, {form.record_blocks}")
        b.do(f"br i1 {more}, label %block, label %record.end")
        b.label("record.end")
        b.lines.append("  %n.next = add i64 %n, 1")
        more = b.op("icmp ult i64 %n.next, %records")
        b.do(f"br i1 {more}, label %record, label %end")
        b.label("end")
        self._store()
        b.do("ret void")
        head = (
            f"define internal void @tile_{form.name}_{self._rows}"
            "(ptr %weights, ptr %x, ptr %x_scale, ptr %x_sum, ptr %out, i64 %records, "
            "i64 %x_stride, i64 %block_stride, i64 %out_stride, i64 %first, i64 %valid) #0 {\nentry:"
        )
        return "\n".join((head, *b.lines, "}"))

    def _block(self, factors: list[str], sums: list[str]) -> list[str]:
        """Add block %k of the record to the sums of all rows."""
        b, form, lanes = self._b, self._form, self._lanes
        start = b.op(f"mul i64 %k, {form.block_bytes}")
        start = b.op(f"add i64 {start}, {form.header_bytes}")
        block = b.op(f"getelementptr i8, ptr %w, i64 {start}")
        for line in range(form.block_bytes // LINE):
            self._prefetch(block, line)
        header = b.op(f"getelementptr i8, ptr %w, i64 {b.op(f'mul i64 %k, {LINE}')}")
        self._prefetch(header, 0)
        scales, minimums = self._scales(factors)
        vectors = self._vectors(block)
        if form.offset:
            minimums = [b.op(f"fmul <{lanes} x float> {scale}, splat (float {float(form.offset)})") for scale in scales]
        at = b.op("add i64 %first.block, %k")
        start = b.op(f"mul i64 {at}, {BLOCK}")
        out = []
        for r, total in enumerate(sums):
            row = b.op(f"mul i64 %x_stride, {r}")
            x = b.op(f"getelementptr i8, ptr %x, i64 {b.op(f'add i64 {row}, {start}')}")
            entry = b.op(f"add i64 {b.op(f'mul i64 %block_stride, {r}')}, {at}")
            x_scale = self._splat("float", self._load("float", "%x_scale", entry))
            parts = b.op(f"getelementptr float, ptr %x_sum, i64 {b.op(f'mul i64 {entry}, {SUMS}')}")
            for n, (scale, minimum) in enumerate(zip(scales, minimums, strict=True)):
                count = 8 // len(scales)
                dot = self._dots(x, vectors[n * count : (n + 1) * count], n * count)
                value = b.op(f"sitofp <{lanes} x i32> {dot} to <{lanes} x float>")
                total = self._fma(value, b.op(f"fmul <{lanes} x float> {scale}, {x_scale}"), total)
                x_sum = self._load("float", parts, str(n + 1 if len(scales) == 2 else 0))
                total = self._fma(minimum, self._splat("float", x_sum), total)
            out.append(total)
        return out

    def _load(self, kind: str, base: str, index: str) -> str:
        return self._b.op(f"load {kind}, ptr {self._b.op(f'getelementptr {kind}, ptr {base}, i64 {index}')}")

    def _prefetch(self, address: str, line: int) -> None:
        b = self._b
        ahead = b.op(f"getelementptr i8, ptr {address}, i64 {PREFETCH + LINE * line}")
        b.do(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")

    def _scales(self, factors: list[str]) -> tuple[list[str], list[str]]:
        """The scales of block %k, two where half blocks have their own, and as many minimums if the format has them."""
        b, form, lanes = self._b, self._form, self._lanes
        if form.layout.startswith("pair"):
            size = 2 * ROWS * (2 if form.has_minimum else 1)
            here = b.op(f"getelementptr i8, ptr %w, i64 {b.op(f'mul i64 %k, {size}')}")
            return [self._float16(here, 0)], [self._float16(here, 2 * ROWS)] if form.has_minimum else []
        if form.layout == "super":
            here = b.op(f"getelementptr i8, ptr %w, i64 {b.op(f'mul i64 %k, {2 * ROWS}')}")
            parts = [self._small(here, LINE + n * ROWS, "sext") for n in range(2)]
            return [b.op(f"fmul <{lanes} x float> {factors[0]}, {part}") for part in parts], []
        here = b.op(f"getelementptr i8, ptr %w, i64 {b.op(f'mul i64 %k, {ROWS}')}")
        parts = [self._small(here, LINE, "zext"), self._small(here, 3 * LINE, "zext")]
        scale, minimum = (
            b.op(f"fmul <{lanes} x float> {factor}, {part}") for factor, part in zip(factors, parts, strict=True)
        )
        return [scale], [minimum]

    def _float16(self, weights: str, offset: int) -> str:
        """A scale of each output row in this pass."""
        b, lanes = self._b, self._lanes
        base = b.op(f"getelementptr i8, ptr {weights}, i64 {offset}")
        at = b.op(f"getelementptr half, ptr {base}, i64 %first")
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

    def _small(self, weights: str, offset: int, extend: str) -> str:
        """A small integer of each output row in this pass, as float."""
        b, lanes = self._b, self._lanes
        base = b.op(f"getelementptr i8, ptr {weights}, i64 {offset}")
        at = b.op(f"getelementptr i8, ptr {base}, i64 %first")
        byte = b.op(f"load <{lanes} x i8>, ptr {at}, align 4")
        wide = b.op(f"{extend} <{lanes} x i8> {byte} to <{lanes} x i32>")
        return b.op(f"sitofp <{lanes} x i32> {wide} to <{lanes} x float>")

    def _line(self, weights: str, offset: int) -> str:
        b = self._b
        base = b.op(f"getelementptr i8, ptr {weights}, i64 {offset}")
        at = b.op(f"getelementptr i32, ptr {base}, i64 %first")
        return b.op(f"load <{self._bytes} x i8>, ptr {at}, align {self._bytes}")

    def _vectors(self, block: str) -> list[str]:
        """The eight vectors of a block: quantized weights [outputs of this pass, 4 inputs] as bytes."""
        b, form, size = self._b, self._form, self._bytes
        if form.bits == 8:
            return [self._line(block, LINE * n) for n in range(8)]
        lines = [self._line(block, LINE * n) for n in range(4)]
        low = [self._and(line, 15) for line in lines] + [self._and(self._shift(line, -4), 15) for line in lines]
        if form.bits == 4:
            return low
        out = []
        upper = [self._line(block, LINE * (4 + n)) for n in range(form.bits - 4)]
        for n, nibbles in enumerate(low):
            if form.bits == 5:
                bits = self._and(self._shift(upper[0], 4 - n), 16)
            else:
                bits = self._and(self._shift(upper[n // 4], 4 - 2 * (n % 4)), 48)
            out.append(b.op(f"or <{size} x i8> {nibbles}, {bits}"))
        return out

    def _and(self, value: str, mask: int) -> str:
        return self._b.op(f"and <{self._bytes} x i8> {value}, splat (i8 {mask})")

    def _shift(self, value: str, left: int) -> str:
        """Shift 16-bit lanes (bytes have no shift of their own); the caller masks what crosses from the other byte."""
        if not left:
            return value
        b, size = self._b, self._bytes
        wide = b.op(f"bitcast <{size} x i8> {value} to <{size // 2} x i16>")
        name = "shl" if left > 0 else "lshr"
        moved = b.op(f"{name} <{size // 2} x i16> {wide}, splat (i16 {abs(left)})")
        return b.op(f"bitcast <{size // 2} x i16> {moved} to <{size} x i8>")

    def _dots(self, x: str, vectors: list[str], first: int) -> str:
        """The dot products of vectors with the activations from quad `first` on."""
        b, lanes, size = self._b, self._lanes, self._bytes
        total = "zeroinitializer"
        for n, vector in enumerate(vectors, first):
            quad = b.op(f"load i32, ptr {b.op(f'getelementptr i8, ptr {x}, i64 {4 * n}')}, align 4")
            wide = b.op(f"bitcast <{lanes} x i32> {self._splat('i32', quad)} to <{size} x i8>")
            total = self._dot(total, vector, wide)
        return total

    def _dot(self, total: str, weights: str, x: str) -> str:
        """Add products of unsigned weights and signed activations, four to a lane."""
        b, isa, lanes, size = self._b, self._target.isa, self._lanes, self._bytes
        if isa in ("avx512vnni", "avxvnni"):
            width = 512 if isa == "avx512vnni" else 256
            return b.op(
                f"call <{lanes} x i32> @llvm.x86.avx512.vpdpbusd.{width}"
                f"(<{lanes} x i32> {total}, <{size} x i8> {weights}, <{size} x i8> {x})"
            )
        if isa == "avx2":
            if self._form.bits < 8:
                return b.op(f"add <8 x i32> {total}, {self._pairs(weights, x)}")
            # Pairs of products of 8-bit weights overflow 16 bits, so the weights' upper and lower half are multiplied
            # apart.
            low, high = self._pairs(self._and(weights, 15), x), self._pairs(self._and(self._shift(weights, -4), 15), x)
            return b.op(
                f"add <8 x i32> {b.op(f'add <8 x i32> {total}, {low}')}, {b.op(f'shl <8 x i32> {high}, splat (i32 4)')}"
            )
        if isa == "sdot":
            if self._form.bits < 8:
                return self._sdot(total, weights, x)
            # It multiplies signed numbers, so 8-bit weights are split here, too.
            low, high = self._and(weights, 15), self._and(self._shift(weights, -4), 15)
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

    def _pairs(self, weights: str, x: str) -> str:
        b = self._b
        pairs = b.op(f"call <16 x i16> @llvm.x86.avx2.pmadd.ub.sw(<32 x i8> {weights}, <32 x i8> {x})")
        return b.op(f"call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> {pairs}, <16 x i16> splat (i16 1))")

    def _sdot(self, total: str, weights: str, x: str) -> str:
        operands = f"<4 x i32> {total}, <16 x i8> {weights}, <16 x i8> {x}"
        return self._b.op(f"call <4 x i32> @llvm.aarch64.neon.sdot.v4i32.v16i8({operands})")

    def _fma(self, a: str, b_: str, c: str) -> str:
        n = self._lanes
        if self._target.isa == "portable":
            return self._b.op(f"fadd <{n} x float> {self._b.op(f'fmul <{n} x float> {a}, {b_}')}, {c}")
        return self._b.op(
            f"call <{n} x float> @llvm.fma.v{n}f32(<{n} x float> {a}, <{n} x float> {b_}, <{n} x float> {c})"
        )

    def _splat(self, kind: str, value: str) -> str:
        b, lanes = self._b, self._lanes
        one = b.op(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i32 0")
        return b.op(
            f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, <{lanes} x i32> zeroinitializer"
        )

    def _store(self) -> None:
        """Write the sums; the last group of a matrix may have fewer than 16 outputs."""
        b, lanes = self._b, self._lanes
        places = ", ".join(f"i64 {n}" for n in range(lanes))
        index = b.op(f"add <{lanes} x i64> {self._splat('i64', '%first')}, <{places}>")
        mask = b.op(f"icmp ult <{lanes} x i64> {index}, {self._splat('i64', '%valid')}")
        for r in range(self._rows):
            row = b.op(f"add i64 {b.op(f'mul i64 %out_stride, {r}')}, %first")
            at = b.op(f"getelementptr float, ptr %out, i64 {row}")
            operands = f"<{lanes} x float> %sum{r}.next, ptr {at}, i32 4, <{lanes} x i1> {mask}"
            b.do(f"call void @llvm.masked.store.v{lanes}f32.p0({operands})")


def _run(form: BlockFormat, target: Target) -> str:
    """`run_<format>`: a range of groups, each with all activation rows."""
    b = _Body()
    fields = {}
    for structure, names in (("%segment", SEGMENT), ("%call", CALL)):
        for n, field in enumerate(names):
            at = b.op(f"getelementptr i64, ptr {structure}, i64 {n}")
            fields[field] = b.op(f"load {'ptr' if field in POINTERS else 'i64'}, ptr {at}")
    size = b.op(f"mul i64 {fields['records']}, {form.record_bytes}")
    b.do("br label %group")
    b.label("group")
    b.lines.append("  %g = phi i64 [%begin, %entry], [%g.next, %group.end]")
    weights = b.op(f"getelementptr i8, ptr {fields['weights']}, i64 {b.op(f'mul i64 %g, {size}')}")
    output = b.op(f"mul i64 %g, {ROWS}")
    column = b.op(f"add i64 {output}, {fields['first_output']}")
    out = b.op(f"getelementptr float, ptr {fields['out']}, i64 {column}")
    valid = b.op(f"sub i64 {fields['outputs']}, {output}")
    b.do("br label %rows")
    b.label("rows")
    b.lines.append("  %r = phi i64 [0, %group], [%r.next, %rows.end]")
    left = b.op(f"sub i64 {fields['rows']}, %r")
    x = b.op(f"getelementptr i8, ptr {fields['x']}, i64 {b.op('mul i64 %r, ' + fields['x_stride'])}")
    entry = b.op(f"mul i64 %r, {fields['block_stride']}")
    x_scale = b.op(f"getelementptr float, ptr {fields['x_scale']}, i64 {entry}")
    x_sum = b.op(f"getelementptr i32, ptr {fields['x_sum']}, i64 {b.op(f'mul i64 {entry}, {SUMS}')}")
    out_r = b.op(f"getelementptr float, ptr {out}, i64 {b.op('mul i64 %r, ' + fields['out_stride'])}")
    cases = " ".join(f"i64 {rows}, label %tile{rows}" for rows in range(1, TILE))
    b.do(f"switch i64 {left}, label %tile{TILE} [{cases}]")
    for rows in range(1, TILE + 1):
        b.label(f"tile{rows}")
        for first in range(0, ROWS, target.lanes):
            b.do(
                f"call void @tile_{form.name}_{rows}(ptr {weights}, ptr {x}, ptr {x_scale}, ptr {x_sum}, ptr {out_r}, "
                f"i64 {fields['records']}, i64 {fields['x_stride']}, i64 {fields['block_stride']}, "
                f"i64 {fields['out_stride']}, i64 {first}, i64 {valid})"
            )
        b.do("br label %rows.end")
    b.label("rows.end")
    steps = ", ".join(f"[{rows}, %tile{rows}]" for rows in range(1, TILE + 1))
    b.lines.append(f"  %step = phi i64 {steps}")
    b.lines.append("  %r.next = add i64 %r, %step")
    more = b.op(f"icmp ult i64 %r.next, {fields['rows']}")
    b.do(f"br i1 {more}, label %rows, label %group.end")
    b.label("group.end")
    b.lines.append("  %g.next = add i64 %g, 1")
    again = b.op("icmp ult i64 %g.next, %end")
    b.do(f"br i1 {again}, label %group, label %done")
    b.label("done")
    b.do("ret void")
    return "\n".join(
        (f"define void @run_{form.name}(ptr %segment, ptr %call, i64 %begin, i64 %end) #0 {{\nentry:", *b.lines, "}")
    )

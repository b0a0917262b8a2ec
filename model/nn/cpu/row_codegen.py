"""Generates the kernels between the matrix multiplications of a forward pass as LLVM IR.

Each works row by row and always in the same order, so a row's result is bit-identical whatever else is in the batch:
drafts can share a forward pass with the text they are verified against. The arrays must not overlap.

What they compute is quantized to int8 in blocks of 32 (`linear.QuantizedActivations`), while it is in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from model.nn.cpu.block_formats import BLOCK
from model.nn.cpu.ir import KernelBody, constant, splat
from model.nn.cpu.target import Target
from model.nn.cpu.team import Team
from model.nn.cpu.tile import SUMS
from model.nn.kv_cache import group_size, record_bytes

_QUANTIZED = ("levels", "scale", "minimum", "sums")

QUANTIZE = ("x", *_QUANTIZED, "rows")
"""64-bit fields that describe a call of each kernel: addresses of arrays, and numbers. x: [rows, size] float32; the
others as in `linear.QuantizedActivations`."""

NORMALIZE = ("x", "product", "bias", "weight", "normal", "eps", *_QUANTIZED, "rows")
"""x, product, normal: [rows, size]; bias, weight: [size]; eps: [1]; float32."""

SWIGLU = ("product", "bias", "inner", *_QUANTIZED, "rows")
"""product: [rows, 2 · size]; bias: [2 · size]; inner: [rows, size]; float32."""

SPLIT = (
    "product", "bias", "norm", "cos", "sin", "query_scale", "query", "keys", "values", "eps",
    "heads", "kv_heads", "capacity", "past",
)  # fmt: skip
"""product: [rows, (heads + 2 kv_heads) · size]; bias: one row's size; norm: [heads + kv_heads, size]; cos, sin: [rows,
size], the first half of `sin` negated; query_scale: [rows]; query: [rows, heads, size]; keys, values: [kv_heads,
capacity, size]; eps: [1]; float32."""

STORE = ("new_keys", "new_values", "keys", "values", "rows", "kv_heads", "capacity", "past")
"""new_keys, new_values: [kv_heads, rows, size] float32; keys, values: the cache, [kv_heads, capacity, record]. The new
ones are written after the `past` ones."""

_MIN_LARGEST = 1e-12

PART = 2048
"""Columns of a row of SwiGLU that are an item of their own, so that threads share a single row."""


def swiglu_parts(size: int) -> int:
    """Items in a row of SwiGLU."""
    return -(-size // PART)


def quantize_kernel(team: Team, size: int) -> int:
    """Address of the kernel that quantizes x; items are rows."""
    return team.kernel(f"quantize_{size}", partial(quantize_text, size))


def normalize_kernel(team: Team, size: int) -> int:
    """Address of the kernel that computes x += product + bias, RMS-normalizes x and quantizes the result; items are
    rows."""
    return team.kernel(f"normalize_{size}", partial(normalize_text, size))


def swiglu_kernel(team: Team, size: int) -> int:
    """Address of the kernel that computes silu(first half) · second half of product + bias, and quantizes it. Items are
    `swiglu_parts` of each row."""
    return team.kernel(f"swiglu_{size}", partial(swiglu_text, size))


def split_kernel(team: Team, size: int, normalized: bool) -> int:
    """Address of the kernel that splits product + bias into queries, keys and values of heads of `size` dimensions.
    Items are rows.

    Queries and keys are RMS-normalized if `normalized`, and rotated by the angles of their positions. Keys and values
    are written after the `past` ones in the cache.
    """
    return team.kernel(f"split_{size}_{int(normalized)}", partial(split_text, size, normalized))


def store_kernel(team: Team, size: int) -> int:
    """Address of the kernel that quantizes keys and values of heads of `size` dimensions to int8 and writes them into
    the cache (`kv_cache.record_bytes` has the layout); items are rows."""
    return team.kernel(f"store_{size}", partial(store_text, size))


class RowBody(KernelBody):
    """A kernel that goes through rows of numbers, under construction."""

    def vector(self, base: str, start: str, count: int) -> str:
        """The first `count` of a vector of numbers from index `start` on; the other lanes are 0."""
        at = self.at("float", base, start)
        if count == self.lanes:
            return self.op(f"load {self.floats}, ptr {at}, align 4")
        mask, name = self._mask(count), f"@llvm.masked.load.v{self.lanes}f32.p0"
        return self.op(f"call {self.floats} {name}(ptr {at}, i32 4, {mask}, {self.floats} zeroinitializer)")

    def store(self, value: str, base: str, start: str, count: int) -> None:
        """Store the first `count` numbers of a vector."""
        at = self.at("float", base, start)
        if count == self.lanes:
            self.do(f"store {self.floats} {value}, ptr {at}, align 4")
        else:
            name = f"@llvm.masked.store.v{self.lanes}f32.p0"
            self.do(f"call void {name}({self.floats} {value}, ptr {at}, i32 4, {self._mask(count)})")

    def binary(self, operation: str, a: str, b: str) -> str:
        """An operation with vectors of float32."""
        return self.op(f"{operation} {self.floats} {a}, {b}")

    def vectors(
        self, name: str, size: int, values: Sequence[str], step: Callable[[str, int, list[str]], Sequence[str]]
    ) -> list[str]:
        """Go through `size` numbers, a vector at a time.

        Args:
            values: vectors that each step takes and returns.
            step: (index of a vector's first number, how many numbers it has, values) → values.
        """
        whole, kept = size // self.lanes, list(values)
        if whole:

            def full(number: str, carried: list[str]) -> Sequence[str]:
                return step(self.mul(number, self.lanes), self.lanes, carried)

            kept = self.loop(name, whole, [self.floats] * len(kept), kept, full)
        if size % self.lanes:
            kept = list(step(str(whole * self.lanes), size % self.lanes, kept))
        return kept

    def blocks(self, name: str, size: int, row: str, compute: Callable[[str, int], str]) -> None:
        """Compute and quantize a row of `size` numbers.

        Args:
            compute: (index of a vector's first number, how many numbers it has) → the vector.
        """
        self.loop_or_skip(name, str(size // BLOCK), lambda number: self.block(number, BLOCK, row, compute))
        if size % BLOCK:
            self.block(str(size // BLOCK), size % BLOCK, row, compute)

    def block(self, number: str, count: int, row: str, compute: Callable[[str, int], str]) -> None:
        """Compute and quantize a block of a row, of which only the first `count` numbers are there."""
        lanes, start = self.lanes, self.mul(number, BLOCK)
        counts = [min(lanes, max(0, count - first)) for first in range(0, BLOCK, lanes)]
        vectors = [
            compute(self.add(start, n * lanes), lane_count) if lane_count else "zeroinitializer"
            for n, lane_count in enumerate(counts)
        ]
        levels, scale = self.levels(vectors)
        entry = self.add(self.mul(number, self.f["rows"]), row)
        to = self.at("i8", self.f["levels"], self.mul(entry, BLOCK))
        for n, one in enumerate(levels):
            narrow = self.op(f"trunc {self.integers} {one} to <{lanes} x i8>")
            self.do(f"store <{lanes} x i8> {narrow}, ptr {self.at('i8', to, n * lanes)}, align 4")
        half = len(levels) // 2
        first, second = self._total(levels[:half]), self._total(levels[half:])
        total = self.op(f"add i32 {first}, {second}")
        sums = self.at("i32", self.f["sums"], self.mul(entry, SUMS))
        for n, one in enumerate((total, first, second)):
            self.do(f"store i32 {self.op(f'sub i32 0, {one}')}, ptr {self.at('i32', sums, n)}")
        negated = self.op(f"fneg float {self.op(f'sitofp i32 {total} to float')}")
        minimum = self.op(f"fmul float {scale}, {negated}")
        self.do(f"store float {scale}, ptr {self.at('float', self.f['scale'], entry)}")
        self.do(f"store float {minimum}, ptr {self.at('float', self.f['minimum'], entry)}")

    def levels(self, vectors: Sequence[str]) -> tuple[list[str], str]:
        """Quantize numbers to int8 with one scale: vectors of levels, -127 to 127, as int32; and the scale."""
        lanes = self.lanes
        magnitudes = [self.op(f"call {self.floats} @llvm.fabs.v{lanes}f32({self.floats} {one})") for one in vectors]
        largest = magnitudes[0]
        for one in magnitudes[1:]:
            largest = self.larger(one, largest)
        top = self.op(f"call nnan float @llvm.vector.reduce.fmax.v{lanes}f32({self.floats} {largest})")
        is_large = self.op(f"fcmp ogt float {top}, {constant(_MIN_LARGEST)}")
        top = self.op(f"select i1 {is_large}, float {top}, float {constant(_MIN_LARGEST)}")
        by = self.splat("float", self.op(f"fdiv float {constant(127)}, {top}"))
        # Adding 128.5 before the fraction is dropped rounds to the nearest integer above -128.
        shifted = [self.fma(one, by, splat(128.5)) for one in vectors]
        levels = [
            self.op(f"sub {self.integers} {self.op(f'fptosi {self.floats} {one} to {self.integers}')}, splat (i32 128)")
            for one in shifted
        ]
        return levels, self.op(f"fdiv float {top}, {constant(127)}")

    def per_root(self, squares: str, size: int) -> str:
        """1 / √(the mean of squares + eps), in every lane; `squares` is a vector of their partial sums."""
        name = f"@llvm.vector.reduce.fadd.v{self.lanes}f32"
        total = self.op(f"call reassoc float {name}(float {constant(0)}, {self.floats} {squares})")
        mean = self.op(f"fdiv float {total}, {constant(size)}")
        positive = self.op(f"fadd float {mean}, {self.load('float', self.f['eps'])}")
        root = self.op(f"call float @llvm.sqrt.f32(float {positive})")
        return self.splat("float", self.op(f"fdiv float {constant(1)}, {root}"))

    def _total(self, vectors: Sequence[str]) -> str:
        total = vectors[0]
        for one in vectors[1:]:
            total = self.op(f"add {self.integers} {total}, {one}")
        return self.op(f"call i32 @llvm.vector.reduce.add.v{self.lanes}i32({self.integers} {total})")

    def _mask(self, count: int) -> str:
        return f"<{self.lanes} x i1> <{', '.join(f'i1 {int(n < count)}' for n in range(self.lanes))}>"


def quantize_text(size: int, target: Target) -> str:
    """The IR of `quantize_kernel`."""
    b = RowBody(f"quantize_{size}", target, QUANTIZE)

    def row(number: str) -> None:
        x = b.at("float", b.f["x"], b.mul(number, size))
        b.blocks("block", size, number, lambda start, count: b.vector(x, start, count))

    b.each_item(row)
    return b.text()


def normalize_text(size: int, target: Target) -> str:
    """The IR of `normalize_kernel`."""
    b = RowBody(f"normalize_{size}", target, NORMALIZE)

    def row(number: str) -> None:
        first = b.mul(number, size)
        x, product, normal = (b.at("float", b.f[name], first) for name in ("x", "product", "normal"))

        def add(start: str, count: int, squares: list[str]) -> Sequence[str]:
            more = b.binary("fadd", b.vector(product, start, count), b.vector(b.f["bias"], start, count))
            value = b.binary("fadd", b.vector(x, start, count), more)
            b.store(value, x, start, count)
            return [b.fma(value, value, squares[0])]

        (squares,) = b.vectors("add", size, ["zeroinitializer"], add)
        by = b.per_root(squares, size)

        def normalized(start: str, count: int) -> str:
            value = b.binary("fmul", b.vector(x, start, count), by)
            value = b.binary("fmul", value, b.vector(b.f["weight"], start, count))
            b.store(value, normal, start, count)
            return value

        b.blocks("block", size, number, normalized)

    b.each_item(row)
    return b.text()


def swiglu_text(size: int, target: Target) -> str:
    """The IR of `swiglu_kernel`."""
    b, parts = RowBody(f"swiglu_{size}", target, SWIGLU), swiglu_parts(size)

    def item(number: str) -> None:
        row, part = b.op(f"udiv i64 {number}, {parts}"), b.op(f"urem i64 {number}, {parts}")
        first = b.mul(row, size)
        gate, inner = b.at("float", b.f["product"], b.mul(first, 2)), b.at("float", b.f["inner"], first)
        up, up_bias = b.at("float", gate, size), b.at("float", b.f["bias"], size)

        def product(start: str, count: int) -> str:
            value = b.binary("fadd", b.vector(gate, start, count), b.vector(b.f["bias"], start, count))
            factor = b.binary("fadd", b.vector(up, start, count), b.vector(up_bias, start, count))
            below = b.binary("fadd", splat(1), b.exp(b.op(f"fneg {b.floats} {value}")))
            value = b.binary("fmul", b.binary("fdiv", value, below), factor)
            b.store(value, inner, start, count)
            return value

        first_block = b.mul(part, PART // BLOCK)
        left = b.op(f"sub i64 {size // BLOCK}, {first_block}")
        is_whole = b.op(f"icmp ugt i64 {left}, {PART // BLOCK}")
        count = b.op(f"select i1 {is_whole}, i64 {PART // BLOCK}, i64 {left}")
        b.loop_or_skip("block", count, lambda n: b.block(b.add(first_block, n), BLOCK, row, product))
        if size % BLOCK:
            is_last = b.op(f"zext i1 {b.op(f'icmp eq i64 {part}, {parts - 1}')} to i64")
            b.loop_or_skip("rest", is_last, lambda _: b.block(str(size // BLOCK), size % BLOCK, row, product))

    b.each_item(item)
    return b.text()


def split_text(size: int, normalized: bool, target: Target) -> str:
    """The IR of `split_kernel`."""
    b, half = RowBody(f"split_{size}_{int(normalized)}", target, SPLIT), size // 2
    f = b.f
    rotated = b.add(f["heads"], f["kv_heads"])
    width = b.mul(b.add(rotated, f["kv_heads"]), size)

    def row(number: str) -> None:
        product = b.at("float", f["product"], b.mul(number, width))
        position, angles = b.add(f["past"], number), b.mul(number, size)
        cos, sin = b.at("float", f["cos"], angles), b.at("float", f["sin"], angles)
        query_scale = b.load("float", f["query_scale"], number)

        def cached(cache: str, head: str) -> str:
            return b.at("float", f[cache], b.mul(b.add(b.mul(head, f["capacity"]), position), size))

        def rotate(head: str) -> None:
            first = b.mul(head, size)
            own = b.at("float", product, first)
            bias, norm = b.at("float", f["bias"], first), b.at("float", f["norm"], first)
            is_query = b.op(f"icmp ult i64 {head}, {f['heads']}")
            query = b.at("float", f["query"], b.mul(b.add(b.mul(number, f["heads"]), head), size))
            key = cached("keys", b.op(f"sub i64 {head}, {f['heads']}"))
            to = b.op(f"select i1 {is_query}, ptr {query}, ptr {key}")
            factor = b.splat("float", b.op(f"select i1 {is_query}, float {query_scale}, float {constant(1)}"))

            def value(start: str, count: int) -> str:
                return b.binary("fadd", b.vector(own, start, count), b.vector(bias, start, count))

            by = ""
            if normalized:

                def add(start: str, count: int, squares: list[str]) -> Sequence[str]:
                    one = value(start, count)
                    return [b.fma(one, one, squares[0])]

                (squares,) = b.vectors("squares", size, ["zeroinitializer"], add)
                by = b.per_root(squares, size)

            def normal(start: str, count: int) -> str:
                one = value(start, count)
                return b.binary("fmul", b.binary("fmul", one, by), b.vector(norm, start, count)) if normalized else one

            def turn(start: str, count: int, _: list[str]) -> Sequence[str]:
                after = b.add(start, half)
                low, high = normal(start, count), normal(after, count)
                for place, one, other in ((start, low, high), (after, high, low)):
                    turned = b.binary("fmul", one, b.vector(cos, place, count))
                    turned = b.fma(other, b.vector(sin, place, count), turned)
                    b.store(b.binary("fmul", turned, factor), to, place, count)
                return ()

            b.vectors("turn", half, (), turn)

        b.loop_or_skip("head", rotated, rotate)

        def keep(head: str) -> None:
            first, to = b.mul(b.add(rotated, head), size), cached("values", head)
            own, bias = b.at("float", product, first), b.at("float", f["bias"], first)

            def copy(start: str, count: int, _: list[str]) -> Sequence[str]:
                b.store(b.binary("fadd", b.vector(own, start, count), b.vector(bias, start, count)), to, start, count)
                return ()

            b.vectors("copy", size, (), copy)

        b.loop_or_skip("value", f["kv_heads"], keep)

    b.each_item(row)
    return b.text()


def store_text(size: int, target: Target) -> str:
    """The IR of `store_kernel`."""
    b, group, record = RowBody(f"store_{size}", target, STORE), group_size(size), record_bytes(size)
    f = b.f

    def row(number: str) -> None:
        position = b.add(f["past"], number)

        def head(index: str) -> None:
            source = b.mul(b.add(b.mul(index, f["rows"]), number), size)
            place = b.mul(b.add(b.mul(index, f["capacity"]), position), record)
            for name in ("keys", "values"):
                new, to = b.at("float", f[f"new_{name}"], source), b.at("i8", f[name], place)
                for start in range(0, size, group):
                    _store_group(b, new, to, start, group, size)

        b.loop_or_skip("head", f["kv_heads"], head)

    b.each_item(row)
    return b.text()


def _store_group(b: RowBody, new: str, to: str, start: int, group: int, size: int) -> None:
    """Quantize and store the numbers of a group, and its scale."""
    counts = [min(b.lanes, group - first) for first in range(0, group, b.lanes)]
    levels, scale = b.levels([b.vector(new, str(start + n * b.lanes), count) for n, count in enumerate(counts)])
    for n, (one, count) in enumerate(zip(levels, counts, strict=True)):
        narrow = b.op(f"trunc {b.integers} {one} to <{b.lanes} x i8>")
        first = ", ".join(f"i32 {lane}" for lane in range(count))
        kept = b.op(f"shufflevector <{b.lanes} x i8> {narrow}, <{b.lanes} x i8> poison, <{count} x i32> <{first}>")
        b.do(f"store <{count} x i8> {kept}, ptr {b.at('i8', to, start + n * b.lanes)}, align 1")
    b.do(f"store float {scale}, ptr {b.at('i8', to, size + 4 * (start // group))}, align 1")

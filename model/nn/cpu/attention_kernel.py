"""Generates the kernel of grouped-query attention as LLVM IR.

It takes a tile of queries at a time, each in a lane of its own: the query heads that share a key head, of one row after
another. A query's sums are formed key by key in the same order, and a key that it does not attend to adds nothing. So a
row's result depends neither on the rows next to it nor on keys that it does not attend to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from model.nn.cpu.ir import KernelBody, constant, splat
from model.nn.cpu.target import Target
from model.nn.kv_cache import group_size, record_bytes

CALL = ("query", "keys", "values", "new", "reach", "out", "rows", "heads", "kv_heads", "capacity", "past")
"""64-bit fields that describe a call: addresses of queries [rows, heads, head_dim], keys and values [kv_heads,
capacity, head_dim], float32 or an int8 cache's records (`kv_cache.record_bytes`), and the result, float32; of which new
rows each row attends to [rows, rows], bool; of how many keys each row and those before it need [rows], int64; and
sizes."""

_MASKED = -(2.0**127)
"""The score of a key that a row does not attend to."""


def kernel_name(size: int, vectors: int, *, quantized: bool = False) -> str:
    """The name of the kernel for heads of `size` dimensions, and tiles of `vectors` vectors of queries.

    Args:
        quantized: whether the cache is int8.
    """
    return f"attend_{'int8_' if quantized else ''}{size}_{vectors}"


def kernel_text(size: int, vectors: int, target: Target, *, quantized: bool = False) -> str:
    """The IR of a kernel, `attend(segment, call, begin, end)`: some tiles, number key head · tiles per head + tile."""
    kind = _QuantizedAttention if quantized else _Attention
    return kind(size, vectors, target).text()


class _Attention:
    quantized = False

    def __init__(self, size: int, vectors: int, target: Target) -> None:
        self._size, self._vectors, self._lanes = size, vectors, target.lanes
        self._width = vectors * target.lanes
        """Queries in a tile. A buffer has this many numbers per key or dimension."""
        self._rows = target.registers // 4
        """Keys or dimensions whose sums are kept in registers, for each vector of queries."""
        self._b = KernelBody(kernel_name(size, vectors, quantized=self.quantized), target, CALL)
        self._f = self._b.f

    @property
    def _record_bytes(self) -> int:
        """Bytes of a key, or a value, of one head."""
        return 4 * self._size

    def text(self) -> str:
        """The kernel's IR."""
        b, f, width = self._b, self._f, self._width
        self._query = b.op(f"alloca [{self._size * width} x float], align 64")
        self._mask_rows = b.op(f"alloca [{width} x i64], align 64")
        score_bytes = b.mul(b.add(f["past"], f["rows"]), 4 * width)
        self._scores = b.op(f"call ptr @aligned_alloc(i64 64, i64 {self._rounded_up(score_bytes)})")
        self._group = b.op(f"udiv i64 {f['heads']}, {f['kv_heads']}")
        queries = b.mul(f["rows"], self._group)
        tiles = b.op(f"udiv i64 {b.add(queries, width - 1)}, {width}")
        head_bytes = b.mul(f["capacity"], self._record_bytes)

        def item(number: str) -> None:
            head, first = b.op(f"udiv i64 {number}, {tiles}"), b.mul(b.op(f"urem i64 {number}, {tiles}"), width)
            left = b.op(f"sub i64 {queries}, {first}")
            count = b.op(f"select i1 {b.op(f'icmp ult i64 {left}, {width}')}, i64 {left}, i64 {width}")
            start = b.mul(head, head_bytes)
            self._tile(head, first, count, *(b.at("i8", f[name], start) for name in ("keys", "values")))

        b.each_item(item)
        b.do(f"call void @free(ptr {self._scores})")
        return b.text()

    def _tile(self, head: str, first: str, count: str, keys: str, values: str) -> None:
        """The queries from number `first` on that share a key head."""
        b, width = self._b, self._width
        last = b.op(f"udiv i64 {b.add(first, b.add(count, -1))}, {self._group}")
        until = b.load("i64", self._f["reach"], last)
        self._load_queries(head, first, count)
        in_tiles = b.mul(b.op(f"udiv i64 {until}, {self._rows}"), self._rows)
        self._multiply_keys("scores", self._rows, "0", in_tiles, keys)
        self._multiply_keys("score", 1, in_tiles, until, keys)
        self._mask(count, until)
        totals = self._softmax(until)
        whole = self._size // self._rows * self._rows
        self._mix_values("mixes", self._rows, 0, whole, values, until, totals)
        self._mix_values("mix", 1, whole, self._size, values, until, totals)

        def store(lane: str) -> None:
            to = self._address(self._f["out"], head, b.add(first, lane))
            self._each_dimension("store", lambda n: self._copy(self._query, b.add(b.mul(n, width), lane), to, n))

        b.loop_or_skip("store.lane", count, store)

    def _load_queries(self, head: str, first: str, count: str) -> None:
        """Copy queries, scaled, to the buffer [head_dim, width], and the places of their rows in the mask."""
        b, width, scale = self._b, self._width, constant(self._size**-0.5)
        zeros = ["zeroinitializer"] * self._vectors
        self._each_dimension("clear", lambda n: self._store_vectors(self._query, n, zeros))

        def load(lane: str) -> None:
            query = b.add(first, lane)
            source = self._address(self._f["query"], head, query)
            mask_row = b.mul(b.op(f"udiv i64 {query}, {self._group}"), self._f["rows"])
            b.do(f"store i64 {mask_row}, ptr {b.at('i64', self._mask_rows, lane)}")

            def dimension(n: str) -> None:
                value = b.op(f"fmul float {b.load('float', source, n)}, {scale}")
                b.do(f"store float {value}, ptr {b.at('float', self._query, b.add(b.mul(n, width), lane))}")

            self._each_dimension("load", dimension)

        b.loop_or_skip("load.lane", count, load)

    def _multiply_keys(self, name: str, rows: int, begin: str, end: str, keys: str) -> None:
        """The scores of some keys, `rows` at a time."""
        b = self._b
        steps = b.op(f"udiv i64 {b.op(f'sub i64 {end}, {begin}')}, {rows}")

        def tile(number: str) -> None:
            key = b.add(begin, b.mul(number, rows))
            start = self._key_numbers(keys, key, rows)

            def factors(n: str) -> list[str]:
                first = b.at("float", start, n)
                return [b.load("float", first, row * self._size) for row in range(rows)]

            sums = self._outer(f"{name}.sum", rows, self._size, factors, self._query)
            for row in range(rows):
                part = sums[row * self._vectors : (row + 1) * self._vectors]
                self._store_vectors(self._scores, b.add(key, row), part)

        b.loop_or_skip(name, steps, tile)

    def _mix_values(
        self, name: str, rows: int, begin: int, end: int, values: str, until: str, totals: Sequence[str]
    ) -> None:
        """The weighted means of some dimensions of the values, `rows` at a time; into the buffer of the queries."""
        b = self._b

        def tile(number: str) -> None:
            dimension = b.add(b.mul(number, rows), begin)
            sums = self._outer(
                f"{name}.sum", rows, until, lambda n: self._value_numbers(values, n, dimension, rows), self._scores
            )
            for row in range(rows):
                part = sums[row * self._vectors : (row + 1) * self._vectors]
                means = [b.op(f"fdiv {b.floats} {one}, {total}") for one, total in zip(part, totals, strict=True)]
                self._store_vectors(self._query, b.add(dimension, row), means)

        if begin < end:
            b.loop_or_skip(name, str((end - begin) // rows), tile)

    def _key_numbers(self, keys: str, key: str, rows: int) -> str:
        """The address of the numbers [rows, size] of some keys."""
        return self._b.at("float", keys, self._b.mul(key, self._size))

    def _value_numbers(self, values: str, key: str, dimension: str, rows: int) -> list[str]:
        """The numbers of `rows` dimensions of a value, from `dimension` on."""
        b = self._b
        start = b.at("float", values, b.add(b.mul(key, self._size), dimension))
        return [b.load("float", start, row) for row in range(rows)]

    def _outer(
        self, name: str, rows: int, count: int | str, factors: Callable[[str], list[str]], vectors: str
    ) -> list[str]:
        """Σ over n < count of a[row, n] · vectors[n], for each row and vector of queries.

        Args:
            factors: n → the numbers a[row, n] of all rows.
            vectors: address of a buffer [count, width].
        """
        b = self._b

        def step(n: str, sums: list[str]) -> Sequence[str]:
            others = self._load_vectors(vectors, n)
            out: list[str] = []
            for number in factors(n):
                factor = b.splat("float", number)
                out += [b.fma(factor, other, sums[len(out) + v]) for v, other in enumerate(others)]
            return out

        sums = rows * self._vectors
        return b.loop(name, count, [b.floats] * sums, ["zeroinitializer"] * sums, step)

    def _mask(self, count: str, until: str) -> None:
        """Replace the scores of new keys that a row does not attend to."""
        b, width, past = self._b, self._width, self._f["past"]

        def key(number: str) -> None:
            of_key = b.at("float", self._scores, b.mul(b.add(past, number), width))

            def lane(n: str) -> None:
                seen = b.load("i8", self._f["new"], b.add(b.load("i64", self._mask_rows, n), number))
                score = b.load("float", of_key, n)
                masked = b.op(f"select i1 {b.op(f'icmp ne i8 {seen}, 0')}, float {score}, float {constant(_MASKED)}")
                b.do(f"store float {masked}, ptr {b.at('float', of_key, n)}")

            b.loop_or_skip("mask.lane", count, lane)

        b.loop_or_skip("mask", b.op(f"sub i64 {until}, {past}"), key)

    def _softmax(self, until: str) -> list[str]:
        """Replace scores by e^(score - the largest one); returns the sums of those weights."""
        b, vectors = self._b, self._vectors
        masked = splat(_MASKED)

        def larger(n: str, tops: list[str]) -> Sequence[str]:
            return [b.larger(one, top) for one, top in zip(self._load_vectors(self._scores, n), tops, strict=True)]

        tops = b.loop("top", until, [b.floats] * vectors, [masked] * vectors, larger)

        def weigh(n: str, totals: list[str]) -> Sequence[str]:
            weights = []
            for one, top in zip(self._load_vectors(self._scores, n), tops, strict=True):
                weight = b.exp(b.op(f"fsub {b.floats} {one}, {top}"))
                seen = b.op(f"fcmp one {b.floats} {one}, {masked}")
                weights.append(
                    b.op(f"select <{self._lanes} x i1> {seen}, {b.floats} {weight}, {b.floats} zeroinitializer")
                )
            self._store_vectors(self._scores, n, weights)
            return [b.op(f"fadd {b.floats} {total}, {weight}") for total, weight in zip(totals, weights, strict=True)]

        return b.loop("weight", until, [b.floats] * vectors, ["zeroinitializer"] * vectors, weigh)

    def _address(self, base: str, head: str, query: str) -> str:
        """The address of query number `query` of those that share key head `head`, or of its result."""
        b, group = self._b, self._group
        row, member = b.op(f"udiv i64 {query}, {group}"), b.op(f"urem i64 {query}, {group}")
        number = b.add(b.mul(row, self._f["heads"]), b.add(b.mul(head, group), member))
        return b.at("float", base, b.mul(number, self._size))

    def _each_dimension(self, name: str, step: Callable[[str], None]) -> None:
        self._b.loop_or_skip(name, str(self._size), step)

    def _copy(self, source: str, index: str, to: str, number: str) -> None:
        b = self._b
        b.do(f"store float {b.load('float', source, index)}, ptr {b.at('float', to, number)}")

    def _load_vectors(self, buffer: str, number: str) -> list[str]:
        return [
            self._b.op(f"load {self._b.floats}, ptr {at}, align {4 * self._lanes}")
            for at in self._vector_addresses(buffer, number)
        ]

    def _store_vectors(self, buffer: str, number: str, values: Sequence[str]) -> None:
        for value, at in zip(values, self._vector_addresses(buffer, number), strict=True):
            self._b.do(f"store {self._b.floats} {value}, ptr {at}, align {4 * self._lanes}")

    def _vector_addresses(self, buffer: str, number: str) -> list[str]:
        """Of the row of a buffer [n, width]."""
        b = self._b
        start = b.mul(number, self._width)
        return [b.at("float", buffer, b.add(start, v * self._lanes)) for v in range(self._vectors)]

    def _rounded_up(self, size: str) -> str:
        """A multiple of 64."""
        return self._b.op(f"and i64 {self._b.add(size, 63)}, -64")


class _QuantizedAttention(_Attention):
    """The same with an int8 cache, whose numbers are first made floats: the result is that of `_Attention` for them."""

    quantized = True

    @property
    def _record_bytes(self) -> int:
        return record_bytes(self._size)

    def text(self) -> str:
        self._numbers = self._b.op(f"alloca [{self._rows * self._size} x float], align 64")
        return super().text()

    def _key_numbers(self, keys: str, key: str, rows: int) -> str:
        b, lanes = self._b, self._lanes
        for row in range(rows):
            record = b.at("i8", keys, b.mul(b.add(key, row), self._record_bytes))
            for start in range(0, self._size, lanes):
                count = min(lanes, self._size - start)
                numbers = self._unpacked(record, str(start), str(start // group_size(self._size)), count)
                to = b.at("float", self._numbers, row * self._size + start)
                b.do(f"store <{count} x float> {numbers}, ptr {to}, align 4")
        return self._numbers

    def _value_numbers(self, values: str, key: str, dimension: str, rows: int) -> list[str]:
        b = self._b
        record = b.at("i8", values, b.mul(key, self._record_bytes))
        group = b.op(f"udiv i64 {dimension}, {group_size(self._size)}")
        numbers = self._unpacked(record, dimension, group, rows)
        return [b.op(f"extractelement <{rows} x float> {numbers}, i32 {row}") for row in range(rows)]

    def _unpacked(self, record: str, start: str, group: str, count: int) -> str:
        """Some numbers of a record, all of one group, as a vector."""
        b = self._b
        levels = b.op(f"load <{count} x i8>, ptr {b.at('i8', record, start)}, align 1")
        scale = b.op(f"load float, ptr {b.at('float', b.at('i8', record, self._size), group)}, align 1")
        whole = b.op(f"sitofp <{count} x i8> {levels} to <{count} x float>")
        one = b.op(f"insertelement <{count} x float> poison, float {scale}, i32 0")
        by = b.op(f"shufflevector <{count} x float> {one}, <{count} x float> poison, <{count} x i32> zeroinitializer")
        return b.op(f"fmul <{count} x float> {whole}, {by}")

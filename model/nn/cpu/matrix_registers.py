"""Generates matrix-multiplication kernels for processors with AMX, in whose registers 16 activation rows and 16
outputs of a block are multiplied by one instruction.

Its integers are exact, and what follows is computed in the order of the other kernels (`tile.py`), so a row's result is
the same to the last bit.

Several blocks at a time are expanded to bytes, multiplied and added to the sums, in turns: for about 40 ns after each
matrix instruction, an Intel Xeon has only one unit for 512-bit floats instead of two.
"""

from __future__ import annotations

from collections.abc import Sequence

from model.nn.cpu.block_formats import BLOCK, LINE, ROWS, BlockFormat
from model.nn.cpu.block_reader import BlockReader
from model.nn.cpu.ir import Body, KernelBody
from model.nn.cpu.target import Target
from model.nn.cpu.tile import chains, store_sums

MATRIX_ROWS = 16
"""Activation rows in a register. If there are more, the last register reads beyond the last row."""

_TURN = 8
"""Products in a turn, which stay in the fastest cache."""

_PRODUCTS, _ACTIVATIONS, _WEIGHTS = 4, 4, 5
"""The registers: four take products in turn, so that one is stored while the next three are computed."""

_WEIGHT_BYTES, _PRODUCT_BYTES = ROWS * BLOCK, MATRIX_ROWS * ROWS * 4


class MatrixKernel:
    """The kernel of a format for more rows than vectors multiply."""

    def __init__(self, form: BlockFormat, target: Target) -> None:
        self._form, self._target = form, target
        self._chains = chains(form)
        self._turn_blocks = _TURN // self._chains
        self._scales = self._chains + form.has_minimum
        """Vectors of scales and minimums of a block."""
        self._products_at = self._turn_blocks * (_WEIGHT_BYTES + LINE * self._scales)
        self._shapes_at = self._products_at + _TURN * _PRODUCT_BYTES
        self._sums_at = self._shapes_at + LINE

    def functions(self) -> list[str]:
        """What the code of `all_groups` calls."""
        return [self._expand(), self._multiply(), *(self._add(rows + 1) for rows in range(MATRIX_ROWS)), self._write()]

    def all_groups(self, b: KernelBody) -> None:
        """Append code that multiplies groups `begin` to `end` with all rows."""
        f, form = b.f, self._form
        group_bytes, blocks = b.mul(f["records"], form.record_bytes), b.mul(f["records"], form.record_blocks)
        tiles = b.op(f"udiv i64 {b.add(f['rows'], MATRIX_ROWS - 1)}, {MATRIX_ROWS}")
        turns = b.op(f"udiv i64 {b.add(blocks, self._turn_blocks - 1)}, {self._turn_blocks}")
        size = b.add(b.mul(b.mul(tiles, MATRIX_ROWS), 4 * ROWS), self._sums_at)
        scratch = b.op(f"alloca i8, i64 {size}, align 64")
        self._configure(b, scratch, f["rows"])
        scales = b.at("i8", scratch, self._turn_blocks * _WEIGHT_BYTES)
        products, sums = b.at("i8", scratch, self._products_at), b.at("i8", scratch, self._sums_at)
        sums_bytes = b.op(f"sub i64 {size}, {self._sums_at}")

        def group(number: str) -> None:
            one = b.add("%begin", number)
            weights, output = b.at("i8", f["weights"], b.mul(one, group_bytes)), b.mul(one, ROWS)
            b.do(f"call void @llvm.memset.p0.i64(ptr align 64 {sums}, i8 0, i64 {sums_bytes}, i1 false)")

            def turn(number: str) -> None:
                first = b.mul(number, self._turn_blocks)
                count = b.smaller(b.op(f"sub i64 {blocks}, {first}"), str(self._turn_blocks))
                b.do(f"call void @expand(ptr {weights}, i64 {first}, i64 {count}, ptr {scratch}, ptr {scales})")
                entry = b.mul(first, f["rows"])
                stream = b.at("i8", weights, b.mul(first, form.record_bytes // form.record_blocks))
                x, stride = b.at("i8", f["x"], b.mul(entry, BLOCK)), b.mul(f["rows"], BLOCK)
                x_scale, x_minimum = b.at("float", f["x_scale"], entry), b.at("float", f["x_minimum"], entry)

                def tile(number: str) -> None:
                    row = b.mul(number, MATRIX_ROWS)
                    left = b.op(f"sub i64 {f['rows']}, {row}")
                    here = b.at("i8", x, b.mul(row, BLOCK))
                    b.do(f"call void @multiply(ptr {here}, i64 {stride}, ptr {scratch}, i64 {count}, ptr {products})")
                    operands = (
                        f"ptr {products}, ptr {scales}, ptr {b.at('float', x_scale, row)}, "
                        f"ptr {b.at('float', x_minimum, row)}, i64 {f['rows']}, i64 {count}, "
                        f"ptr {b.at('i8', sums, b.mul(row, 4 * ROWS))}, ptr {stream}"
                    )
                    cases = " ".join(f"i64 {rows}, label %add.{rows}" for rows in range(1, MATRIX_ROWS))
                    b.do(f"switch i64 {left}, label %add.{MATRIX_ROWS} [{cases}]")
                    for rows in range(1, MATRIX_ROWS + 1):
                        b.label(f"add.{rows}")
                        b.do(f"call void @add_{rows}({operands})")
                        b.do("br label %added")
                    b.label("added")

                b.loop_or_skip("tile", tiles, tile)

            b.loop_or_skip("turn", turns, turn)
            out = b.at("float", f["out"], b.add(output, f["first_output"]))
            valid = b.op(f"sub i64 {f['outputs']}, {output}")
            b.do(f"call void @write(ptr {sums}, ptr {out}, i64 {f['rows']}, i64 {f['out_stride']}, i64 {valid})")

        b.loop_or_skip("group.matrices", b.op("sub i64 %end, %begin"), group)
        b.do("call void @llvm.x86.tilerelease()")

    def _configure(self, b: Body, scratch: str, all_rows: str) -> None:
        """Tell the processor the sizes of the registers."""
        shapes, inputs = b.at("i8", scratch, self._shapes_at), BLOCK // self._chains
        rows = b.op(f"trunc i64 {b.smaller(all_rows, str(MATRIX_ROWS))} to i8")
        b.do(f"store <64 x i8> zeroinitializer, ptr {shapes}, align 64")
        b.do(f"store i8 1, ptr {shapes}, align 1")  # the palette
        sizes = {
            **dict.fromkeys(range(_PRODUCTS), (rows, 4 * ROWS)),
            _ACTIVATIONS: (rows, inputs),
            _WEIGHTS: (str(inputs // 4), 4 * ROWS),
        }
        for register, (count, row_bytes) in sizes.items():
            b.do(f"store i8 {row_bytes}, ptr {b.at('i8', shapes, 16 + 2 * register)}, align 1")
            b.do(f"store i8 {count}, ptr {b.at('i8', shapes, 48 + register)}, align 1")
        b.do(f"call void @llvm.x86.ldtilecfg(ptr {shapes})")

    def _function(self, name: str, parameters: str, b: Body) -> str:
        b.do("ret void")
        return "\n".join((f"define internal void @{name}({parameters}) #0 {{\nentry:", *b.lines, "}"))

    def _body(self) -> Body:
        return Body(self._target.lanes, self._target.fused)

    def _expand(self) -> str:
        """Write the weights of some blocks as signed bytes, without their offset, and the blocks' scales."""
        b = self._body()
        read, form = BlockReader(b, self._form, self._target), self._form

        def block(number: str, _: Sequence[str]) -> Sequence[str]:
            place = b.add("%first", number)
            record = b.at("i8", "%weights", b.mul(b.op(f"udiv i64 {place}, {form.record_blocks}"), form.record_bytes))
            within = b.op(f"and i64 {place}, {form.record_blocks - 1}")
            lines, to = read.block(record, within), b.at("i8", "%to", b.mul(number, _WEIGHT_BYTES))
            upper = read.upper(lines, 0)
            for n in range(4):
                line = b.at("i8", lines, LINE * n)
                for part, vector in enumerate(read.pair(line, 0, upper)):
                    if form.offset:
                        vector = b.op(f"sub <64 x i8> {vector}, splat (i8 {form.offset})")
                    b.do(f"store <64 x i8> {vector}, ptr {b.at('i8', to, LINE * (n + 4 * part))}, align 64")
                upper = read.next_upper(upper)
            own, minimum = read.scales(record, within, read.factors(record, 0), 0)
            scales = b.at("i8", "%scales", b.mul(number, LINE * self._scales))
            for n, vector in enumerate([*own, minimum] if minimum else own):
                b.do(f"store {b.floats} {vector}, ptr {b.at('i8', scales, LINE * n)}, align 64")
            return ()

        b.loop("block", "%count", (), (), block)
        return self._function("expand", "ptr %weights, i64 %first, i64 %count, ptr %to, ptr %scales", b)

    def _multiply(self) -> str:
        """Multiply expanded blocks: always a whole turn, in which the last block may come again."""
        b = self._body()
        last = b.op("sub i64 %count, 1")

        def store(number: int) -> None:
            at = b.at("i8", "%products", number * _PRODUCT_BYTES)
            b.do(f"call void @llvm.x86.tilestored64(i8 {number % _PRODUCTS}, ptr {at}, i64 {4 * ROWS})")

        for number in range(_TURN):
            one, part = divmod(number, self._chains)
            if not part:
                block = b.smaller(str(one), last)
                x, weights = b.at("i8", "%x", b.mul(block, "%stride")), b.at("i8", "%weights", one * _WEIGHT_BYTES)
            half = b.at("i8", x, BLOCK // self._chains * part)
            own = b.at("i8", weights, _WEIGHT_BYTES // self._chains * part)
            b.do(f"call void @llvm.x86.tileloadd64(i8 {_ACTIVATIONS}, ptr {half}, i64 {BLOCK})")
            b.do(f"call void @llvm.x86.tileloadd64(i8 {_WEIGHTS}, ptr {own}, i64 {LINE})")
            b.do(f"call void @llvm.x86.tilezero(i8 {number % _PRODUCTS})")
            b.do(f"call void @llvm.x86.tdpbssd(i8 {number % _PRODUCTS}, i8 {_ACTIVATIONS}, i8 {_WEIGHTS})")
            if number >= _PRODUCTS - 1:
                store(number - _PRODUCTS + 1)
        for number in range(_TURN - _PRODUCTS + 1, _TURN):
            store(number)
        return self._function("multiply", "ptr %x, i64 %stride, ptr %weights, i64 %count, ptr %products", b)

    def _add(self, rows: int) -> str:
        """Add products to the sums of some rows, and prefetch weights, most evenly spread here, where most time is
        spent."""
        b = self._body()
        read = BlockReader(b, self._form, self._target)
        share = self._form.record_bytes // self._form.record_blocks
        places = [b.at("i8", "%sums", 4 * ROWS * row) for row in range(rows)]
        begin = [b.op(f"load {b.floats}, ptr {place}, align 64") for place in places]

        def block(number: str, sums: list[str]) -> Sequence[str]:
            scales = b.at("i8", "%scales", b.mul(number, LINE * self._scales))
            own = [b.op(f"load {b.floats}, ptr {b.at('i8', scales, LINE * n)}, align 64") for n in range(self._scales)]
            minimum = own.pop() if self._form.has_minimum else ""
            place = b.mul(number, self._chains)
            product, entry = b.at("i8", "%products", b.mul(place, _PRODUCT_BYTES)), b.mul(number, "%rows")
            x_scale, x_minimum = b.at("float", "%x_scale", entry), b.at("float", "%x_minimum", entry)
            out = []
            own_share = b.at("i8", "%stream", b.mul(number, share))
            for line in range(-(-share // LINE)):
                read.prefetch(b.at("i8", own_share, LINE * line))
            for row, total in enumerate(sums):
                by_row = b.splat("float", b.load("float", x_scale, row))
                for part, scale in enumerate(own):
                    at = b.at("i8", product, _PRODUCT_BYTES * part + 4 * ROWS * row)
                    whole = b.op(f"load {b.integers}, ptr {at}, align 64")
                    value = b.op(f"sitofp {b.integers} {whole} to {b.floats}")
                    total = b.fma(value, b.op(f"fmul {b.floats} {scale}, {by_row}"), total)
                if minimum:
                    total = b.fma(minimum, b.splat("float", b.load("float", x_minimum, row)), total)
                out.append(total)
            return out

        ended = b.loop("block", "%count", [b.floats] * rows, begin, block)
        for place, total in zip(places, ended, strict=True):
            b.do(f"store {b.floats} {total}, ptr {place}, align 64")
        parameters = (
            "ptr %products, ptr %scales, ptr %x_scale, ptr %x_minimum, i64 %rows, i64 %count, ptr %sums, ptr %stream"
        )
        return self._function(f"add_{rows}", parameters, b)

    def _write(self) -> str:
        """Write the sums of all rows to the result."""
        b = self._body()

        def row(number: str, _: Sequence[str]) -> Sequence[str]:
            total = b.op(f"load {b.floats}, ptr {b.at('i8', '%sums', b.mul(number, 4 * ROWS))}, align 64")
            store_sums(b, self._target.lanes, b.at("float", "%out", b.mul(number, "%stride")), ["0"], [total])
            return ()

        b.loop("row", "%rows", (), (), row)
        return self._function("write", "ptr %sums, ptr %out, i64 %rows, i64 %stride, i64 %valid", b)

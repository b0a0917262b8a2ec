"""Writes functions in LLVM's intermediate representation, instruction by instruction."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from model.nn.cpu.target import DECLARATIONS, Target

_ROUNDING = 1.5 * 2**23
"""Added to a small float32, it leaves the nearest integer in the low bits."""

_NUMBERS = (
    "rows", "heads", "kv_heads", "capacity", "past", "records", "outputs", "first_output", "groups", "groups_per_chunk",
    "first_chunk", "out_stride",
)  # fmt: skip
"""Fields of segments and calls that are numbers. The others are addresses."""

_MAX_EXPONENT = 87.0
"""e^±87 is a normal float32."""

_SERIES = [math.log(2) ** n / math.factorial(n) for n in range(7)]
"""Coefficients of 2^f, whose remainder is 1.2e-7 for |f| ≤ ½."""


def constant(value: float) -> str:
    """A number rounded to float32, as LLVM writes it."""
    rounded = struct.unpack("f", struct.pack("f", value))[0]
    return "0x" + struct.pack(">d", rounded).hex().upper()


def splat(value: float) -> str:
    """A vector with the same constant in every lane."""
    return f"splat (float {constant(value)})"


class Body:
    """The instructions of a function under construction. Every value gets a new name. The first block is `entry`.

    Args:
        lanes: of a vector.
        fused: whether the processor multiplies and adds in one instruction.

    Attributes:
        floats, integers: the types of a vector of float32 and of int32.
    """

    def __init__(self, lanes: int, fused: bool) -> None:
        self.lines: list[str] = []
        self._lanes, self._fused = lanes, fused
        self.floats, self.integers = f"<{lanes} x float>", f"<{lanes} x i32>"
        self._count = 0
        self._block = "entry"

    def op(self, text: str) -> str:
        """Append an instruction and return its result's name."""
        name = self._name()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self._block = name

    def add(self, a: str, b: str | int) -> str:
        """a + b of 64-bit integers."""
        return self.op(f"add i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        """a · b of 64-bit integers."""
        return self.op(f"mul i64 {a}, {b}")

    def smaller(self, a: str, b: str) -> str:
        """The smaller of two 64-bit integers."""
        return self.op(f"call i64 @llvm.umin.i64(i64 {a}, i64 {b})")

    def at(self, kind: str, base: str, index: str | int) -> str:
        """The address of an element."""
        return self.op(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def load(self, kind: str, base: str, index: str | int = 0) -> str:
        """An element."""
        return self.op(f"load {kind}, ptr {self.at(kind, base, index)}, align 4")

    def splat(self, kind: str, value: str) -> str:
        """A vector with the same number in every lane."""
        lanes = self._lanes
        one = self.op(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i32 0")
        return self.op(
            f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, <{lanes} x i32> zeroinitializer"
        )

    def fma(self, a: str, b: str, c: str) -> str:
        """a · b + c of vectors of float32."""
        kind = self.floats
        if not self._fused:
            return self.op(f"fadd {kind} {self.op(f'fmul {kind} {a}, {b}')}, {c}")
        return self.op(f"call {kind} @llvm.fma.v{self._lanes}f32({kind} {a}, {kind} {b}, {kind} {c})")

    def larger(self, a: str, b: str) -> str:
        """The larger of two numbers in each lane."""
        is_larger = self.op(f"fcmp ogt {self.floats} {a}, {b}")
        return self.op(f"select <{self._lanes} x i1> {is_larger}, {self.floats} {a}, {self.floats} {b}")

    def exp(self, x: str) -> str:
        """e^x of a vector, with a relative error of 4e-6 (4e-7 for |x| ≤ 5); x is limited to ±87."""
        floats, per_log = self.floats, splat(1 / math.log(2))
        x = self.larger(x, splat(-_MAX_EXPONENT))
        is_larger = self.op(f"fcmp ogt {floats} {x}, {splat(_MAX_EXPONENT)}")
        x = self.op(f"select <{self._lanes} x i1> {is_larger}, {floats} {splat(_MAX_EXPONENT)}, {floats} {x}")
        rounded = self.fma(x, per_log, splat(_ROUNDING))
        whole = self.op(f"fsub {floats} {rounded}, {splat(_ROUNDING)}")
        fraction, power = self.fma(x, per_log, self.op(f"fneg {floats} {whole}")), splat(_SERIES[-1])
        for coefficient in reversed(_SERIES[:-1]):
            power = self.fma(power, fraction, splat(coefficient))
        exponent = self.op(f"shl {self.integers} {self._bits(rounded)}, splat (i32 23)")
        moved = self.op(f"add {self.integers} {self._bits(power)}, {exponent}")
        return self.op(f"bitcast {self.integers} {moved} to {floats}")

    def _bits(self, x: str) -> str:
        return self.op(f"bitcast {self.floats} {x} to {self.integers}")

    def loop(
        self,
        name: str,
        count: str | int,
        kinds: Sequence[str],
        values: Sequence[str],
        step: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        """Repeat `step` at least once, without a branch if `count` is 1.

        Args:
            name: of the loop's block; no other may have it.
            count: how often.
            kinds, values: types and first values of what a step takes from the one before it.
            step: (its number, those values) → their next values.

        Returns:
            The values after the last step.
        """
        if count == 1:
            return list(step("0", list(values)))
        before = self._block
        self.do(f"br label %{name}")
        self.label(name)
        first_line, number, current = len(self.lines), self._name(), [self._name() for _ in values]
        following = list(step(number, current))
        next_number = self.add(number, 1)
        more, after = self.op(f"icmp ult i64 {next_number}, {count}"), self._block
        self.do(f"br i1 {more}, label %{name}, label %{name}.end")
        self.label(f"{name}.end")
        carried = [("i64", number, "0", next_number), *zip(kinds, current, values, following, strict=True)]
        self.lines[first_line:first_line] = [
            f"  {value} = phi {kind} [{start}, %{before}], [{then}, %{after}]" for kind, value, start, then in carried
        ]
        return following

    def loop_or_skip(self, name: str, count: str, step: Callable[[str], None]) -> None:
        """Repeat `step(number)`, which may be never."""
        some = self.op(f"icmp ne i64 {count}, 0")
        self.do(f"br i1 {some}, label %{name}.begin, label %{name}.skip")
        self.label(f"{name}.begin")

        def numbered(number: str, _: list[str]) -> Sequence[str]:
            step(number)
            return ()

        self.loop(name, count, (), (), numbered)
        self.do(f"br label %{name}.skip")
        self.label(f"{name}.skip")

    def _name(self) -> str:
        self._count += 1
        return f"%v{self._count}"


class KernelBody(Body):
    """A kernel `name(segment, call, begin, end)` under construction.

    Args:
        call, segment: 64-bit fields of its calls and, if it reads them, of its segments.

    Attributes:
        f: their values.
        lanes: of a vector.
    """

    def __init__(self, name: str, target: Target, call: Sequence[str], segment: Sequence[str] = ()) -> None:
        super().__init__(target.lanes, target.fused)
        self._kernel, self._target, self.lanes = name, target, target.lanes
        self.f = {
            field: self.op(f"load {'i64' if field in _NUMBERS else 'ptr'}, ptr {self.at('i64', structure, n)}")
            for structure, names in (("%segment", segment), ("%call", call))
            for n, field in enumerate(names)
        }

    def each_item(self, item: Callable[[str], None]) -> None:
        """Compute the items from `begin` to `end` one by one."""
        count = self.op("sub i64 %end, %begin")
        self.loop_or_skip("item", count, lambda number: item(self.add("%begin", number)))

    def text(self, functions: Sequence[str] = ()) -> str:
        """The module, with the kernel and what it calls."""
        self.do("ret void")
        head = f"define void @{self._kernel}(ptr %segment, ptr %call, i64 %begin, i64 %end) #0 {{\nentry:"
        return "\n".join((DECLARATIONS, *functions, head, *self.lines, "}", self._target.attributes))

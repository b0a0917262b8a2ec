"""Writes functions in LLVM's intermediate representation, instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable, Sequence


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

    def loop(
        self,
        name: str,
        count: str | int,
        kinds: Sequence[str],
        values: Sequence[str],
        step: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        """Repeat `step` at least once.

        Args:
            name: of the loop's block; no other may have it.
            count: how often.
            kinds, values: types and first values of what a step takes from the one before it.
            step: (its number, those values) → their next values.

        Returns:
            The values after the last step.
        """
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

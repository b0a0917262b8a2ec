"""Loops written with `Body` run as often as they say, and hand values from one step to the next."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import pytest

from model.nn.cpu.ir import Body


def run(body: Body, argument: int) -> int:
    """Compile `f(i64 %n) -> i64` for this processor and call it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly("\n".join(("define i64 @f(i64 %n) {", "entry:", *body.lines, "}")))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.get_function_address("f"))(argument))


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_loop_hands_values_to_the_next_step(count: int) -> None:
    body = Body(4, fused=False)

    def step(number: str, values: list[str]) -> list[str]:
        total, doubled = values
        (inner,) = body.loop("inner", 3, ["i64"], [total], lambda _, sums: [body.add(sums[0], number)])
        return [inner, body.mul(doubled, 2)]

    total, doubled = body.loop("outer", "%n", ["i64", "i64"], ["0", "1"], step)
    body.do(f"ret i64 {body.add(body.mul(total, 1000), doubled)}")
    assert run(body, count) == 3 * sum(range(count)) * 1000 + 2**count


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_loop_may_run_never(count: int) -> None:
    body = Body(4, fused=False)
    place = body.op("alloca i64")
    body.do(f"store i64 0, ptr {place}")
    body.loop_or_skip(
        "some", "%n", lambda number: body.do(f"store i64 {body.add(body.load('i64', place), number)}, ptr {place}")
    )
    body.do(f"ret i64 {body.load('i64', place)}")
    assert run(body, count) == sum(range(count))

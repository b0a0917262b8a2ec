"""Generates the kernel that quantizes new keys and values to int8 and writes them into the cache
(`kv_cache.record_bytes` has the layout). A row's result does not depend on the rows next to it."""

from __future__ import annotations

from functools import partial

from model.nn.cpu.row_codegen import RowBody
from model.nn.cpu.target import Target
from model.nn.cpu.team import Team
from model.nn.kv_cache import group_size, record_bytes

STORE = ("new_keys", "new_values", "keys", "values", "rows", "kv_heads", "capacity", "past")
"""64-bit fields that describe a call: addresses of new keys and values [kv_heads, rows, size] float32, of the cache
[kv_heads, capacity, record], and numbers. The new ones are written after the `past` ones."""


def store_kernel(team: Team, size: int) -> int:
    """Address of the kernel that writes keys and values of heads of `size` dimensions into the cache; items are
    rows."""
    return team.kernel(f"store_{size}", partial(store_text, size))


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

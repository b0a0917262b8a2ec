"""The kernels for processors other than this one: they compile, and use the instructions that they are meant to."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from model.nn.cpu import attention_kernel, row_codegen
from model.nn.cpu.block_formats import FORMATS
from model.nn.cpu.codegen import kernel_text
from model.nn.cpu.target import TARGETS, Isa

TRIPLES = {"sdot": ("aarch64-unknown-linux-gnu", "neoverse-n1")}


def assembly(isa: Isa, text: str) -> str:
    """The assembly of a kernel's IR for an instruction set."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple, cpu = TRIPLES.get(isa, ("x86_64-unknown-linux-gnu", "x86-64"))
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    module = llvm.parse_assembly(text)
    module.triple = triple
    module.verify()
    assembled: str = machine.emit_assembly(module)
    return assembled


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("isa", "instruction", "register"),
    [
        ("amx", "tdpbssd", "%tmm"),
        ("avx512vnni", "vpdpbusd", "%zmm"),
        ("avxvnni", "vpdpbusd", "%ymm"),
        ("avx2", "vpmaddubsw", "%ymm"),
        ("sdot", "sdot", "v0.4s"),
        ("portable", "pmaddwd", "%xmm"),
    ],
)
def test_kernels_use_the_instructions_of_their_target(name: str, isa: Isa, instruction: str, register: str) -> None:
    text = assembly(isa, kernel_text(FORMATS[name], TARGETS[isa]))
    lines = [line for line in text.splitlines() if instruction in line]
    assert len(lines) >= 8
    assert register in text
    assert "call" not in "".join(line for line in text.splitlines() if "extend" in line)  # no library conversions


def test_one_row_takes_few_instructions_per_block() -> None:
    """Reading a block from memory takes about 80 cycles, so decoding it must not take more."""
    text = assembly("avx512vnni", kernel_text(FORMATS["Q4_K"], TARGETS["avx512vnni"]))
    start = text.index("tile_Q4_K_1_1:")
    body = text[start : text.index(".Lfunc_end", start)]
    assert sum(line.startswith("\t") and not line.startswith("\t.") for line in body.splitlines()) < 120


@pytest.mark.parametrize(
    ("isa", "instruction", "register"),
    [
        ("avx512vnni", "vfmadd231ps", "%zmm"), ("avx2", "vfmadd231ps", "%ymm"), ("sdot", "fmla", ".4s"),
        ("portable", "mulps", "%xmm"),
    ],
)  # fmt: skip
def test_attention_multiplies_vectors_of_queries(isa: Isa, instruction: str, register: str) -> None:
    text = assembly(isa, attention_kernel.kernel_text(64, 2, TARGETS[isa]))
    assert sum(instruction in line and register in line for line in text.splitlines()) >= 2


@pytest.mark.parametrize("isa", TARGETS)
def test_row_kernels_call_no_library(isa: Isa) -> None:
    target = TARGETS[isa]
    for text in (
        row_codegen.quantize_text(40, target), row_codegen.normalize_text(40, target),
        row_codegen.swiglu_text(4200, target), row_codegen.split_text(24, True, target),
    ):  # fmt: skip
        lines = [line.split() for line in assembly(isa, text).splitlines()]
        assert not [line for line in lines if line and line[0] in ("callq", "call", "bl", "blr")]

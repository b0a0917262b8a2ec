"""Packed weights are mapped as they were written, and a damaged file is an error before anything is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from model.nn.cpu.block_formats import FORMATS, PackedMatrix, aligned, packed_bytes
from model.nn.cpu.packed_file import PackedFile, write_packed


def matrices() -> dict[str, PackedMatrix]:
    made = {}
    for n, (kind, outputs, inputs) in enumerate((("Q4_K", 48, 512), ("Q8_0", 20, 100))):
        form = FORMATS[kind]
        packed = aligned(packed_bytes(form, outputs, inputs))
        packed[:] = np.random.default_rng(n).integers(0, 256, packed.size)
        made[f"matrix{n}"] = PackedMatrix(form, outputs, inputs, packed)
    return made


def test_what_was_written_is_read_at_aligned_addresses(tmp_path: Path) -> None:
    path, written = tmp_path / "packed.safetensors", matrices()
    write_packed(path, written)
    read = PackedFile(path)
    for name, one in written.items():
        found = read.matrix(name)
        assert (found.form, found.outputs, found.inputs) == (one.form, one.outputs, one.inputs)
        assert (found.packed == one.packed).all()
        assert found.packed.ctypes.data % 64 == 0
        assert (load_file(path)[name] == one.packed).all(), "other tools can read it"
    with pytest.raises(ValueError, match="has no other"):
        read.matrix("other")


@pytest.mark.parametrize("kept", [0, 5, 30, -1])
def test_a_file_that_is_cut_short_is_an_error(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "packed.safetensors"
    write_packed(path, matrices())
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"\w"):
        PackedFile(path).matrix("matrix1")

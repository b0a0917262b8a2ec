"""The file of a checkpoint's packed weights: written at the first start, and mapped into memory at later ones, which
takes no time. It is a safetensors file, its matrices at multiples of 64 bytes.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from model.checkpoint.checkpoint import weight_files
from model.hub.store import cache_folder, write_atomically
from model.nn.cpu.block_formats import FORMATS, LINE, Bytes, PackedMatrix, packed_bytes

_VERSION = "2"
"""Of the file's content."""

_LENGTH = struct.Struct("<Q")
"""Of the header, bytes."""

_METADATA = "__metadata__"


class PackedFile:
    """Matrices that were packed before. They are mapped, not copied: the system reads them once for all processes, and
    on Linux 6.18 with ext4 a forward pass takes the same time as from large pages of its own (44 to 49 ms each, a row
    of the 1.5B on two cores).

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is damaged.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            (length,) = _LENGTH.unpack_from(mapped)
            header = json.loads(mapped[_LENGTH.size : _LENGTH.size + length])
            self._described: dict[str, str] = header.pop(_METADATA)
            self._ranges = {name: slice(*stored["data_offsets"]) for name, stored in header.items()}
            self._data: Bytes = np.frombuffer(mapped, np.uint8, offset=_LENGTH.size + length)
        except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
            raise ValueError(str(error)) from None
        # The first forward pass would otherwise wait for 15,000 page faults.
        pages = self._data[:: mmap.PAGESIZE]
        threading.Thread(target=pages.sum, name="rejoinder-weights", daemon=True).start()

    def matrix(self, name: str) -> PackedMatrix:
        """A matrix. Raises ValueError if the file lacks it."""
        try:
            kind, outputs, inputs = self._described[name].split()
            form, shape, packed = FORMATS[kind], (int(outputs), int(inputs)), self._data[self._ranges[name]]
        except (KeyError, ValueError):
            raise ValueError(f"it has no {name}") from None
        if packed.nbytes != packed_bytes(form, *shape) or packed.ctypes.data % LINE:
            raise ValueError(f"{name} has {packed.nbytes} bytes")
        return PackedMatrix(form, *shape, packed)


def write_packed(path: Path, matrices: Mapping[str, PackedMatrix]) -> None:
    """Write the file of some matrices, atomically and without a copy of them in memory. Raises OSError."""
    header: dict[str, object] = {}
    end = 0
    for name, one in matrices.items():
        start, end = end, end + one.packed.nbytes
        header[name] = {"dtype": "U8", "shape": [one.packed.nbytes], "data_offsets": [start, end]}
    header[_METADATA] = {name: f"{one.form.name} {one.outputs} {one.inputs}" for name, one in matrices.items()}
    text = json.dumps(header).encode()
    text += b" " * (-(_LENGTH.size + len(text)) % LINE)

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            file.write(_LENGTH.pack(len(text)) + text)
            for one in matrices.values():
                file.write(one.packed.data)

    write_atomically(path, write)


def packed_path(checkpoint: Path) -> Path:
    """Where the packed weights of a checkpoint are kept. It depends on the paths, sizes and modification times of the
    checkpoint's files."""
    key = [f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in weight_files(checkpoint)]
    name = hashlib.sha256("\n".join([_VERSION, *key]).encode()).hexdigest()[:24]
    return cache_folder() / "packed" / f"{name}.safetensors"

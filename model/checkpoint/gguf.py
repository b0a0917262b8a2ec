"""Reads GGUF files: the metadata on opening, each tensor on request.

Dequantization is gguf-py's. Its reader is not used because it builds one numpy array per vocabulary entry, which
takes 10 s for a vocabulary of 150,000 tokens; this takes 0.3 s. gguf-py is imported only when a file is opened, so
machines that convert safetensors do not need it.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import os
import re
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_COUNT = 10_000_000
"""A header with more metadata entries, tensors or array items than this is corrupt."""

_MAX_DIMENSIONS = 4
"""GGML's own limit."""

_CHUNK_VALUES = 1 << 20
"""Values dequantized at a time: they fit the processor's cache, and no second copy of a large table is needed."""

_SCALARS: dict[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_SIZE = struct.Struct("<Q")
"""Of a string, bytes."""


class BadModelFile(Exception):
    """A model file cannot be read. The message says what is wrong with it."""


@dataclass(frozen=True)
class _Entry:
    source: mmap.mmap
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    size: int


@dataclass(frozen=True)
class StoredBlocks:
    """A matrix as a GGUF file stores it.

    Attributes:
        format: GGUF's name for the format, such as `Q4_K`.
        shape: outputs and inputs.
        blocks: [outputs, bytes of a row] uint8, read from the file when it is accessed.
        release: drops the file's pages with this matrix from the memory of the process. Blocks that are accessed
            afterwards are read again.
    """

    format: str
    shape: tuple[int, int]
    blocks: NDArray[np.uint8]
    release: Callable[[], None]


class GGUFFile:
    """An open GGUF file, or the first part of a split one (`NAME-00001-of-00003.gguf`) with the tensors of all parts.

    Attributes:
        metadata: all keys of the header, as plain Python values.

    Raises:
        BadModelFile: it is not a GGUF file, has an unknown version, is truncated, or a part is missing.
    """

    def __init__(self, path: Path) -> None:
        self._tensors: dict[str, _Entry] = {}
        for part in reversed(split_parts(path)):  # the first part last: its metadata describes the model
            self._read_part(part)
        if self.metadata.get("split.no", 0):
            raise BadModelFile(f"{path} is a later part of a split model: give the first, whose name has 00001")

    def _read_part(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise BadModelFile(f"{path} is missing: all parts of a split model have to be in one folder") from None
        except ValueError:
            raise BadModelFile(f"{path} is empty") from None
        self._offset = 0
        try:
            self._read_header()
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise BadModelFile(f"the header of {path} is cut short or damaged ({error}): download it again") from None

    @property
    def tensor_names(self) -> list[str]:
        """The names stored in the file."""
        return list(self._tensors)

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor called `name`, dequantized: float32, row-major, outermost dimension first.

        Raises:
            KeyError: there is no such tensor.
            BadModelFile: gguf-py cannot dequantize its type.
        """
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        entry = self._tensors[name]
        raw = np.frombuffer(entry.source, np.uint8, entry.size, entry.offset)
        out = np.empty(entry.shape, np.float32)
        if entry.kind == GGMLQuantizationType.F32:
            out[...] = raw.view(np.float32).reshape(entry.shape)
            return torch.from_numpy(out)
        columns = entry.shape[-1]
        quantized, floats = raw.reshape(out.size // columns, -1), out.reshape(-1, columns)
        chunk = max(1, _CHUNK_VALUES // columns)

        def fill(start: int) -> None:
            floats[start : start + chunk] = dequantize(quantized[start : start + chunk], entry.kind)

        try:
            with ThreadPoolExecutor(os.cpu_count()) as threads:  # numpy releases the GIL in its loops
                list(threads.map(fill, range(0, len(floats), chunk)))
        except (NotImplementedError, ValueError) as error:
            raise BadModelFile(
                f"tensor {name} of {self.path} is stored as {entry.kind.name}, which cannot be read ({error})"
            ) from None
        return torch.from_numpy(out)

    def blocks(self, name: str) -> StoredBlocks:
        """The tensor called `name` as it is stored. Raises KeyError if there is none."""
        entry = self._tensors[name]
        raw = np.frombuffer(entry.source, np.uint8, entry.size, entry.offset)
        outputs, inputs = (1, *entry.shape)[-2:]
        return StoredBlocks(entry.kind.name, (outputs, inputs), raw.reshape(outputs, -1), partial(_release, entry))

    def _read_header(self) -> None:
        if self._bytes[:4] != _MAGIC:
            raise BadModelFile(f"{self.path} is not a GGUF file: it starts with {bytes(self._bytes[:4])!r}")
        self._offset = 4
        version = self._scalar("I")
        if version not in _VERSIONS:
            raise BadModelFile(f"{self.path} is GGUF version {version}; supported are versions {_VERSIONS}")
        tensor_count, entry_count = self._count(), self._count()
        self.metadata: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self._string()
            self.metadata[key] = self._value(self._scalar("I"))
        infos = []
        for _ in range(tensor_count):
            name = self._string()
            dimensions = self._scalar("I")
            if not 1 <= dimensions <= _MAX_DIMENSIONS:
                raise BadModelFile(f"{self.path} is damaged: tensor {name} has {dimensions} dimensions")
            shape = tuple(self._scalar("Q") for _ in range(dimensions))[::-1]
            infos.append((name, shape, self._scalar("I"), self._scalar("Q")))
        align = self.metadata.get("general.alignment", 32)
        if not isinstance(align, int) or align <= 0:
            raise BadModelFile(f"{self.path} is damaged: it aligns tensors to {str(align)[:20]} bytes")
        start = -(-self._offset // align) * align
        for name, shape, kind, offset in infos:
            self._tensors[name] = self._entry(name, shape, kind, start + offset)

    def _entry(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> _Entry:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        try:
            quantization = GGMLQuantizationType(kind)
        except ValueError:
            raise BadModelFile(f"tensor {name} of {self.path} has the unknown type {kind}") from None
        block, block_bytes = GGML_QUANT_SIZES[quantization]
        values = math.prod(shape)  # of any size, where a product of numpy would wrap around
        if values == 0 or shape[-1] % block:
            raise BadModelFile(f"{self.path} is damaged: tensor {name} has the shape {shape}, in blocks of {block}")
        size = values // block * block_bytes
        if offset + size > len(self._bytes):
            raise BadModelFile(
                f"{self.path} is cut short: tensor {name} ends at byte {offset + size} of {len(self._bytes)}. "
                "Download it again"
            )
        return _Entry(self._bytes, shape, quantization, offset, size)

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._bytes, self._offset)
        self._offset += struct.calcsize("<" + code)
        return value

    def _count(self) -> int:
        count = int(self._scalar("Q"))
        if count > _MAX_COUNT:
            raise BadModelFile(f"{self.path} is damaged: its header declares {count} entries")
        return count

    def _string(self) -> str:
        size = self._count()
        if self._offset + size > len(self._bytes):
            raise IndexError("a string extends past the end of the file")
        text = self._bytes[self._offset : self._offset + size].decode("utf-8", errors="replace")
        self._offset += size
        return text

    def _strings(self, count: int) -> list[str]:
        """The strings of an array. A vocabulary and its merges are 300,000, so this is a loop without calls."""
        source, offset, end, strings = self._bytes, self._offset, len(self._bytes), list[str]()
        for _ in range(count):
            (size,) = _SIZE.unpack_from(source, offset)
            offset += _SIZE.size
            if offset + size > end:
                raise IndexError("a string extends past the end of the file")
            strings.append(source[offset : offset + size].decode("utf-8", "replace"))
            offset += size
        self._offset = offset
        return strings

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            item, count = self._scalar("I"), self._count()
            if item in _SCALARS:
                values = struct.unpack_from(f"<{count}{_SCALARS[item]}", self._bytes, self._offset)
                self._offset += struct.calcsize(f"<{count}{_SCALARS[item]}")
                return list(values)
            if item == _STRING:
                return self._strings(count)
            raise BadModelFile(f"{self.path} has an array of type {item}, which no model needs")
        if kind not in _SCALARS:
            raise BadModelFile(f"{self.path} has a metadata value of unknown type {kind}")
        return self._scalar(_SCALARS[kind])


def _release(entry: _Entry) -> None:
    """Drop the pages that hold nothing but this tensor, where the system can do so."""
    start = -(-entry.offset // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (entry.offset + entry.size) // mmap.PAGESIZE * mmap.PAGESIZE
    if hasattr(mmap, "MADV_DONTNEED") and start < end:
        entry.source.madvise(mmap.MADV_DONTNEED, start, end - start)


def split_parts(path: Path) -> list[Path]:
    """The files of a split model, given the first; only `path` if its name is not that of a first part."""
    match = re.fullmatch(r"(.+)-00001-of-(\d{5})\.gguf", path.name)
    if match is None:
        return [path]
    return [path.with_name(f"{match[1]}-{n:05}-of-{match[2]}.gguf") for n in range(1, int(match[2]) + 1)]

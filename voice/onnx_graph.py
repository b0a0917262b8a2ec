"""Makes a tensor inside an ONNX model one of its outputs, in memory: voices compute how long each phoneme lasts, and do
not deliver it.

Reads just enough of the model's protocol buffer (onnx/onnx.proto) to find one node: `onnx` is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_GRAPH, _NODE, _OUTPUT_OF_GRAPH, _NAME = 7, 1, 12, 1
"""Fields of ModelProto, GraphProto and ValueInfoProto."""

_OUTPUT_OF_NODE, _OPERATOR = 2, 4
"""Fields of NodeProto."""

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
"""Wire types."""


def with_output(path: Path, operator: str) -> bytes | None:
    """The model at `path`, with what its only node with this operator computes as a further output. None if it does not
    have exactly one such node, or cannot be read: onnxruntime then says why.

    Raises:
        OSError: the file cannot be opened.
    """
    model = path.read_bytes()
    try:
        (name,) = _outputs(memoryview(model), operator)
    except (ValueError, IndexError):
        return None
    # A message that occurs twice is merged, and its repeated fields are joined: the addition is simply appended.
    return b"".join((model, _field(_GRAPH, _field(_OUTPUT_OF_GRAPH, _field(_NAME, name)))))


def _outputs(model: memoryview, operator: str) -> Iterator[bytes]:
    """The first output of every node with this operator."""
    for field, graph in _fields(model):
        if field != _GRAPH:
            continue
        for part, node in _fields(graph):
            if part != _NODE:
                continue
            content = list(_fields(node))
            if any(number == _OPERATOR and bytes(value) == operator.encode() for number, value in content):
                yield next(bytes(value) for number, value in content if number == _OUTPUT_OF_NODE)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The length-delimited fields of a message: number and content."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == _DELIMITED:
            size, position = _varint(message, position)
            yield key >> 3, message[position : position + size]
            position += size
        elif kind == _VARINT:
            _, position = _varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"protocol buffers have no wire type {kind}")


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _field(number: int, content: bytes) -> bytes:
    """A short length-delimited field."""
    size, encoded = len(content), bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes((number << 3 | _DELIMITED, *encoded)) + content

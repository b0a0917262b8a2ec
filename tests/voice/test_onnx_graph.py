"""A tensor inside an ONNX model as one of its outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from voice.onnx_graph import _field as field
from voice.onnx_graph import with_output


def number(field_number: int, value: int) -> bytes:
    return bytes((field_number << 3, value))


def tensor(name: bytes) -> bytes:
    """ValueInfoProto of a vector of floats."""
    return field(1, name) + field(2, field(1, number(1, 1) + field(2, field(1, field(2, b"length")))))


def node(operator: bytes, source: bytes, result: bytes) -> bytes:
    return field(1, field(1, source) + field(2, result) + field(4, operator))


def model(*nodes: bytes) -> bytes:
    graph = b"".join(nodes) + field(2, b"graph") + field(11, tensor(b"x")) + field(12, tensor(b"y"))
    return number(1, 8) + field(8, number(2, 13)) + field(7, graph)


def test_a_tensor_inside_becomes_an_output_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model(node(b"Ceil", b"x", b"frames"), node(b"Neg", b"frames", b"y")))
    exposed = with_output(path, "Ceil")
    assert exposed is not None
    session = onnxruntime.InferenceSession(exposed, providers=["CPUExecutionProvider"])
    negative, frames = session.run(None, {"x": np.array([0.2, 1.7], np.float32)})
    assert negative.tolist() == [-1, -2] and frames.tolist() == [1, 2]


@pytest.mark.parametrize(
    "content",
    [
        model(node(b"Neg", b"x", b"y")),
        model(node(b"Ceil", b"x", b"a"), node(b"Ceil", b"a", b"y")),
        b"",
        b"\xff\xff",
        b"no model",
    ],
)
def test_models_without_exactly_one_such_node_stay_as_they_are(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert with_output(path, "Ceil") is None

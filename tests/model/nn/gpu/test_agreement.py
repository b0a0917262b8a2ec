"""The check at the start accepts right kernels and rejects wrong ones. `tests/e2e/test_gpu_kernels.py` asks the same of
real weights."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.stored_weights import StoredLinear
from model.nn.linear import FloatHead, FloatLinear
from model.nn.step_pass import MaskedPass

pytest.importorskip("triton", "3.9", "interpreters before it do not work with numpy 2.4")

from model.nn.gpu.triton_operations import TritonOperations
from tests.model.nn.gpu.broken_kernels import CPU, MISTAKES, OneKernel, mistaken, random_decoder, selected

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_right_kernels_are_accepted() -> None:
    decoder = random_decoder()
    assert isinstance(selected(decoder, TritonOperations(CPU)), FusedPass)
    assert isinstance(decoder.layers[0].down, StoredLinear)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_kernels_are_rejected_and_weights_become_floats(
    mistake: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = random_decoder()
    with mistaken(mistake, tmp_path), caplog.at_level(logging.WARNING, "rejoinder.model"):
        assert isinstance(selected(decoder, OneKernel(MISTAKES[mistake][0])), MaskedPass)
    assert "their results differ from PyTorch's" in caplog.messages[0]
    assert isinstance(decoder.layers[0].down, FloatLinear) and isinstance(decoder.head, FloatHead)

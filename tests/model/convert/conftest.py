"""A tiny base model for tests of the conversion."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.engine.loader import LoadedModel, load_model


@pytest.fixture(scope="module")
def model(tiny_qwen2: Path) -> LoadedModel:
    return load_model(tiny_qwen2, device="cpu", precision="float32", adapter="none")

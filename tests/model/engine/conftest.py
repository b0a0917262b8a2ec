"""Fixtures for tests of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from model.engine.engine import Engine
from model.engine.loader import load_model


@pytest.fixture(scope="module")
def engine(varied_qwen2: Path) -> Iterator[Engine]:
    engine = Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"))
    yield engine
    engine.close()

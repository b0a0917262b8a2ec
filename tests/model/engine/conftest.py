"""Fixtures for tests of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from model.engine.engine import Engine
from model.engine.loader import load_model
from tests.model.dialogues import with_doubled_weights


@pytest.fixture(scope="session")
def varied_qwen2(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint that does not repeat itself."""
    return with_doubled_weights(tiny_qwen2, tmp_path_factory.mktemp("varied"))


@pytest.fixture(scope="module")
def engine(varied_qwen2: Path) -> Iterator[Engine]:
    engine = Engine(lambda: load_model(varied_qwen2, device="cpu", precision="float32"))
    yield engine
    engine.close()

"""What tests of responses share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.planning import Setup


@pytest.fixture
def setup(tmp_path: Path) -> Callable[..., Setup]:
    return lambda programs=None, **options: Setup(tmp_path, programs or {}, **options)

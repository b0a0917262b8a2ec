"""Units of programs."""

from pathlib import Path

import pytest

from agent.program.units import convert, load_units


def test_units_are_loaded_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pint's cache names files of the environment that wrote it. Once that is deleted, no unit could be loaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_units.__wrapped__()
    assert not list(tmp_path.rglob("*"))


def test_a_quantity_is_converted() -> None:
    assert convert(26.2, "mile", "kilometer") == pytest.approx(42.165, abs=1e-3)

"""Fixtures for phone calls."""

from __future__ import annotations

import pytest

from lab.simulator import call


@pytest.fixture(autouse=True)
def _short_silence_after_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "_QUIET_S", 0.2)

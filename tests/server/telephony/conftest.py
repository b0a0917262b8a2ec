"""Fixtures for phone calls."""

from __future__ import annotations

import pytest

from cli import call
from tests.fakes import LoudnessDetector
from voice import session


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


@pytest.fixture(autouse=True)
def _short_silence_after_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "_QUIET_S", 0.2)

"""Sessions in these tests detect speech by its loudness."""

from __future__ import annotations

import pytest

from tests.fakes import LoudnessDetector
from voice import session


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)

"""A conversation at this machine, with a fake sound card."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeLanguageModel, LoudnessDetector, fake_speech_models, run_on_virtual_clock
from voice import session
from voice.audio.codec import OUTPUT_RATE, Samples
from voice.local import AudioDevice, AudioDeviceError, LocalConversation, PlaybackBuffer, find_device
from voice.session import VoiceSession

RATE = 16_000


class PortAudioError(Exception):
    pass


class FakeSoundCard:
    """A microphone that records a constant level, and a loudspeaker that logs the level of what it plays."""

    PortAudioError = PortAudioError

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[..., None]] = {}
        self.played: list[float] = []

    def InputStream(self, **options: Any) -> Any:
        return self._stream("input", options)

    def OutputStream(self, **options: Any) -> Any:
        return self._stream("output", options)

    def _stream(self, kind: str, options: dict[str, Any]) -> Any:
        self.callbacks[kind] = options["callback"]
        return _OpenStream()

    async def run(self, seconds: float, loudness: float) -> None:
        for _ in range(round(seconds / 0.02)):
            self.callbacks["input"](np.full((RATE // 50, 1), loudness, np.float32), RATE // 50, None, None)
            out = np.zeros((RATE // 50, 1), np.float32)
            self.callbacks["output"](out, RATE // 50, None, None)
            self.played.append(float(np.abs(out).max()))
            await asyncio.sleep(0.02)


class _OpenStream:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> FakeSoundCard:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    card = FakeSoundCard()
    monkeypatch.setitem(sys.modules, "sounddevice", card)  # type: ignore[arg-type]
    return card


def hold_conversation(
    card: FakeSoundCard, *, full_duplex: bool, second_speech_s: float
) -> tuple[list[str], FakeLanguageModel]:
    """Ask a question, then speak again while the response plays."""
    lines: list[str] = []
    language_model = FakeLanguageModel([f" word{n}" for n in range(30)], seconds_per_word=0.0)

    async def work() -> None:
        conversation = LocalConversation(
            partial(VoiceSession, language_model, fake_speech_models()),
            AudioDevice(0, RATE),
            AudioDevice(1, RATE),
            full_duplex=full_duplex,
            show_line=lines.append,
        )
        running = asyncio.create_task(conversation.run())
        await asyncio.sleep(0)
        await card.run(1.0, 0.5)
        await card.run(1.0, 0.0)
        await card.run(second_speech_s, 0.5)
        await card.run(4.0, 0.0)
        running.cancel()
        await running

    run_on_virtual_clock(work)
    return lines, language_model


def test_a_question_is_transcribed_answered_aloud_and_shown(card: FakeSoundCard) -> None:
    lines, _ = hold_conversation(card, full_duplex=False, second_speech_s=0)
    assert lines[0] == "you: What is the capital of France?"
    assert lines[1].startswith("rejoinder: word0 word1")
    assert sum(level > 0.1 for level in card.played) * 0.02 == pytest.approx(3.0, abs=0.1)


def test_without_headphones_the_microphone_is_muted_while_the_response_plays(card: FakeSoundCard) -> None:
    _, language_model = hold_conversation(card, full_duplex=False, second_speech_s=1.0)
    assert len(language_model.prompts) == 1


def test_with_headphones_speaking_stops_the_response_and_truncates_the_history(card: FakeSoundCard) -> None:
    _, language_model = hold_conversation(card, full_duplex=True, second_speech_s=1.0)
    assert len(language_model.prompts) == 2
    (heard,) = [m.content for m in language_model.prompts[1] if m.role == "assistant"]
    assert 0 < len(heard.split()) < 12
    silent_from = 2.0 + 0.2
    assert max(card.played[round(silent_from / 0.02) : round(2.9 / 0.02)]) == 0


def test_the_playback_buffer_pads_with_silence_and_reports_how_much_it_discarded() -> None:
    playback = PlaybackBuffer(OUTPUT_RATE)
    playback.add(np.ones(2400, np.float32))
    first: Samples = playback.take(240)
    assert first.tolist() == [1.0] * 240
    assert playback.playing
    assert playback.clear() == pytest.approx(90)
    assert not playback.playing
    assert not playback.take(100).any()


def test_a_missing_device_is_reported_with_the_available_ones(card: FakeSoundCard) -> None:
    def query(device: object = None, kind: str | None = None) -> Any:
        if kind:
            raise PortAudioError
        return [{"name": "Webcam", "max_input_channels": 1, "max_output_channels": 0}]

    card.query_devices = query  # type: ignore[attr-defined]
    with pytest.raises(AudioDeviceError, match="no microphone called 'foo'; this machine has Webcam"):
        find_device("input", "foo")

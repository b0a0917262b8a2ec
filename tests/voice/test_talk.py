"""Talking at this machine, with a sound card made of lists."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeBrain, LoudnessDetector, fake_stages, virtually
from voice import session
from voice.audio import SPEAKING_RATE, Samples
from voice.talk import Devices, NoDevice, Player, Talk

RATE = 16_000


class PortAudioError(Exception):
    pass


class SoundCard:
    """A microphone that hears what it is told to, and a loudspeaker that remembers what it played."""

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
        return _Opened()

    async def run(self, seconds: float, loudness: float) -> None:
        for _ in range(round(seconds / 0.02)):
            self.callbacks["input"](np.full((RATE // 50, 1), loudness, np.float32), RATE // 50, None, None)
            out = np.zeros((RATE // 50, 1), np.float32)
            self.callbacks["output"](out, RATE // 50, None, None)
            self.played.append(float(np.abs(out).max()))
            await asyncio.sleep(0.02)


class _Opened:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> SoundCard:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    card = SoundCard()
    monkeypatch.setitem(sys.modules, "sounddevice", card)  # type: ignore[arg-type]
    return card


def talking(card: SoundCard, *, full_duplex: bool, second_speech_s: float) -> tuple[list[str], FakeBrain]:
    """Ask, then speak again while the answer plays."""
    lines: list[str] = []
    brain = FakeBrain([f" word{n}" for n in range(30)], pace=0.0)

    async def work() -> None:
        talk = Talk(brain, fake_stages(), Devices(0, RATE, 1, RATE), full_duplex=full_duplex, say=lines.append)
        running = asyncio.create_task(talk.run())
        await asyncio.sleep(0)
        await card.run(1.0, 0.5)
        await card.run(1.0, 0.0)
        await card.run(second_speech_s, 0.5)
        await card.run(4.0, 0.0)
        running.cancel()
        await running

    virtually(work)
    return lines, brain


def test_a_question_is_heard_answered_aloud_and_shown(card: SoundCard) -> None:
    lines, _ = talking(card, full_duplex=False, second_speech_s=0)
    assert lines[0] == "you: What is the capital of France?"
    assert lines[1].startswith("rejoinder: word0 word1")
    assert sum(level > 0.1 for level in card.played) * 0.02 == pytest.approx(3.0, abs=0.1)


def test_without_headphones_the_microphone_is_deaf_while_the_answer_plays(card: SoundCard) -> None:
    _, brain = talking(card, full_duplex=False, second_speech_s=1.0)
    assert len(brain.prompts) == 1


def test_with_headphones_speaking_stops_the_answer_and_history_is_cut(card: SoundCard) -> None:
    _, brain = talking(card, full_duplex=True, second_speech_s=1.0)
    assert len(brain.prompts) == 2
    (heard,) = [m.content for m in brain.prompts[1] if m.role == "assistant"]
    assert 0 < len(heard.split()) < 12
    silent_at = 2.0 + 0.2
    assert max(card.played[round(silent_at / 0.02) : round(2.9 / 0.02)]) == 0


def test_the_player_gives_silence_when_nothing_waits_and_says_what_it_dropped() -> None:
    player = Player(SPEAKING_RATE)
    player.add(np.ones(2400, np.float32))
    first: Samples = player.take(240)
    assert first.tolist() == [1.0] * 240
    assert player.playing
    assert player.clear() == pytest.approx(90)
    assert not player.playing
    assert not player.take(100).any()


def test_a_device_that_is_not_there_is_named(card: SoundCard) -> None:
    def query(device: object = None, kind: str | None = None) -> Any:
        if kind:
            raise PortAudioError
        return [{"name": "Webcam", "max_input_channels": 1, "max_output_channels": 0}]

    card.query_devices = query  # type: ignore[attr-defined]
    with pytest.raises(NoDevice, match="no microphone called 'foo'; this machine has Webcam"):
        Devices.find("foo")

"""Talking through this machine's own microphone and loudspeaker (sounddevice, PortAudio).

Half-duplex unless headphones are declared: without echo cancellation the assistant would hear itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from voice import events
from voice.audio import SPEAKING_RATE, Resampler, Samples
from voice.brain import Brain
from voice.session import Session
from voice.stages import Stages

_BLOCK_MS = 20
"""Sound that the devices give and take at a time."""

_RATES = (48_000, 24_000, 16_000)
"""Hz to try a device at, in this order: most hardware runs at 48 kHz, and what it cannot do is refused at once."""


class NoDevice(OSError):
    """No sound device can be used; the message says what to do."""


def _sounddevice() -> Any:
    try:
        import sounddevice
    except (OSError, ImportError):
        raise NoDevice(
            "PortAudio is missing: install it (Debian and Ubuntu: apt install libportaudio2; "
            "macOS: brew install portaudio)"
        ) from None
    return sounddevice


@dataclass(frozen=True)
class Devices:
    """A microphone and a loudspeaker, and the rates they run at."""

    microphone: int
    microphone_rate: int
    loudspeaker: int
    loudspeaker_rate: int

    @staticmethod
    def find(microphone: str | None = None, loudspeaker: str | None = None) -> Devices:
        """The devices by name or number, or the system's own.

        Raises:
            NoDevice: none is there, or PortAudio is not.
        """
        mic, mic_rate = _find("input", microphone)
        out, out_rate = _find("output", loudspeaker)
        return Devices(mic, mic_rate, out, out_rate)


def _find(kind: str, wanted: str | None) -> tuple[int, int]:
    sounddevice = _sounddevice()
    what = "microphone" if kind == "input" else "loudspeaker"
    try:
        device = sounddevice.query_devices(int(wanted) if wanted and wanted.isdigit() else wanted, kind)
    except (ValueError, sounddevice.PortAudioError):
        known = [d["name"] for d in sounddevice.query_devices() if d[f"max_{kind}_channels"]]
        have = f"this machine has {', '.join(known)}" if known else f"this machine has no {what}: plug one in"
        raise NoDevice(f"no {what} {'called ' + repr(wanted) if wanted else 'is set up'}; {have}") from None
    check = sounddevice.check_input_settings if kind == "input" else sounddevice.check_output_settings
    for rate in _RATES:
        try:
            check(device=device["index"], channels=1, samplerate=rate)
        except sounddevice.PortAudioError:
            continue
        return int(device["index"]), rate
    raise NoDevice(f"the {what} {device['name']} takes none of the rates {_RATES}: choose another")


class Player:
    """What the loudspeaker plays next; filled by the event loop, drained by the sound card's thread."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._resampler = Resampler(SPEAKING_RATE, rate)
        self._waiting: Samples = np.zeros(0, np.float32)
        self._lock = threading.Lock()

    def add(self, samples: Samples) -> None:
        """Put sound at 24 kHz behind what waits."""
        converted = self._resampler.push(samples)
        with self._lock:
            self._waiting = np.concatenate((self._waiting, converted))

    def take(self, count: int) -> Samples:
        """The next `count` samples at the device's rate, silence when nothing waits."""
        out = np.zeros(count, np.float32)
        with self._lock:
            ready = self._waiting[:count]
            self._waiting = self._waiting[count:]
        out[: len(ready)] = ready
        return out

    def clear(self) -> float:
        """Fall silent; returns how many ms were dropped."""
        with self._lock:
            dropped, self._waiting = len(self._waiting), self._waiting[:0]
        return dropped * 1000 / self._rate

    @property
    def playing(self) -> bool:
        """Whether anything waits."""
        return bool(len(self._waiting))


class Talk:
    """A conversation at this machine.

    Args:
        brain, stages: what answers, hears and speaks.
        devices: where sound comes from and goes.
        full_duplex: keep listening while the assistant speaks.
        say: shows a line of text.
    """

    def __init__(
        self, brain: Brain, stages: Stages, devices: Devices, *, full_duplex: bool, say: Callable[[str], None]
    ) -> None:
        self._devices, self._full_duplex, self._say = devices, full_duplex, say
        self._brain, self._stages = brain, stages
        self._player = Player(devices.loudspeaker_rate)
        self._answer_item = ""

    async def run(self) -> None:
        """Talk until cancelled or interrupted. Raises NoDevice when a device cannot be opened."""
        sounddevice = _sounddevice()
        loop = asyncio.get_running_loop()
        session = Session(self._brain, self._stages, self._on_event)
        self._session = session

        def heard(data: Any, frames: int, when: Any, status: Any) -> None:
            loop.call_soon_threadsafe(self._hear, data[:, 0].copy())

        def played(data: Any, frames: int, when: Any, status: Any) -> None:
            data[:, 0] = self._player.take(frames)

        d = self._devices
        common = {"channels": 1, "dtype": "float32"}
        try:
            with (
                sounddevice.InputStream(
                    device=d.microphone, samplerate=d.microphone_rate, callback=heard,
                    blocksize=d.microphone_rate * _BLOCK_MS // 1000, **common,
                ),
                sounddevice.OutputStream(
                    device=d.loudspeaker, samplerate=d.loudspeaker_rate, callback=played,
                    blocksize=d.loudspeaker_rate * _BLOCK_MS // 1000, **common,
                ),
            ):  # fmt: skip
                await asyncio.Event().wait()
        except sounddevice.PortAudioError as error:
            raise NoDevice(f"the sound device failed ({error}): check that it is plugged in and free") from None
        except asyncio.CancelledError:
            return
        finally:
            await session.close()

    def _hear(self, samples: Samples) -> None:
        if self._player.playing and not self._full_duplex:
            samples = np.zeros_like(samples)  # the audio clock goes on; our own voice is not heard
        self._session.append(samples, self._devices.microphone_rate)

    def _on_event(self, happened: events.SessionEvent) -> None:
        match happened:
            case events.SpeechStarted():
                dropped_ms = self._player.clear()
                if dropped_ms:
                    item = self._session.history.get(self._answer_item)
                    self._session.truncate(item.id, max(0.0, item.audio_ms - dropped_ms))
            case events.FinalTranscript(text=text) if text:
                self._say(f"you: {text}")
            case events.AnswerStarted(item=item):
                self._answer_item = item.id
            case events.AnswerAudio(samples=samples):
                self._player.add(samples)
            case events.AnswerDone(item=item, timeline=timeline):
                latency = timeline.latency_ms()
                took = f" ({latency:.0f} ms)" if latency is not None else ""
                self._say(f"rejoinder: {item.heard.strip()}{took}")

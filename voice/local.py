"""A conversation through this machine's own microphone and loudspeaker (sounddevice, PortAudio).

Half-duplex unless the user wears headphones: without echo cancellation the assistant would hear itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from voice import events
from voice.audio.codec import OUTPUT_RATE, Samples
from voice.audio.resampling import Resampler
from voice.history import Item
from voice.session import VoiceSession

_BLOCK_MS = 20
"""Block size of both audio streams."""

_RATES = (48_000, 24_000, 16_000)
"""Rates in Hz to try, in this order. Most hardware runs at 48 kHz, and unsupported rates are rejected at once."""


class AudioDeviceError(OSError):
    """No usable audio device. The message says what to do."""


def _sounddevice() -> Any:
    try:
        import sounddevice
    except (OSError, ImportError):
        raise AudioDeviceError(
            "PortAudio is missing: install it (Debian and Ubuntu: apt install libportaudio2; "
            "macOS: brew install portaudio)"
        ) from None
    return sounddevice


@dataclass(frozen=True)
class AudioDevice:
    """A microphone or a loudspeaker, by its number, with its sample rate in Hz."""

    number: int
    rate: int

    @property
    def stream_options(self) -> dict[str, Any]:
        """Arguments of a stream of it."""
        size = self.rate * _BLOCK_MS // 1000
        return {"device": self.number, "samplerate": self.rate, "blocksize": size, "channels": 1, "dtype": "float32"}


def find_device(kind: Literal["input", "output"], name_or_number: str | None = None) -> AudioDevice:
    """Find a microphone (`input`) or a loudspeaker. The default is the system's own.

    Raises:
        AudioDeviceError: it or PortAudio is missing.
    """
    sounddevice = _sounddevice()
    what = "microphone" if kind == "input" else "loudspeaker"
    try:
        device = sounddevice.query_devices(
            int(name_or_number) if name_or_number and name_or_number.isdigit() else name_or_number, kind
        )
    except (ValueError, sounddevice.PortAudioError):
        names = [d["name"] for d in sounddevice.query_devices() if d[f"max_{kind}_channels"]]
        available = f"this machine has {', '.join(names)}" if names else f"this machine has no {what}: plug one in"
        missing = f"called {name_or_number!r}" if name_or_number else "is set up"
        raise AudioDeviceError(f"no {what} {missing}; {available}") from None
    check = sounddevice.check_input_settings if kind == "input" else sounddevice.check_output_settings
    for rate in _RATES:
        try:
            check(device=device["index"], channels=1, samplerate=rate)
        except sounddevice.PortAudioError:
            continue
        return AudioDevice(int(device["index"]), rate)
    raise AudioDeviceError(f"the {what} {device['name']} supports none of the rates {_RATES} Hz: choose another")


class PlaybackBuffer:
    """Audio that waits for playback. The event loop fills it and the sound card's thread drains it."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._resampler = Resampler(OUTPUT_RATE, rate)
        self._waiting: Samples = np.zeros(0, np.float32)
        self._lock = threading.Lock()

    def add(self, samples: Samples) -> None:
        """Append audio at 24 kHz."""
        converted = self._resampler.push(samples)
        with self._lock:
            self._waiting = np.concatenate((self._waiting, converted))

    def take(self, count: int) -> Samples:
        """The next `count` samples at the device's rate, padded with silence."""
        out = np.zeros(count, np.float32)
        with self._lock:
            ready = self._waiting[:count]
            self._waiting = self._waiting[count:]
        out[: len(ready)] = ready
        return out

    def clear(self) -> float:
        """Discard the waiting audio; returns its length in ms."""
        with self._lock:
            dropped, self._waiting = len(self._waiting), self._waiting[:0]
        return dropped * 1000 / self._rate

    @property
    def playing(self) -> bool:
        """Whether any audio waits for playback."""
        return bool(len(self._waiting))


class LocalConversation:
    """A conversation at this machine.

    Args:
        new_session: makes its session, which calls a function with every event.
        full_duplex: keep listening while the assistant speaks.
        show_line: called with each line of text to show.
    """

    def __init__(
        self,
        new_session: Callable[[Callable[[events.SessionEvent], None]], VoiceSession],
        microphone: AudioDevice,
        loudspeaker: AudioDevice,
        *,
        full_duplex: bool,
        show_line: Callable[[str], None],
    ) -> None:
        self._new_session, self._microphone, self._loudspeaker = new_session, microphone, loudspeaker
        self._full_duplex, self._show_line = full_duplex, show_line
        self._playback = PlaybackBuffer(loudspeaker.rate)
        self._response_item_id = ""

    async def run(self) -> None:
        """Hold the conversation until cancelled. Raises AudioDeviceError if a device cannot be opened."""
        sounddevice = _sounddevice()
        loop = asyncio.get_running_loop()
        session = self._session = self._new_session(self._on_event)

        def on_input(data: Any, frames: int, time: Any, status: Any) -> None:
            loop.call_soon_threadsafe(self._append_input, data[:, 0].copy())

        def on_output(data: Any, frames: int, time: Any, status: Any) -> None:
            data[:, 0] = self._playback.take(frames)

        try:
            with (
                sounddevice.InputStream(callback=on_input, **self._microphone.stream_options),
                sounddevice.OutputStream(callback=on_output, **self._loudspeaker.stream_options),
            ):
                await asyncio.Event().wait()
        except sounddevice.PortAudioError as error:
            raise AudioDeviceError(
                f"the audio device failed ({error}): check that it is plugged in and not in use"
            ) from None
        except asyncio.CancelledError:
            return
        finally:
            await session.close()

    def _append_input(self, samples: Samples) -> None:
        if self._playback.playing and not self._full_duplex:
            samples = np.zeros_like(samples)  # the audio clock continues, but our own voice is muted
        self._session.append(samples, self._microphone.rate)

    def _on_event(self, event: events.SessionEvent) -> None:
        match event:
            case events.SpeechStarted():
                dropped_ms = self._playback.clear()
                if dropped_ms:
                    item = self._session.history.get(self._response_item_id)
                    assert isinstance(item, Item)
                    self._session.truncate(item.id, max(0.0, item.audio_ms - dropped_ms))
            case events.FinalTranscript(text=text) if text:
                self._show_line(f"you: {text}")
            case events.WordsSent(request=request):
                self._show_line(f"(sent to {request.model} at {request.host}: {request.reason})")
            case events.ResponseItemStarted(item=Item() as item):
                self._response_item_id = item.id
            case events.ResponseSources(passages=passages):
                for passage in passages:
                    self._show_line(f"source: {passage.title} ({passage.location})")
            case events.ResponseAudio(samples=samples):
                self._playback.add(samples)
            case events.ResponseDone(item=item, metrics=metrics):
                latency = metrics.latency_ms()
                suffix = f" ({latency:.0f} ms)" if latency is not None else ""
                self._show_line(f"rejoinder: {item.heard_text.strip()}{suffix}")

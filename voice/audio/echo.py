"""Detects the assistant's own voice in the microphone: delayed, quieter and coloured by the room.

Browsers cancel echo themselves; telephones, loudspeakers and other clients do not. The detector compares the microphone
with the audio that was sent. It finds the delay by cross-correlation and the coloration with a short least-squares
(Wiener) filter, and returns how much of the microphone's energy the filtered copy explains. It cancels nothing: it only
keeps a window that is mostly echo from counting as user speech. The user is usually louder than the echo.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, Samples
from voice.audio.input_buffer import InputBuffer
from voice.audio.resampling import Resampler, resample
from voice.audio.vad import Frame

_RATE = 8_000
"""Hz of the comparison. Speech has little energy above 4 kHz, and half the samples take a quarter of the work."""

_WINDOW_S = 0.4
"""Length of microphone audio that is compared: several syllables, which form a distinctive pattern."""

_MAX_LATE_S, _MAX_EARLY_S = 0.8, 0.1
"""How far the echo may be from our own estimate. Late: the network both ways, the player's buffer and the room. Early:
a player that started before we expected it to."""

_TAPS = 96
"""12 ms of filter: loudspeaker, microphone and the first reflections. A longer filter would explain any short sound."""

_HISTORY_S = 2.0
"""Played audio that is kept because its echo may still arrive."""

ECHO_THRESHOLD = 0.5
"""Share of energy from which a window counts as echo. In trials, echo with noise 20 dB below it reached 0.7 and more,
and another voice 0.2 (0.4 for the assistant's voice saying something else). A user 10 dB above the echo stayed below
the threshold."""


@dataclass(frozen=True)
class _PlayedChunk:
    start: float
    samples: Samples

    @property
    def end(self) -> float:
        return self.start + len(self.samples) / _RATE


class EchoDetector:
    """Remembers the audio that one conversation has played.

    Attributes:
        last_echo_end_ms: end of the last window that was classified as echo, on the audio clock.
    """

    def __init__(self) -> None:
        self.last_echo_end_ms = 0
        self._played: deque[_PlayedChunk] = deque()
        self._resampler = Resampler(OUTPUT_RATE, _RATE)

    def add_playback(self, samples: Samples, now: float) -> None:
        """Record audio that was sent to the client: [T] float32 at 24 kHz. It plays after the audio already sent."""
        resampled = self._resampler.push(samples)
        start = max(now, self._played[-1].end if self._played else now)
        self._played.append(_PlayedChunk(start, resampled))
        while self._played and self._played[0].end < now - _HISTORY_S:
            self._played.popleft()

    def stop_playback(self, now: float) -> None:
        """Record that the client was told to stop playing at `now`."""
        chunks = [chunk for chunk in self._played if chunk.start < now]
        if chunks:
            last = chunks[-1]
            chunks[-1] = _PlayedChunk(last.start, last.samples[: int((now - last.start) * _RATE)])
        self._played = deque(chunks)

    def suppress_echo(self, frame: Frame, input_buffer: InputBuffer, threshold: float) -> Frame:
        """Return `frame`, with speech probability 0 if it is mostly our own voice.

        Args:
            input_buffer: the microphone's audio, up to the end of the frame or beyond it.
            threshold: probability from which a frame counts as speech. Other frames are returned unchanged.
        """
        frame_end = input_buffer.time_of(frame.end_ms)
        if frame.probability < threshold or not self.echo_is_possible(frame_end):
            return frame
        excess_ms = input_buffer.end_ms - frame.end_ms
        recent = input_buffer.last(int(_WINDOW_S * 1000) + excess_ms)
        microphone = recent[: len(recent) - excess_ms * RECOGNITION_RATE // 1000]
        if self.echo_share(microphone, frame_end) < ECHO_THRESHOLD:
            return frame
        self.last_echo_end_ms = frame.end_ms
        return replace(frame, probability=0.0)

    def echo_is_possible(self, time: float) -> bool:
        """Whether any played audio can reach the microphone at `time`."""
        return any(chunk.start - _MAX_EARLY_S < time < chunk.end + _MAX_LATE_S for chunk in self._played)

    def echo_share(self, microphone: Samples, end_time: float) -> float:
        """Share of the microphone's energy that the played audio explains, 0 to 1.

        Args:
            microphone: [T] float32 at 16 kHz. The last 400 ms are compared.
            end_time: when its last sample was recorded, on the clock of `add_playback`.
        """
        window = int(_WINDOW_S * _RATE)
        recorded = resample(microphone[-int(_WINDOW_S * RECOGNITION_RATE) :], RECOGNITION_RATE, _RATE)
        mic = recorded[-window:].astype(np.float64)
        if len(mic) < _TAPS or not self.echo_is_possible(end_time):
            return 0.0
        start_time = end_time - len(mic) / _RATE - _MAX_LATE_S
        # Differences suppress a vowel's lowest harmonics, which look alike in any two voices. The rest does not.
        mic, reference = np.diff(mic), np.diff(self._played_between(start_time, end_time + _MAX_EARLY_S))
        energy = float(mic @ mic)
        lags = len(reference) - len(mic)
        if energy <= 0 or lags <= 0 or not reference.any():
            return 0.0
        fft_size = 1 << (len(reference) + len(mic) - 1).bit_length()
        spectrum = np.fft.rfft(reference, fft_size)
        correlation = np.fft.irfft(spectrum * np.conj(np.fft.rfft(mic, fft_size)), fft_size)[: lags + 1]
        power = np.cumsum(np.concatenate(([0.0], reference**2)))
        norm = np.sqrt(power[len(mic) : len(mic) + lags + 1] - power[: lags + 1])
        best = int(np.argmax(np.abs(correlation) / np.maximum(norm, 1e-3 * max(float(norm.max()), 1e-9))))
        # Most of a room's response follows the direct sound, so it correlates with earlier parts of the reference.
        first = min(max(best - _TAPS * 3 // 4, 0), max(lags + 1 - _TAPS, 0))
        return _explained_share(correlation[first : first + _TAPS], reference[first : first + len(mic) + _TAPS], energy)

    def _played_between(self, start_time: float, end_time: float) -> NDArray[np.float64]:
        out = np.zeros(int((end_time - start_time) * _RATE))
        for chunk in self._played:
            offset = round((chunk.start - start_time) * _RATE)
            low, high = max(offset, 0), min(offset + len(chunk.samples), len(out))
            if low < high:
                out[low:high] += chunk.samples[low - offset : high - offset]
        return out


def _explained_share(correlation: NDArray[np.float64], reference: NDArray[np.float64], energy: float) -> float:
    """Share of `energy` that the best filter of the reference explains.

    Solves the normal equations of least squares: the matrix is the reference's autocorrelation, the right-hand side its
    cross-correlation with the microphone at each shift.
    """
    taps = len(correlation)
    fft_size = 1 << (2 * len(reference) - 1).bit_length()
    autocorrelation = np.fft.irfft(np.abs(np.fft.rfft(reference, fft_size)) ** 2, fft_size)[:taps]
    autocorrelation[0] += 1e-3 * autocorrelation[0] + 1e-9
    positions = np.arange(taps)
    weights = np.linalg.solve(autocorrelation[np.abs(positions[:, None] - positions)], correlation)
    return float(np.clip(correlation @ weights / energy, 0.0, 1.0))

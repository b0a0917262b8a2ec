"""Is what the microphone hears the assistant's own voice, coming back delayed, quieter and coloured by the room?

Browsers cancel echo themselves; telephones, loudspeakers and other clients do not. The guard compares the microphone
with what was sent: the delay by cross-correlation, the colour by a short least-squares filter (a Wiener filter), and
the answer is how much of the microphone's energy that filtered copy explains. It cancels nothing: a window that is
mostly echo is only not taken for the user, and the user is usually louder than the echo.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voice.audio import HEARING_RATE, SPEAKING_RATE, Resampler, Samples, resample
from voice.listening import InputBuffer
from voice.vad import Frame

_RATE = 8_000
"""Hz of the comparison: speech has little above 4 kHz, and half of the samples are a quarter of the work."""

_WINDOW_S = 0.4
"""Microphone sound that is looked at. Long enough for several syllables, whose pattern is like no other's."""

_LATEST_S, _EARLIEST_S = 0.8, 0.1
"""How much later than our own count the echo may come (the network both ways, the player's buffer, the room), and how
much earlier (a player that began before we counted on it)."""

_TAPS = 96
"""12 ms of filter: loudspeaker, microphone and the first reflections. More would explain anything that is short."""

_KEPT_S = 2.0
"""Sound that was played and may still come back."""

MOSTLY = 0.5
"""Share of energy from which a window counts as echo. In trials echo with noise 20 dB below it came to 0.7 and more,
another voice to 0.2 (the assistant's own voice saying something else: 0.4), a user 10 dB above the echo to less."""


@dataclass(frozen=True)
class _Played:
    start: float
    sound: Samples

    @property
    def end(self) -> float:
        return self.start + len(self.sound) / _RATE


class EchoGuard:
    """Remembers what one conversation has played.

    Attributes:
        until_ms: end of the last window that was taken for an echo, on the audio clock.
    """

    def __init__(self) -> None:
        self.until_ms = 0
        self._played: deque[_Played] = deque()
        self._resampler = Resampler(SPEAKING_RATE, _RATE)

    def play(self, samples: Samples, now: float) -> None:
        """The client was sent [T] float32 at 24 kHz, to be played behind what it has."""
        sound = self._resampler.push(samples)
        start = max(now, self._played[-1].end if self._played else now)
        self._played.append(_Played(start, sound))
        while self._played and self._played[0].end < now - _KEPT_S:
            self._played.popleft()

    def cut(self, now: float) -> None:
        """The client was told to fall silent."""
        kept = [piece for piece in self._played if piece.start < now]
        if kept:
            last = kept[-1]
            kept[-1] = _Played(last.start, last.sound[: int((now - last.start) * _RATE)])
        self._played = deque(kept)

    def filter(self, frame: Frame, heard: InputBuffer, threshold: float) -> Frame:
        """`frame`, without speech where it holds mostly our own voice.

        Args:
            heard: the microphone's sound, up to the end of the frame and maybe further.
            threshold: probability from which a frame counts as speech; others are nobody's.
        """
        at = heard.time_of(frame.end_ms)
        if frame.probability < threshold or not self.may_be_heard(at):
            return frame
        behind = heard.end_ms - frame.end_ms
        sound = heard.last(int(_WINDOW_S * 1000) + behind)
        if self.share(sound[: len(sound) - behind * HEARING_RATE // 1000], at) < MOSTLY:
            return frame
        self.until_ms = frame.end_ms
        return replace(frame, probability=0.0)

    def may_be_heard(self, at: float) -> bool:
        """Whether anything that was played can arrive at the microphone at `at`."""
        return any(piece.start - _EARLIEST_S < at < piece.end + _LATEST_S for piece in self._played)

    def share(self, heard: Samples, at: float) -> float:
        """How much of the energy of `heard` what was played explains, 0 to 1.

        Args:
            heard: [T] float32 at 16 kHz from the microphone; its last 400 ms are looked at.
            at: when its last sample was spoken, on the clock of `play`.
        """
        wanted = int(_WINDOW_S * _RATE)
        mic = resample(heard[-int(_WINDOW_S * HEARING_RATE) :], HEARING_RATE, _RATE)[-wanted:].astype(np.float64)
        if len(mic) < _TAPS or not self.may_be_heard(at):
            return 0.0
        begin = at - len(mic) / _RATE - _LATEST_S
        # Differences: a vowel's lowest harmonics look alike in any two voices, what is above them does not.
        mic, reference = np.diff(mic), np.diff(self._between(begin, at + _EARLIEST_S))
        energy = float(mic @ mic)
        lags = len(reference) - len(mic)
        if energy <= 0 or lags <= 0 or not reference.any():
            return 0.0
        size = 1 << (len(reference) + len(mic) - 1).bit_length()
        spectrum = np.fft.rfft(reference, size)
        alike = np.fft.irfft(spectrum * np.conj(np.fft.rfft(mic, size)), size)[: lags + 1]
        power = np.cumsum(np.concatenate(([0.0], reference**2)))
        loudness = np.sqrt(power[len(mic) : len(mic) + lags + 1] - power[: lags + 1])
        best = int(np.argmax(np.abs(alike) / np.maximum(loudness, 1e-3 * max(float(loudness.max()), 1e-9))))
        # Most of a room's answer comes behind the direct sound: it is made of earlier stretches of the reference.
        first = min(max(best - _TAPS * 3 // 4, 0), max(lags + 1 - _TAPS, 0))
        return _explained(alike[first : first + _TAPS], reference[first : first + len(mic) + _TAPS], energy)

    def _between(self, begin: float, end: float) -> NDArray[np.float64]:
        out = np.zeros(int((end - begin) * _RATE))
        for piece in self._played:
            at = round((piece.start - begin) * _RATE)
            lo, hi = max(at, 0), min(at + len(piece.sound), len(out))
            if lo < hi:
                out[lo:hi] += piece.sound[lo - at : hi - at]
        return out


def _explained(alike: NDArray[np.float64], reference: NDArray[np.float64], energy: float) -> float:
    """Share of `energy` that the best filter of the reference makes, from how alike each of its shifts is: the normal
    equations of least squares, with the reference's autocorrelation for their matrix."""
    count = len(alike)
    size = 1 << (2 * len(reference) - 1).bit_length()
    own = np.fft.irfft(np.abs(np.fft.rfft(reference, size)) ** 2, size)[:count]
    own[0] += 1e-3 * own[0] + 1e-9
    places = np.arange(count)
    weights = np.linalg.solve(own[np.abs(places[:, None] - places)], alike)
    return float(np.clip(alike @ weights / energy, 0.0, 1.0))

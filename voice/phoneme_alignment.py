"""Finds where each phoneme is in speech whose synthesizer does not say: a small classifier of sounds, and the best path
through the phonemes that must occur in this order (Viterbi).

The classifier (phoneme_alignment.json) is trained by `python -m lab.benchmarks.word_times --train`, on voices that say.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.audio.resampling import resample
from voice.pronunciation import Pronunciation, is_pause, sounds

Floats = NDArray[np.float32]

HOP = RECOGNITION_RATE // 100
"""Samples from one frame to the next, 10 ms."""

_WINDOW, _FFT = 400, 512
_BANDS, _LOWEST_HZ, _HIGHEST_HZ = 24, 80.0, 7600.0

_HALF_GAP = 2.1
"""Frames that a space takes from the sound on either side where no pause is heard: synthesizers let it last, too. Tuned
like the weights."""

_SCORE_WEIGHT, _SHARE_WEIGHT = 3.0, 0.5
"""Of the sounds against their durations, and of how common each sound is: tuned on the sentences of the training."""

CONTEXT = (-4, -2, -1, 0, 1, 2, 4)
"""Frames around each that the classifier sees."""

SOUNDS = (
    "", "ptkcqʔʈ", "bdgɡɖɟɢɓɗɠTɾ", "mnŋɱɲɳɴ", "fθɸhɦħ", "vðβʋ", "szʂʐɬ", "ʃʒɕʑçʝxχɣ", "lɫɭʎʟ", "ɹrɻɽʀʁɚɝɜ", "wʍɰ",
    "jɥ", "iɪyʏɨ", "eɛœøɘ", "æa", "ɑɒʌɐ", "ɔoɤ", "uʊʉɯ", "əᵻᵊɵ",
)  # fmt: skip
"""Symbols that sound alike; the first are pauses."""

_CLASSES = {symbol: number for number, symbols in enumerate(SOUNDS) for symbol in symbols}


@dataclass(frozen=True)
class SoundClassifier:
    """Log-likelihood of each class of `SOUNDS` in a frame, up to a constant: one hidden layer.

    Attributes:
        layers: weights and bias of both layers.
        log_share: logarithm of how common each class is.
        frames: how many frames a sound of each class lasts, on average.
    """

    layers: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
    log_share: Floats
    frames: Floats

    def __call__(self, features: Floats) -> Floats:
        """[T, classes] for features [T, F]."""
        (weights, bias), (last_weights, last_bias) = self.layers
        scores = np.maximum(features @ weights + bias, 0.0) @ last_weights + last_bias
        scores -= scores.max(axis=1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        weighted: Floats = _SCORE_WEIGHT * (scores - _SHARE_WEIGHT * self.log_share)
        return weighted


def aligned(spoken: Pronunciation, rate: int) -> Pronunciation:
    """What was spoken, with the length of each symbol."""
    states, owners = _states(spoken.symbols)
    frames = features(spoken.samples, rate)
    if len(states) == 0 or len(frames) < len(states):
        share = np.full(len(spoken.symbols), len(spoken.samples) / max(1, len(spoken.symbols)))
        return replace(spoken, lengths=share)
    path = _best_path(classifier()(frames), states, classifier().frames)
    counts = np.bincount([owners[state] for state in path], minlength=len(spoken.symbols)).astype(np.float64)
    sounding = np.flatnonzero(counts)
    for space in (n for n, symbol in enumerate(spoken.symbols) if symbol == " " and not counts[n]):
        after = int(np.searchsorted(sounding, space))
        for neighbour in sounding[max(0, after - 1) : after + 1]:
            taken = min(_HALF_GAP, counts[neighbour] / 2)
            counts[neighbour] -= taken
            counts[space] += taken
    return replace(spoken, lengths=counts * (HOP * rate / RECOGNITION_RATE))


def features(samples: Samples, rate: int) -> Floats:
    """What the classifier sees: [T, bands × context] logarithmic mel energies, normalized, a frame for each 10 ms."""
    audio = samples if rate == RECOGNITION_RATE else resample(samples, rate, RECOGNITION_RATE)
    margin = (_WINDOW - HOP) // 2
    padded = np.pad(audio, (margin, margin + HOP))
    count = len(audio) // HOP
    if not count:
        return np.zeros((0, _BANDS * len(CONTEXT)), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[: count * HOP : HOP]
    spectrum = np.fft.rfft(windows * np.hanning(_WINDOW).astype(np.float32), _FFT)
    energy = (np.square(spectrum.real) + np.square(spectrum.imag)).astype(np.float32)
    mel = np.log(energy @ _filters() + 1e-6)
    mel = (mel - mel.mean(axis=0)) / (mel.std() + 1e-3)
    positions = np.clip(np.arange(count)[:, None] + np.array(CONTEXT), 0, count - 1)
    seen: Floats = mel[positions].reshape(count, -1)
    return seen


def sound_classes(symbols: Sequence[str]) -> list[list[int]]:
    """The classes of the sounds that each symbol stands for; none for signs of stress and length."""
    return [
        [0] if is_pause(symbol) else [_CLASSES[part] for part in sounds(symbol) if part in _CLASSES]
        for symbol in symbols
    ]


def _states(symbols: Sequence[str]) -> tuple[NDArray[np.int64], list[int]]:
    """The classes of the sounds in order, and the symbol of each. There is one pause between sounds at most."""
    states, owners = list[int](), list[int]()
    for number, classes in enumerate(sound_classes(symbols)):
        for sound in classes:
            if sound or not states or states[-1]:
                states.append(sound)
                owners.append(number)
    return np.array(states), owners


def _best_path(scores: Floats, states: NDArray[np.int64], frames: Floats) -> NDArray[np.int64]:
    """The state of each frame. All states occur, in order, but pauses may be left out.

    Args:
        scores: [T, classes], log-likelihoods.
        states: [S], their classes.
        frames: [classes], mean duration.
    """
    count, length = len(states), len(scores)
    weights = np.full((3, count), -np.inf)  # of staying in a state, and of coming from the one or two before it
    weights[0] = np.log1p(-1 / frames)[states]
    weights[1, 1:] = np.log(1 / frames)[states[:-1]]
    weights[2, 2:] = np.where(states[1:-1] == 0, weights[1, 1:-1], -np.inf)  # over a pause
    emitted = scores[:, states]
    padded = np.full(count + 2, -np.inf)
    best = padded[2:]
    previous = np.lib.stride_tricks.sliding_window_view(padded, count)[::-1]
    best[0] = emitted[0, 0]
    if count > 1 and states[0] == 0:
        best[1] = emitted[0, 1]
    came_from = np.zeros((length, count), np.int8)
    candidates, largest = np.empty((3, count)), np.empty(count)
    for came, likelihood in zip(came_from[1:], emitted[1:], strict=True):
        np.add(previous, weights, out=candidates)
        candidates.argmax(axis=0, out=came)
        candidates.max(axis=0, out=largest)
        np.add(largest, likelihood, out=best)
    state = count - 1
    if count > 1 and states[-1] == 0 and best[-2] > best[-1]:
        state -= 1
    path = np.empty(length, np.int64)
    for frame in range(length - 1, -1, -1):
        path[frame] = state
        state -= came_from[frame, state]
    return path


@cache
def classifier() -> SoundClassifier:
    """The trained classifier."""
    stored = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

    def matrix(name: str) -> Floats:
        values = np.frombuffer(base64.b64decode(stored[name]["int8"]), np.int8).astype(np.float32)
        return (values * np.float32(stored[name]["scale"])).reshape(stored[name]["shape"])

    layers = tuple((matrix(f"weights_{n}"), np.array(stored[f"bias_{n}"], np.float32)) for n in (1, 2))
    log_share, frames = (np.array(stored[name], np.float32) for name in ("log_share", "frames"))
    return SoundClassifier((layers[0], layers[1]), log_share, frames)


@cache
def _filters() -> Floats:
    """Triangular filters, evenly spaced on the mel scale: [FFT bins, bands]."""
    lowest, highest = (2595 * math.log10(1 + hz / 700) for hz in (_LOWEST_HZ, _HIGHEST_HZ))
    mel = np.linspace(lowest, highest, _BANDS + 2)
    edges = (700 * (10 ** (mel / 2595) - 1))[:, None]
    bins = np.arange(_FFT // 2 + 1) * RECOGNITION_RATE / _FFT
    rising, falling = (
        (bins - edges[:-2]) / (edges[1:-1] - edges[:-2]),
        (edges[2:] - bins) / (edges[2:] - edges[1:-1]),
    )
    filters: Floats = np.maximum(0.0, np.minimum(rising, falling)).T.astype(np.float32)
    return filters

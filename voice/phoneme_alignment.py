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

from voice.audio.codec import Samples
from voice.pronunciation import Pronunciation, is_pause, sounds

Floats = NDArray[np.float32]

FRAMES_PER_S = 100

_WINDOW_S = 0.025
"""About: a window has a power of two samples."""

_BLOCK = 64
"""Frames whose spectra fit into the processor's cache: all at once take three times as long."""

_BANDS, _LOWEST_HZ, _HIGHEST_HZ = 24, 80.0, 7600.0

_HALF_GAP = 2.1
"""Frames that a space takes from the sound on either side where no pause is heard: synthesizers let it last, too. Tuned
like the weights."""

_QUIET = 0.01
"""Frames with less energy than this share of loud ones are pauses, which have different levels in each voice."""

_LEAST_SHARE = 0.6
"""A sound lasts at least this share of what it does on average: a soft end of a word is not left to the pause."""

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
    ends = _best_ends(classifier()(frames), states, classifier().frames)
    counts = np.bincount(owners, np.diff(ends, prepend=0), len(spoken.symbols))
    sounding = np.flatnonzero(counts)
    for space in (n for n, symbol in enumerate(spoken.symbols) if symbol == " " and not counts[n]):
        after = int(np.searchsorted(sounding, space))
        for neighbour in sounding[max(0, after - 1) : after + 1]:
            taken = min(_HALF_GAP, counts[neighbour] / 2)
            counts[neighbour] -= taken
            counts[space] += taken
    return replace(spoken, lengths=(counts * (rate / FRAMES_PER_S)).astype(np.float64))


def features(samples: Samples, rate: int) -> Floats:
    """What the classifier sees: [T, bands × context] logarithmic mel energies, a frame for each 10 ms. They are
    normalized by what is heard of the voice between pauses."""
    count = len(samples) * FRAMES_PER_S // rate
    if not count:
        return np.zeros((0, _BANDS * len(CONTEXT)), np.float32)
    filters = _filters(rate)
    size = 2 * len(filters) - 2
    padded = np.pad(samples, ((size - rate // FRAMES_PER_S) // 2, size))
    starts = np.arange(count) * rate // FRAMES_PER_S
    windows, taper = np.lib.stride_tricks.sliding_window_view(padded, size), np.hanning(size).astype(np.float32)
    energy = np.empty((count, _BANDS), np.float32)
    for first in range(0, count, _BLOCK):
        spectrum = np.fft.rfft(windows[starts[first : first + _BLOCK]] * taper)
        energy[first : first + _BLOCK] = (np.square(spectrum.real) + np.square(spectrum.imag)) @ filters
    mel, loudness = np.log(energy + 1e-6), energy.sum(axis=1)
    mel -= mel[heard := loudness >= _QUIET * np.percentile(loudness, 90)].mean(axis=0)
    mel /= mel[heard].std() + 1e-3
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


def _best_ends(scores: Floats, states: NDArray[np.int64], frames: Floats) -> NDArray[np.int64]:
    """The frame that each state ends before. All states occur, in order, and sounds have a least duration, less in fast
    speech. Pauses may be left out: those end where the state before them ends.

    One state after the other, with all frames at once: where it is best entered is the same for all later ends, up to
    the sum of its scores, so a running maximum finds it.

    Args:
        scores: [T, classes], log-likelihoods.
        states: [S], their classes.
        frames: [classes], mean duration.
    """
    count, length = len(states), len(scores)
    stay, leave = np.log1p(-1 / frames), np.log(1 / frames)
    pace = min(1.0, length / float(frames[states].sum()))
    least = np.where(states > 0, np.maximum(1, _LEAST_SHARE * pace * frames[states]), 1).astype(np.int64).tolist()
    if sum(least) > length:
        least = [1] * count
    sums = np.zeros((length + 1, scores.shape[1]))
    np.cumsum(scores + stay, axis=0, out=sums[1:])
    entered = np.empty((count, length))  # the best score if a state begins at a frame, less the sum up to there
    ended = np.full((count + 1, length + 1), -np.inf)  # the best score if it ends before a frame; the last: none yet
    ended[-1, 0] = 0.0
    for number, state in enumerate(states.tolist()):
        before = ended[number - 1, :length]
        if number and states[number - 1] == 0:
            before = np.maximum(before, ended[number - 2, :length])
        np.subtract(before, sums[:length, state], out=entered[number])
        best = np.maximum.accumulate(entered[number, : length + 1 - least[number]])
        np.add(best, sums[least[number] :, state], out=ended[number, least[number] :])
        ended[number] += leave[state] - stay[state]
    ends, end = np.empty(count, np.int64), length
    for number in range(count - 1, -1, -1):
        ends[number] = end
        if states[number] or ended[number, end] >= ended[number - 1, end]:
            end = int(entered[number, : end + 1 - least[number]].argmax())
    return ends


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
def _filters(rate: int) -> Floats:
    """Triangular filters, evenly spaced on the mel scale: [FFT bins, bands]."""
    size = 2 ** round(math.log2(_WINDOW_S * rate))
    lowest, highest = (2595 * math.log10(1 + hz / 700) for hz in (_LOWEST_HZ, _HIGHEST_HZ))
    mel = np.linspace(lowest, highest, _BANDS + 2)
    edges = (700 * (10 ** (mel / 2595) - 1))[:, None]
    bins = np.arange(size // 2 + 1) * rate / size
    rising, falling = (
        (bins - edges[:-2]) / (edges[1:-1] - edges[:-2]),
        (edges[2:] - bins) / (edges[2:] - edges[1:-1]),
    )
    filters: Floats = np.maximum(0.0, np.minimum(rising, falling)).T.astype(np.float32)
    return filters

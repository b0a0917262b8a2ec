"""When each word of a transcript was spoken, and how certain the recognizer is of it.

The decoder's cross-attention follows the audio as it writes. CTranslate2's `align` finds the best monotonic path
through it (dynamic time warping, as in `whisper/timing.py` of openai/whisper); here its steps become words. That path
gives every pause to one of the words around it, so pauses are then cut off by their loudness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from voice.audio.codec import RECOGNITION_RATE, Samples

if TYPE_CHECKING:
    from ctranslate2 import StorageView
    from faster_whisper import WhisperModel
    from faster_whisper.tokenizer import Tokenizer

_FRAMES_PER_S = 50
"""Encoder frames per second, two mel frames each."""

_MIN_PROBABILITY = 1e-9
"""Keeps the logarithm finite."""

_UNSPACED_LANGUAGES = ("zh", "ja", "th", "lo", "my", "yue")
"""Languages that are written without spaces: there every character counts as a word, as in Whisper."""

_LOUDNESS_FRAMES_PER_S = 100

_MIN_PAUSE_FRAMES = 15
"""Shorter silences are consonants, and the boundaries of the attention are kept."""

_RESIDUE_FRAMES = 10
"""Less sound than this beyond a pause belongs to the word next to it: the attention is that inexact."""

_EDGE_FRAMES = 2
"""Kept before and after a word that a pause limits: words begin and end softly."""

_QUIETEST_DB, _LOUD_SHARE, _MIN_RANGE_DB = 60.0, 0.4, 12.0
"""What counts as loud: frames that are above this share of the way from the background (but at most so far below the
speech) to the speech, in dB. If the two are closer than the last figure, pauses cannot be told from words."""


@dataclass(frozen=True)
class TokenLogprob:
    """A token of a transcript, and the natural logarithm of its probability."""

    token: str
    logprob: float


@dataclass(frozen=True)
class Word:
    """A word of a transcript. Times are seconds from the start of the turn's audio."""

    text: str
    start_s: float
    end_s: float
    tokens: tuple[TokenLogprob, ...]

    @property
    def confidence(self) -> float:
        """The probability that its tokens have on average, geometrically; 0 to 1."""
        return math.exp(sum(token.logprob for token in self.tokens) / len(self.tokens)) if self.tokens else 0.0

    def shifted(self, seconds: float) -> Word:
        """The word in audio that begins so much earlier."""
        return replace(self, start_s=self.start_s + seconds, end_s=self.end_s + seconds)


def align_words(
    model: WhisperModel, tokenizer: Tokenizer, encoded: StorageView, text: str, mel_frames: int
) -> list[Word]:
    """Find the words of `text` in the audio.

    Args:
        encoded: the encoder's output for the audio.
        mel_frames: length of the audio, without padding.
    """
    ids = tokenizer.encode(f" {text.strip()}")
    if not ids:
        return []
    (result,) = model.model.align(encoded, tokenizer.sot_sequence, [ids], mel_frames)
    token_index = np.array([pair[0] for pair in result.alignments])
    frame_index = np.array([pair[1] for pair in result.alignments])
    first_frames = np.array([frame_index[np.argmax(token_index == n)] for n in range(int(token_index.max()) + 1)])
    starts = np.append(first_frames, frame_index[-1])  # a token ends where the next one starts
    aligned, position = [], 0
    for word, tokens in _words(tokenizer, ids):
        end = min(position + len(tokens), len(starts) - 1)
        probabilities = result.text_token_probs[position : position + len(tokens)]
        logprobs = tuple(
            TokenLogprob(tokenizer.decode([token]), math.log(max(probability, _MIN_PROBABILITY)))
            for token, probability in zip(tokens, probabilities, strict=False)
        )
        start_s, end_s = starts[min(position, len(starts) - 1)] / _FRAMES_PER_S, starts[end] / _FRAMES_PER_S
        aligned.append(Word(word, float(start_s), float(end_s), logprobs))
        position += len(tokens)
    return aligned


def _words(tokenizer: Tokenizer, ids: list[int]) -> list[tuple[str, list[int]]]:
    """The words of a transcript and their tokens. Punctuation belongs to the word that it is attached to."""
    spaced = tokenizer.language_code not in _UNSPACED_LANGUAGES
    words: list[tuple[str, list[int]]] = []
    pieces, piece_ids = tokenizer.split_to_word_tokens([*ids, tokenizer.eot])
    opening = False  # the previous piece is punctuation that begins a word
    for piece, tokens in zip(pieces[:-1], piece_ids[:-1], strict=True):  # the last one is the end token
        attached = not piece.startswith(" ") if spaced else not any(map(str.isalnum, piece))
        if words and (attached or opening):
            words[-1] = (words[-1][0] + piece, [*words[-1][1], *tokens])
        else:
            words.append((piece.strip(), tokens))
        opening = not any(map(str.isalnum, words[-1][0]))
    return words


def without_pauses(words: list[Word], audio: Samples) -> list[Word]:
    """The words, without the silence that the alignment has given to them.

    Args:
        audio: [T] float32 at 16 kHz, which the words were aligned with.
    """
    size = RECOGNITION_RATE // _LOUDNESS_FRAMES_PER_S
    frames = audio[: len(audio) // size * size].reshape(-1, size)
    if not len(frames):
        return words
    loudness = 10 * np.log10(np.mean(np.square(frames), axis=1) + 1e-12)
    background, speech = np.percentile(loudness, (10, 90))
    background = max(background, speech - _QUIETEST_DB)
    if speech - background < _MIN_RANGE_DB:
        return words
    loud = loudness > background + _LOUD_SHARE * (speech - background)
    return [_without_pauses(word, loud) for word in words]


def _without_pauses(word: Word, loud: NDArray[np.bool_]) -> Word:
    """A word without the pauses before and after it. Pauses inside remain: `5-5-5` is one word."""
    first, last = int(word.start_s * _LOUDNESS_FRAMES_PER_S), int(word.end_s * _LOUDNESS_FRAMES_PER_S)
    positions = first + np.flatnonzero(loud[first:last])
    if not len(positions):
        return word
    stretches = np.split(positions, 1 + np.flatnonzero(np.diff(positions) > _MIN_PAUSE_FRAMES))
    shortest = min(_RESIDUE_FRAMES, max(map(len, stretches)) / 2)
    own = np.concatenate([stretch for stretch in stretches if len(stretch) >= shortest])
    if own[0] - first > _MIN_PAUSE_FRAMES:
        word = replace(word, start_s=float(own[0] - _EDGE_FRAMES) / _LOUDNESS_FRAMES_PER_S)
    if last - own[-1] > _MIN_PAUSE_FRAMES:
        word = replace(word, end_s=float(own[-1] + 1 + _EDGE_FRAMES) / _LOUDNESS_FRAMES_PER_S)
    return word

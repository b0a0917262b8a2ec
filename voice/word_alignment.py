"""When each word of a transcript was spoken, and how certain the recognizer is of it.

The decoder's cross-attention follows the audio as it writes. CTranslate2's `align` finds the best monotonic path
through it (dynamic time warping, as in `whisper/timing.py` of openai/whisper); here its steps become words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from ctranslate2 import StorageView
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer

_FRAMES_PER_S = 50
"""Encoder frames per second, two mel frames each."""

_MIN_PROBABILITY = 1e-9
"""Keeps the logarithm finite."""


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
    words, word_ids = tokenizer.split_to_word_tokens([*ids, tokenizer.eot])
    aligned, position = [], 0
    for word, tokens in zip(words[:-1], word_ids[:-1], strict=True):  # the last one is the end token
        end = min(position + len(tokens), len(starts) - 1)
        probabilities = result.text_token_probs[position : position + len(tokens)]
        logprobs = tuple(
            TokenLogprob(tokenizer.decode([token]), math.log(max(probability, _MIN_PROBABILITY)))
            for token, probability in zip(tokens, probabilities, strict=False)
        )
        start_s, end_s = starts[min(position, len(starts) - 1)] / _FRAMES_PER_S, starts[end] / _FRAMES_PER_S
        aligned.append(Word(word.strip(), float(start_s), float(end_s), logprobs))
        position += len(tokens)
    return aligned

"""The recognizer's own end of words: how long ago the last word of an interim transcript ended."""

from __future__ import annotations

from lab.benchmarks.noisy_turns.turns import NoisyTurn
from voice.asr import INTERIM_WINDOW, Recognizer
from voice.audio.codec import RECOGNITION_RATE

_PREFIX_MS = 300.0
"""Audio before the speech, as a session keeps it."""


def last_word_age_ms(turn: NoisyTurn, recognizer: Recognizer, after_ms: float) -> float | None:
    """From the end of the last word, by Whisper's timestamp, to the end of the audio; None if it recognized nothing.

    Args:
        after_ms: the end of the audio, from the true end of the speech.
    """
    start, end = turn.speech_start_ms - _PREFIX_MS, turn.speech_end_ms + after_ms
    first, last = (round(ms * RECOGNITION_RATE / 1000) for ms in (start, end))
    segments = recognizer.transcribe(turn.audio[first:last], INTERIM_WINDOW)
    return end - start - 1000 * segments[-1].end_s if segments else None

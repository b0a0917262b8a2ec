"""The times of words and visemes as clients get them: of a conversation's response, and of synthesized text."""

from __future__ import annotations

from typing import Any

from voice.speech_times import SpeechTimes


def word_times(times: SpeechTimes) -> list[dict[str, Any]]:
    """The words that are heard, with times in ms."""
    return [
        {"word": word.text, "start_ms": round(word.start_ms), "end_ms": round(word.end_ms)}
        for word in times.words
        if word.is_heard
    ]


def viseme_times(times: SpeechTimes) -> list[dict[str, Any]]:
    """The shapes of the mouth, with times in ms."""
    return [
        {
            "viseme": viseme.shape,
            "azure_id": viseme.azure_id,
            "start_ms": round(viseme.start_ms),
            "end_ms": round(viseme.end_ms),
        }
        for viseme in times.visemes
    ]

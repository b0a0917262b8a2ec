"""Transcribes recordings of any length. Live speech is transcribed by `voice.asr.Utterance`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from dataclasses import replace

from voice.asr import Recognizer, Segment
from voice.audio.codec import PCM16, RECOGNITION_RATE, from_pcm16

_CHUNK_S = 28.0
"""The recognizer ignores what lies beyond."""

_MIN_ADVANCE_S = 1.0


async def transcribe_recording(recognizer: Recognizer, audio: PCM16, executor: Executor) -> AsyncIterator[Segment]:
    """The segments of a recording, as they are transcribed; times are from its start.

    A chunk that ends in the middle of a segment is cut before that segment, which the next chunk repeats.

    Args:
        audio: at 16 kHz.
        executor: runs the recognizer.
    """
    loop, first = asyncio.get_running_loop(), 0
    while first < len(audio):
        start = first / RECOGNITION_RATE
        chunk = from_pcm16(audio[first : first + int(_CHUNK_S * RECOGNITION_RATE)].tobytes())
        segments = await loop.run_in_executor(executor, recognizer.transcribe, chunk)
        advance = len(chunk)
        if first + len(chunk) < len(audio) and len(segments) > 1:
            segments = segments[:-1]
            advance = int(max(segments[-1].end_s, _MIN_ADVANCE_S) * RECOGNITION_RATE)
        for segment in segments:
            end_s = min(segment.end_s + start, len(audio) / RECOGNITION_RATE)
            yield replace(segment, start_s=segment.start_s + start, end_s=end_s)
        first += advance

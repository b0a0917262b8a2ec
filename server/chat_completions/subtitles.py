"""Transcripts with times, as SubRip and WebVTT subtitles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from voice.asr import Segment


def _time(seconds: float, decimal: str) -> str:
    milliseconds = round(seconds * 1000)
    hours, milliseconds = divmod(milliseconds, 3_600_000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02}{decimal}{milliseconds % 1000:03}"


def _srt(segments: Sequence[Segment]) -> str:
    return "\n".join(
        f"{n}\n{_time(segment.start_s, ',')} --> {_time(segment.end_s, ',')}\n{segment.text}\n"
        for n, segment in enumerate(segments, 1)
    )


def _vtt(segments: Sequence[Segment]) -> str:
    cues = (f"{_time(segment.start_s, '.')} --> {_time(segment.end_s, '.')}\n{segment.text}\n" for segment in segments)
    return "\n".join(("WEBVTT\n", *cues))


SUBTITLES: dict[str, Callable[[Sequence[Segment]], str]] = {"srt": _srt, "vtt": _vtt}
"""The formats by their names in OpenAI's API."""

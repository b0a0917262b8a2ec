"""The pieces in which a response is sent: text with its audio, and what of them the user has not heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from voice.audio.codec import OUTPUT_RATE
from voice.history import Item
from voice.speech_times import NO_SPEECH, Speech

_REPEAT_MS = 200
"""A resumed response repeats this much: the word that was interrupted."""


@dataclass(frozen=True)
class Chunk:
    """Text, and how it is spoken; a written response has no speech."""

    text: str
    speech: Speech = field(default=NO_SPEECH)

    @property
    def ms(self) -> float:
        """Length of the audio."""
        return self.speech.ms


def unheard_chunks(sent: Sequence[Chunk], item: Item) -> list[Chunk]:
    """What was sent of a message, one span of it for each chunk, and not heard. What was written is read at once."""
    if not item.spans:
        return []
    unheard: list[Chunk] = []
    for chunk, span in zip(sent, item.spans, strict=True):
        if item.heard_ms is None or item.heard_ms >= span.end_ms:
            continue
        if item.heard_ms <= span.start_ms:
            unheard.append(chunk)
            continue
        heard_text = span.text_heard_by(item.heard_ms)
        start_ms = max(0.0, item.heard_ms - span.start_ms - _REPEAT_MS)
        speech = chunk.speech
        audio = speech.audio[int(start_ms * OUTPUT_RATE / 1000) :]
        rest = Speech(audio, speech.times.after(start_ms, len(heard_text.split())))
        unheard.append(Chunk(chunk.text[len(heard_text) :], rest))
    return unheard

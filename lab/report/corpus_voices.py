"""Who speaks the built-in corpus: which voices by default, and which of them speaks which line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from lab.report.corpus_lines import Line
from model.hub import catalog
from model.hub.store import ModelStore

SINGLE_VOICE = catalog.PIPER_JOE.name
"""Speaks the whole corpus where Kokoro is not installed, and did before there were other voices."""

ALL_VOICES = (SINGLE_VOICE, "kokoro:af_heart", "kokoro:bm_george", "kokoro:bf_emma")
"""A man and a woman each from America and Britain, from two synthesizers."""


def default_voices(store: ModelStore) -> tuple[str, ...]:
    """All voices if Kokoro is installed, otherwise the single one."""
    return (SINGLE_VOICE,) if store.availability(catalog.KOKORO) == "not installed" else ALL_VOICES


def assign_voices(lines: Sequence[Line], voices: Sequence[str]) -> list[str]:
    """The voice of each line. The lines of a kind go round the voices, so that each kind has all of them, and every
    round begins with another voice, so that voices and what alternates within a kind, such as the background, mix."""
    assigned: list[str] = []
    for _, group in groupby(lines, lambda line: line.kind):
        first = len(assigned)
        assigned += [voices[(first + n + n // len(voices)) % len(voices)] for n, _ in enumerate(group)]
    return assigned

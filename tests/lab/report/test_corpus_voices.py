"""Which voice speaks which line of the corpus."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lab.report.corpus_lines import KINDS, LINES
from lab.report.corpus_voices import ALL_VOICES, SINGLE_VOICE, assign_voices, default_voices
from model.hub import catalog
from model.hub.store import ModelStore


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_every_kind_has_every_voice_and_voices_have_about_as_many_turns(count: int) -> None:
    voices = [f"voice {n}" for n in range(count)]
    assigned = assign_voices(LINES, voices)
    for kind in KINDS:
        assert {voice for voice, line in zip(assigned, LINES, strict=True) if line.kind == kind} == set(voices)
    turns = Counter(assigned).values()
    assert max(turns) - min(turns) <= 3


def test_every_voice_speaks_over_both_backgrounds() -> None:
    assigned = assign_voices(LINES, ALL_VOICES)
    heard = {(voice, line.background) for voice, line in zip(assigned, LINES, strict=True) if line.background}
    assert heard == {(voice, background) for voice in ALL_VOICES for background in ("pink", "babble")}


def test_the_voices_are_women_and_men_from_two_countries_and_those_of_the_catalog() -> None:
    kinds = {name.partition(":")[2][:2] for name in ALL_VOICES if name != SINGLE_VOICE}
    assert {"af", "bm", "bf"} <= kinds
    for name in ALL_VOICES:
        assert catalog.find_model(name, "voice")


def test_without_kokoro_one_voice_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for availability, voices in (("not installed", (SINGLE_VOICE,)), ("installed", ALL_VOICES), ("ready", ALL_VOICES)):
        monkeypatch.setattr(ModelStore, "availability", lambda store, model, state=availability: state)
        assert default_voices(ModelStore(tmp_path)) == voices

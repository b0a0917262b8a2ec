"""The built-in corpus with a fake voice, and the selection of turns."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from lab.report import corpus as corpus_module
from lab.report.corpus import SpokenTurn, bounds_ms, built_in, select_turns
from lab.report.corpus_lines import KINDS
from tests.lab.report.samples import FakeSynthesizer, tone
from voice.audio.codec import OUTPUT_RATE, BadAudio


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> list[SpokenTurn]:
    return built_in(lambda name: FakeSynthesizer(), tmp_path_factory.mktemp("corpus"), ["fake"])


def test_the_corpus_has_at_least_sixty_turns_and_every_kind(turns: list[SpokenTurn]) -> None:
    assert len(turns) >= 60
    assert {turn.kind for turn in turns} == set(KINDS)
    assert len({turn.name for turn in turns}) == len(turns)


def test_all_speech_lies_between_the_labels(turns: list[SpokenTurn]) -> None:
    for turn in turns:
        threshold = 0.01 * np.abs(turn.audio).max()
        first, last = (round(ms * OUTPUT_RATE / 1000) for ms in (turn.speech_start_ms, turn.speech_end_ms))
        assert np.abs(turn.audio[:first]).max(initial=0) < threshold
        assert np.abs(turn.audio[last + 1 :]).max(initial=0) < threshold
        assert abs(turn.audio[last]) >= threshold


def test_a_pause_has_its_specified_length_and_follows_a_comma(turns: list[SpokenTurn]) -> None:
    turn = next(turn for turn in turns if turn.kind == "pause")
    loud = np.flatnonzero(np.abs(turn.audio) >= 0.01 * np.abs(turn.audio).max())
    assert np.diff(loud).max() / OUTPUT_RATE == pytest.approx(0.3, abs=0.02)
    assert "," in turn.text


def test_a_background_has_the_specified_signal_to_noise_ratio(turns: list[SpokenTurn]) -> None:
    for kind, snr_db in (("noise-20db", 20), ("noise-10db", 10)):
        for turn in (turn for turn in turns if turn.kind == kind):
            assert turn.background is not None
            voiced = turn.audio[np.abs(turn.audio) >= 0.01 * np.abs(turn.audio).max()]
            ratio = np.mean(np.square(voiced)) / np.mean(np.square(turn.background))
            assert 10 * np.log10(ratio) == pytest.approx(snr_db, abs=0.2)


def test_the_corpus_is_synthesized_once_and_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(out: BinaryIO, **recordings: object) -> None:
        out.write(b"half")
        raise OSError("the disk is full")

    with monkeypatch.context() as full_disk, pytest.raises(OSError, match="disk is full"):
        full_disk.setattr(corpus_module.np, "savez", fails)
        built_in(lambda name: FakeSynthesizer(), tmp_path, ["fake"])
    assert not list(tmp_path.iterdir())
    first = built_in(lambda name: FakeSynthesizer(), tmp_path, ["fake"])
    second = built_in(lambda name: pytest.fail("synthesized twice"), tmp_path, ["fake"])
    assert [turn.speech_end_ms for turn in first] == [turn.speech_end_ms for turn in second]


def test_each_voice_is_loaded_once_and_speaks_the_turns_with_its_name(tmp_path: Path) -> None:
    loaded = []

    def load_voice(name: str) -> FakeSynthesizer:
        loaded.append(name)
        return FakeSynthesizer({"low": 8.0, "high": 2.0}[name])

    turns = built_in(load_voice, tmp_path, ["low", "high"])
    assert loaded == ["low", "high"]
    for turn in turns:
        for audio in (turn.audio, *([turn.overlap.audio] if turn.overlap is not None else ())):
            crossings = np.count_nonzero(np.diff(np.signbit(audio)))
            assert (crossings / np.count_nonzero(audio) > 0.1) == (turn.voice == "high")
    assert len(list(tmp_path.iterdir())) == 1
    built_in(load_voice, tmp_path, ["high", "low"])
    assert len(list(tmp_path.iterdir())) == 2  # another choice of voices is another corpus


def test_speakers_take_over_from_each_other_and_one_alone_keeps_the_order(turns: list[SpokenTurn]) -> None:
    order = select_turns(turns, (), None, seed=3)
    voices = ["a", "b", "a", "a"] * 17
    mixed = [replace(turn, voice=voice) for turn, voice in zip(turns, voices, strict=True)]
    selected = select_turns(mixed, (), None, seed=3)
    runs = [(voice, len(list(group))) for voice, group in groupby(selected, lambda turn: turn.voice)]
    assert sorted(runs) == sorted([("b", 8), ("b", 8), ("b", 1), *[("a", 8)] * 3, ("a", 27)])
    for voice in "ab":
        alone = {turn.name for turn in mixed if turn.voice == voice}
        assert [turn.name for turn in selected if turn.voice == voice] == [t.name for t in order if t.name in alone]


def test_a_short_report_has_turns_of_many_kinds_and_is_reproducible(turns: list[SpokenTurn]) -> None:
    names = [turn.name for turn in select_turns(turns, (), 9, seed=3)]
    assert len({name.rpartition("-")[0] for name in names}) == 9
    assert names == [turn.name for turn in select_turns(turns, (), 9, seed=3)]
    assert len(select_turns(turns, ("short",), 30, seed=3)) == 30
    with pytest.raises(ValueError, match="no turns of kind 'shouted'"):
        select_turns(turns, ("shouted",), None, seed=3)


def test_each_corpus_is_selected_from_apart_and_may_lack_a_kind(turns: list[SpokenTurn]) -> None:
    mine = [replace(turn, corpus="mine", kind="shouted") for turn in turns if turn.kind == "short"]
    selected = select_turns([*turns, *mine], ("short", "shouted"), 3, seed=3)
    assert [(turn.corpus, turn.kind) for turn in selected] == [("", "short")] * 3 + [("mine", "shouted")] * 3
    assert selected[:3] == select_turns(turns, ("short",), 3, seed=3)


def test_speech_bounds_come_from_the_waveform() -> None:
    expected = (pytest.approx(50, abs=0.1), pytest.approx(150, abs=0.1))
    assert bounds_ms(tone(0.1, leading_silence=0.05)) == expected
    with pytest.raises(BadAudio):
        bounds_ms(np.zeros(100, np.float32))

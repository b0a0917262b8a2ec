"""Voices: found by name, and Kokoro's share their model. That they can be understood is tested in tests/e2e."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.fakes import FakeVoice
from voice.clauses import Clause
from voice.kokoro_phonemes import phonemes
from voice.kokoro_voice import MODEL_FILE
from voice.pronunciation import Pronunciation
from voice.tts import UnknownVoice, Voice, Voices, load_voices


def voices(*names: str) -> Voices:
    return Voices([FakeVoice(name) for name in names])  # type: ignore[misc]


def test_voices_are_found_by_name_and_the_first_is_the_default() -> None:
    found = voices("ada", "bob")
    assert (found.default.name, found.names) == ("ada", ("ada", "bob"))
    assert [found.find(name).name for name in ("bob", "default", "alloy")] == ["bob", "ada", "ada"]
    assert voices("ada", "alloy").find("alloy").name == "alloy"
    with pytest.raises(UnknownVoice, match="the voice 'eve' does not exist here: this server has ada, bob"):
        found.find("eve")


def test_two_voices_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two voices are called 'ada'"):
        voices("bob", "ada", "ada")


def test_kokoro_voices_share_their_model_and_a_voice_is_loaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def session(path: str, options: Any, providers: list[Any]) -> SimpleNamespace:
        opened.append(path)
        return SimpleNamespace()

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    (tmp_path / MODEL_FILE).touch()
    paths = [tmp_path / f"{name}.bin" for name in ("af_ada", "bm_bob")]
    for path in paths:
        np.zeros((510, 1, 256), "<f4").tofile(path)
    loaded = load_voices([*paths, paths[0]])
    assert loaded.names == ("af_ada", "bm_bob")
    assert opened == [str(tmp_path / MODEL_FILE)]


@pytest.mark.parametrize("text", ["w." * 120, "i.e. " * 48, "Ask, a.b" + ".c" * 100])
def test_an_endless_abbreviation_does_not_crash_espeak(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Synthesizer:
        sample_rate, speaks_english = 22_050, True

        def __init__(self, *_: Any) -> None: ...

        def pronounce(self, text: str, speed: float) -> Pronunciation:
            said.append(text)
            return Pronunciation(np.ones(2205, np.float32), [], None)

    monkeypatch.setattr("voice.piper_voice.PiperSynthesizer", Synthesizer)
    Voice(Path("ada.onnx")).speak(Clause(text, True))
    assert said[0].count(".") <= 40  # with more, the next line would end the tests
    assert phonemes(said[0], "en-us")

"""Which recognizer is used, and that recognizers from the hub run like the catalog's."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from model.checkpoint.gguf import BadModelFile
from server.serving import speech
from server.serving.model_choice import open_record
from server.serving.model_record import Trial
from server.serving.runtime import locate_model
from server.serving.speech import choose_recognizer, threads_for
from tests.model.hub.hub_client import run_commands, run_program
from tests.model.hub.hub_server import Repository, running_hub
from tests.voice.whisper_models import save_whisper
from voice.asr import INTERIM_WINDOW, Recognizer, Utterance
from voice.audio.codec import RECOGNITION_RATE
from voice.speech_device import CPU

ROOT = Path(__file__).parents[3]

NOISE = (np.random.default_rng(0).standard_normal(3 * RECOGNITION_RATE) * 0.1).astype(np.float32)

SHAPES = {
    "base": ({}, 100),
    "large-v3-turbo": ({"mels": 128, "decoder_layers": 2, "languages": 100}, 100),
    "distil-small.en": ({"decoder_layers": 2, "english": True}, 1),
}


@pytest.mark.parametrize(("size", "cores", "threads"), [(145e6, 64, 1), (484e6, 64, 4), (484e6, 8, 2), (484e6, 1, 1)])
def test_a_large_recognizer_gets_several_threads_where_cores_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: float, cores: int, threads: int
) -> None:
    with (tmp_path / "model.bin").open("wb") as file:
        file.truncate(int(size))
    monkeypatch.setattr(speech, "available_cores", lambda: cores)
    assert threads_for(tmp_path) == threads
    assert threads_for(tmp_path / "absent") == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_windows_interim_transcripts_languages_and_word_times_work_with_every_shape(tmp_path: Path, shape: str) -> None:
    settings, languages = SHAPES[shape]
    recognizer = Recognizer(save_whisper(tmp_path / "whisper", **settings))  # type: ignore[arg-type]
    assert len(recognizer.languages) == languages
    utterance = Utterance(recognizer.for_language("en"))
    utterance.add(NOISE)
    assert utterance.partial() is not None
    for language in ("en", "de")[:languages]:
        (segment,) = recognizer.for_language(language).transcribe(NOISE, INTERIM_WINDOW)
        assert segment.text and 0 <= segment.start_s < segment.end_s
    words = recognizer.words(NOISE, "first second")
    assert [word.text for word in words] == ["first", "second"]
    assert all(0 <= word.start_s <= word.end_s <= 3 for word in words)


TRANSCRIBE = """
import sys
import numpy as np
from rich.console import Console
from server.serving.runtime import locate_model
from voice.asr import Recognizer
noise = (np.random.default_rng(0).standard_normal(48000) * 0.1).astype(np.float32)
for name in sys.argv[1:]:
    print(Recognizer(locate_model(name, Console(stderr=True), kind="transcription")).transcribe(noise))
"""


def test_a_recognizer_of_the_hub_keeps_its_commit_and_runs_like_the_local_one_also_offline(tmp_path: Path) -> None:
    folder = save_whisper(tmp_path / "turbo", mels=128, languages=100)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with running_hub() as hub:
        hub.repositories["org/turbo"] = Repository()
        hub.repositories["org/turbo"].commit({**files, "README.md": b"x", "weights.pt": b"pickled"})

        def transcripts(*names: str, **variables: str) -> list[str]:
            return run_program(hub, tmp_path, TRANSCRIBE, *names, **variables)

        hub.cut_after, hub.failing_after_cut = [1000], True
        interrupted = run_commands(hub, tmp_path, "models pull org/turbo")
        assert "exit 1" in interrupted.stdout and "what was downloaded is kept and continued" in interrupted.stderr
        hub.failing = False
        hub.repositories["org/turbo"].commit({**files, "model.bin": b"a later commit"})
        online = transcripts("org/turbo", str(folder))
        assert online[0] == online[1] != "[]"
        assert not any("weights.pt" in path for _, path, _ in hub.requests)
        hub.requests.clear()
        assert transcripts("org/turbo", HF_HUB_OFFLINE="1") == online[:1]
        assert hub.requests == []


def test_a_model_of_the_other_kind_is_rejected_before_its_weights_are_downloaded(tmp_path: Path) -> None:
    whisper = {path.name: path.read_bytes() for path in save_whisper(tmp_path / "whisper").iterdir()}
    with running_hub() as hub:
        for name, files in (
            ("org/whisper", whisper),
            ("org/llm", {"config.json": json.dumps({"model_type": "qwen2"}).encode(), "model.safetensors": b"0" * 999}),
        ):
            hub.repositories[name] = Repository()
            hub.repositories[name].commit(files)
        done = run_commands(
            hub,
            tmp_path,
            "ask hi --model org/whisper",
            "ask hi --out x.wav --asr org/llm",
            "models pull org/whisper",
            "models list",
        )
    assert "recognizes speech: choose it with --asr" in done.stderr
    assert "is not a Whisper model of CTranslate2" in done.stderr
    assert done.stdout.count("exit 1") == 2 and "org/whisper" in done.stdout
    assert len([path for method, path, _ in hub.requests if method == "GET" and "/cdn/" in path]) == 1  # by `pull`


@pytest.mark.parametrize("missing", ["tokenizer.json", "vocabulary.json", "model.bin"])
def test_a_folder_that_lacks_a_file_is_rejected_with_what_it_needs(tmp_path: Path, missing: str) -> None:
    folder = save_whisper(tmp_path / "whisper")
    (folder / missing).unlink()
    with pytest.raises(BadModelFile, match=r"which has model.bin, config.json, tokenizer.json and a vocabulary"):
        locate_model(str(folder), Console(), kind="transcription")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The time of a transcript by model, which a trial finds; it is removed once it was tried."""
    times: dict[str, int] = {}
    monkeypatch.setattr(speech, "locate_model", lambda name, console, **_: Path(name))
    monkeypatch.setattr(speech, "_try", lambda folder, device: Trial(times.pop(folder.name), 1))
    return times


@pytest.mark.parametrize(
    ("times", "chosen"),
    [
        ({"turbo": 250, "small": 200, "base": 100}, "turbo"),
        ({"turbo": 900, "small": 200, "base": 100}, "small"),
        ({"turbo": 900, "small": 600, "base": 400}, "base"),
    ],
)
def test_auto_is_the_largest_that_is_quick_enough_or_else_the_quickest(
    tmp_path: Path, tried: dict[str, int], times: dict[str, int], chosen: str
) -> None:
    tried |= times
    assert choose_recognizer(list(times), CPU, Console(quiet=True), tmp_path) == chosen
    tried.clear()  # another trial would fail: the second start goes by what is kept
    assert choose_recognizer(list(times), CPU, Console(quiet=True), tmp_path) == chosen


def test_a_trial_that_was_disturbed_is_repeated(tmp_path: Path, tried: dict[str, int]) -> None:
    open_record("cpu", tmp_path).save_trial("small", Trial(2000, 1, others=0.6))
    tried |= {"small": 200}
    assert choose_recognizer(["small", "base"], CPU, Console(quiet=True), tmp_path) == "small"


def test_a_single_recognizer_needs_no_trial_and_one_that_cannot_be_loaded_is_passed_over(
    tmp_path: Path, tried: dict[str, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert choose_recognizer(["base"], CPU, Console(quiet=True), tmp_path) == "base"

    def attempt(folder: Path, device: object) -> Trial:
        if folder.name == "damaged":
            raise RuntimeError("File model.bin is incomplete")
        return Trial(100, 1)

    monkeypatch.setattr(speech, "_try", attempt)
    with caplog.at_level(logging.INFO, "rejoinder.models"):
        assert choose_recognizer(["damaged", "base"], CPU, Console(quiet=True), tmp_path) == "base"
    assert "damaged cannot be used" in caplog.text and "--asr auto is base" in caplog.text


def test_a_trial_times_real_transcripts(tmp_path: Path) -> None:
    trial = speech._try(save_whisper(tmp_path / "whisper"), CPU)
    assert 0 < trial.median_ms < 5000

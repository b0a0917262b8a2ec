"""Folders of recordings, and the held-out corpus, which is one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import av
import numpy as np
import pytest

from lab.report.corpus_lines import LINES
from lab.report.recordings import HELD_OUT, MANIFEST, from_folder
from tests.lab.report.samples import FakeSynthesizer
from voice.audio.codec import OUTPUT_RATE, BadAudio, Samples, to_pcm16
from voice.audio.wav import write_wav
from voice.clauses import Clause

FULL = """
[[turn]]
file = "a.opus"
text = "One, two, three?"
kind = "question"
voice = "Maria"
speech_ms = [30, 190]
background = "fan.wav"
snr_db = 20
over = { file = "stop.wav", text = "Stop.", after_ms = 900, interrupts = true }

[[turn]]
file = "b.wav"
expected = "none"
"""


def speech(words: str = "one two three") -> Samples:
    return FakeSynthesizer().synthesize(Clause(words, True))


def write_opus(path: Path, samples: Samples) -> None:
    with av.open(str(path), "w", format="ogg") as container:
        stream = container.add_stream("libopus", rate=OUTPUT_RATE, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.frombuffer(to_pcm16(samples), "<i2")[None], "s16", "mono")
        frame.sample_rate = OUTPUT_RATE
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Recordings, and a manifest that uses every field."""
    write_opus(tmp_path / "a.opus", speech())
    write_wav(tmp_path / "b.wav", speech("hm"), OUTPUT_RATE)
    write_wav(tmp_path / "stop.wav", speech("stop"), OUTPUT_RATE)
    write_wav(tmp_path / "fan.wav", np.full(OUTPUT_RATE, 0.3, np.float32), 16_000)
    (tmp_path / MANIFEST).write_text(FULL)
    return tmp_path


def test_a_manifest_describes_the_turns_of_a_folder(folder: Path) -> None:
    first, second = from_folder(folder)
    assert (first.name, first.kind, first.text, first.voice) == ("a", "question", "One, two, three?", "Maria")
    assert (first.speech_start_ms, first.speech_end_ms, first.expected) == (30, 190, "answer")
    assert first.overlap is not None and first.background is not None
    assert (first.overlap.after_ms, first.overlap.interrupts) == (900, True)
    voiced = first.audio[np.abs(first.audio) >= 0.01 * np.abs(first.audio).max()]
    ratio = np.mean(np.square(voiced)) / np.mean(np.square(first.background))
    assert 10 * np.log10(ratio) == pytest.approx(20, abs=0.2)
    assert (second.kind, second.text, second.expected) == ("recording", "", "none")
    assert second.speech_end_ms == pytest.approx(500 / 24 + 60, abs=1)  # measured: the manifest has no label


def test_an_opus_recording_keeps_its_length_and_its_place_in_time(folder: Path) -> None:
    audio = from_folder(folder)[0].audio
    assert len(audio) == pytest.approx(len(speech()), abs=OUTPUT_RATE // 50)
    loud = np.flatnonzero(np.abs(audio) > 0.25)
    assert 1000 * loud[0] / OUTPUT_RATE == pytest.approx(500 / 24, abs=5)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[[turn]]", "[[turns]]", "manifest.toml, turn: Field required"),
        ("snr_db = 20", "snr_db = 'loud'", "manifest.toml, turn 1, snr_db: Input should be a valid number"),
        ("kind =", "sort =", "manifest.toml, turn 1, sort: Extra inputs are not permitted"),
        ("snr_db = 20", "", "turn 1: background and snr_db need each other"),
        ('"none"', '"silence"', "turn 2, expected: Input should be 'answer' or 'none'"),
        ("[30, 190]", "[30, 9000]", "cannot have speech from 30 to 9000 ms"),
        ("b.wav", "c.wav", "there is no file .*c.wav"),
        ("b.wav", "manifest.toml", "not a recording in a format that FFmpeg reads"),
        ("[[turn]]", "[[turn", "is not a TOML file"),
    ],
)
def test_an_unusable_manifest_is_rejected_in_one_sentence(folder: Path, before: str, after: str, message: str) -> None:
    (folder / MANIFEST).write_text(FULL.replace(before, after))
    with pytest.raises(BadAudio, match=message) as error:
        from_folder(folder)
    assert "\n" not in str(error.value)


def test_without_a_manifest_each_wav_file_has_a_text_file(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", speech(), OUTPUT_RATE)
    (tmp_path / "a.txt").write_text("One, two, three?\n")
    write_wav(tmp_path / "b.wav", speech("mhm"), OUTPUT_RATE)
    (tmp_path / "b.txt").write_text("")
    first, second = from_folder(tmp_path)
    assert (first.name, first.text, first.expected, second.expected) == ("a", "One, two, three?", "answer", "none")
    assert first.speech_end_ms == pytest.approx(500 / 24 + 180, abs=1)


def test_an_unusable_folder_is_rejected_with_a_message(tmp_path: Path) -> None:
    with pytest.raises(BadAudio, match="there is no folder"):
        from_folder(tmp_path / "nowhere")
    with pytest.raises(BadAudio, match=r"neither manifest\.toml nor a \.wav file"):
        from_folder(tmp_path)
    write_wav(tmp_path / "a.wav", np.zeros(2400, np.float32), OUTPUT_RATE)
    with pytest.raises(BadAudio, match=r"add a\.txt to the same folder"):
        from_folder(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(BadAudio, match="is silent"):
        from_folder(tmp_path)


def test_the_held_out_corpus_is_large_varied_and_small_on_disk() -> None:
    turns = from_folder(HELD_OUT)
    assert len(turns) >= 100 and len({turn.name for turn in turns}) == len(turns)
    assert len({turn.kind for turn in turns}) >= 10 and len({turn.voice for turn in turns}) >= 15
    assert {turn.expected for turn in turns} == {"answer", "none"}
    assert sum(path.stat().st_size for path in HELD_OUT.rglob("*")) < 3_000_000


def test_the_held_out_corpus_shares_no_text_with_the_built_in_one() -> None:
    built_in = {" ".join(line.parts) for line in LINES}
    assert not [turn.text for turn in from_folder(HELD_OUT) if turn.text in built_in]


def test_every_held_out_recording_is_used() -> None:
    turns = tomllib.loads((HELD_OUT / MANIFEST).read_text())["turn"]
    used = {turn["file"] for turn in turns} | {turn["over"]["file"] for turn in turns if "over" in turn}
    used |= {turn["background"] for turn in turns if "background" in turn}
    assert used == {str(path.relative_to(HELD_OUT)) for path in HELD_OUT.rglob("*.opus")}

"""Folders of recordings for the report: a manifest, or WAV files with a text file each. The held-out corpus is one.

The guide to the report documents the manifest."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import av
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lab.report.background import at_snr, normalized
from lab.report.corpus import Overlap, SpokenTurn, bounds_ms
from lab.report.corpus_lines import Expected
from voice.audio.codec import OUTPUT_RATE, BadAudio, Samples
from voice.audio.compressed import read_compressed

HELD_OUT = Path(__file__).parent / "held_out"
"""The held-out corpus. It has licences of its own and is in the repository only, not in the wheel."""

MANIFEST = "manifest.toml"

_SpeechMs = tuple[Annotated[float, Field(ge=0)], float]
"""Ms from the beginning of the recording to the first and to the last sample of speech."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Over(_Table):
    """What the user says over the response, as in `Overlap`."""

    file: str
    text: str
    after_ms: Annotated[float, Field(ge=0)]
    interrupts: bool
    speech_ms: _SpeechMs | None = None


class _Turn(_Table):
    """One turn of a manifest. Files are relative to its folder."""

    file: str
    text: str = ""
    kind: str = "recording"
    expected: Expected | None = None
    voice: str = ""
    speech_ms: _SpeechMs | None = None
    background: str | None = None
    snr_db: float | None = None
    over: _Over | None = None


class _Manifest(_Table):
    turn: Annotated[list[_Turn], Field(min_length=1)]


def from_folder(folder: Path) -> list[SpokenTurn]:
    """The turns of a folder's manifest. Without a manifest, its WAV files, each with a text file of the same name.

    Raises:
        BadAudio: the folder contains no turns, or its manifest or a recording cannot be used; the message says why.
    """
    if not folder.is_dir():
        raise BadAudio(f"there is no folder {folder}: --corpus needs a folder of recordings, built-in or held-out")
    manifest = _read_manifest(folder / MANIFEST) if (folder / MANIFEST).exists() else _without_manifest(folder)
    backgrounds = {turn.background: _read(folder / turn.background) for turn in manifest.turn if turn.background}
    return [_spoken(folder, turn, backgrounds) for turn in manifest.turn]


def _read_manifest(path: Path) -> _Manifest:
    try:
        manifest = _Manifest.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadAudio(f"{path} is not a TOML file: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f", turn {part + 1}" if isinstance(part, int) else f", {part}" for part in first["loc"])
        raise BadAudio(f"{path}{where.replace(', turn, turn', ', turn')}: {first['msg']}") from None
    for number, turn in enumerate(manifest.turn, 1):
        if (turn.background is None) != (turn.snr_db is None):
            raise BadAudio(f"{path}, turn {number}: background and snr_db need each other")
    return manifest


def _without_manifest(folder: Path) -> _Manifest:
    turns = []
    for path in sorted(folder.glob("*.wav")):
        try:
            text = path.with_suffix(".txt").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise BadAudio(f"{path.name} has no transcript: add {path.stem}.txt to the same folder") from None
        except UnicodeDecodeError:
            raise BadAudio(f"{path.stem}.txt is not UTF-8 text: save it as UTF-8") from None
        turns.append(_Turn(file=path.name, text=text))
    if not turns:
        raise BadAudio(f"{folder} contains neither {MANIFEST} nor a .wav file: --corpus needs one of them")
    return _Manifest(turn=turns)


def _spoken(folder: Path, turn: _Turn, backgrounds: dict[str, Samples]) -> SpokenTurn:
    audio, (start, end) = _recording(folder / turn.file, turn.speech_ms)
    background = None
    if turn.background is not None and turn.snr_db is not None:
        background = at_snr(normalized(backgrounds[turn.background]), audio, turn.snr_db)
    overlap = None
    if turn.over is not None:
        words, bounds = _recording(folder / turn.over.file, turn.over.speech_ms)
        overlap = Overlap(turn.over.text, words, *bounds, turn.over.after_ms, turn.over.interrupts)
    expected = turn.expected or ("answer" if turn.text else "none")
    name = Path(turn.file).stem
    return SpokenTurn(name, turn.kind, turn.text, audio, start, end, expected, background, overlap, turn.voice)


def _recording(path: Path, speech_ms: _SpeechMs | None) -> tuple[Samples, _SpeechMs]:
    """A recording and the bounds of its speech, measured unless they are given."""
    audio = _read(path)
    if speech_ms is None:
        try:
            return audio, bounds_ms(audio)
        except BadAudio:
            raise BadAudio(f"{path} is silent") from None
    length_ms = 1000 * len(audio) / OUTPUT_RATE
    if not speech_ms[0] < speech_ms[1] <= length_ms:
        raise BadAudio(
            f"{path} is {length_ms:.0f} ms long and cannot have speech from {speech_ms[0]:g} to {speech_ms[1]:g} ms"
        )
    return audio, speech_ms


def _read(path: Path) -> Samples:
    """[T] float32 at 24 kHz from any format that FFmpeg reads, mixed to mono."""
    try:
        samples = read_compressed(str(path), OUTPUT_RATE)
    except FileNotFoundError:
        raise BadAudio(f"there is no file {path}") from None
    except (av.error.FFmpegError, IndexError):  # IndexError: a file without sound
        raise BadAudio(f"{path} is not a recording in a format that FFmpeg reads") from None
    if not len(samples):
        raise BadAudio(f"{path} contains no audio")
    return samples

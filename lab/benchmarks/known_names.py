"""Whether names that a conversation knows are heard, and whether they are heard where nobody has said them.

    python -m lab.benchmarks.known_names [FOLDER TRANSCRIPTS]

`known_names.json` has sentences with unusual names of people, places, products, plants, dishes and medicines, two a
name, and sentences without any, by an author who had not seen the code; voices of the product say them. The recognizer
listens for all names at once. FOLDER and TRANSCRIPTS are those of `lab.benchmarks.speech_recognition`, recordings of a
person without these names. Every other pair of sentences was held out when the constants were chosen.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

from lab.benchmarks.speech_recognition import load_recordings
from model.hub.store import ModelStore
from server.serving.runtime import locate_model
from voice.asr import Recognizer
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, Samples
from voice.audio.resampling import resample
from voice.clauses import Clause
from voice.known_names import KnownNames
from voice.tts import load_voices

_VOICES = ("en_US-joe-medium", "kokoro:af_bella", "en_US-joe-medium", "kokoro:bm_george", "en_US-joe-medium",
           "kokoro:am_michael")  # fmt: skip
_PEAK = 0.5
_MAX_S = 28


class Heard(NamedTuple):
    """Transcripts of a recording without and with the names, and how much longer the second took."""

    plain: str
    named: str
    longer_s: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="*")
    options = parser.parse_args(arguments)
    sets = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    names = list(dict.fromkeys(name for one in sets["with names"] for name in one["names"]))
    recognizer = Recognizer(ModelStore().locate("whisper-base"))
    known = recognizer.known_names(names)
    console, by_name = Console(stderr=True), [one["say"] for one in sets["with names"]]
    spoken = [_hear(recognizer, known, audio) for audio in track(_said(by_name, console), "names", len(by_name))]
    for half, title in ((0, "the half that was looked at"), (1, "the held-out half")):
        missed = right = wrong = 0
        for number, (one, heard) in enumerate(zip(sets["with names"], spoken, strict=True)):
            if number // 2 % 2 == half:
                misheard = [name for name in one["names"] if not _has(heard.plain, name)]
                found = sum(_has(heard.named, name) for name in misheard)
                missed, right = missed + len(misheard), right + found
                wrong += heard.named != heard.plain and not found
        print(f"{title}: {right} of {missed} misheard names are heard; {wrong} sentences get another name")
    without = {"sentences": list(_said(sets["without"], console))}
    if options.recordings:
        without["human recordings"] = [
            one.audio[: _MAX_S * RECOGNITION_RATE] for one in load_recordings(*options.recordings)
        ]
    for title, recordings in without.items():
        each = [_hear(recognizer, known, audio) for audio in track(recordings, title)]
        changed = [heard for heard in each if heard.named != heard.plain]
        longer = [1000 * heard.longer_s for heard in each]
        print(
            f"{len(changed)} of {len(each)} {title} without names get one; "
            f"{statistics.mean(longer):.0f} ms longer on average, {sorted(longer)[int(0.95 * len(longer))]:.0f} at p95"
        )
        for heard in changed:
            print(f"  {heard.plain} → {heard.named}")


def _said(sentences: Sequence[str], console: Console) -> list[Samples]:
    paths = [locate_model(name, console, kind="voice") for name in dict.fromkeys(_VOICES)]
    voices = load_voices(paths)
    named = dict(zip(dict.fromkeys(_VOICES), voices.names, strict=True))
    audio = []
    for number, text in enumerate(sentences):
        voice = voices.find(named[_VOICES[number % len(_VOICES)]])
        assert voice is not None
        said = resample(voice.synthesize(Clause(text, True)), OUTPUT_RATE, RECOGNITION_RATE)
        audio.append(said * (_PEAK / (abs(said).max() + 1e-6)))
    return audio


def _hear(recognizer: Recognizer, known: KnownNames, audio: Samples) -> Heard:
    began = time.perf_counter()
    plain = recognizer.transcribe(audio)
    between = time.perf_counter()
    named = recognizer.transcribe(audio, names=known)
    longer = time.perf_counter() - between - (between - began)
    return Heard(*(" ".join(segment.text for segment in each) for each in (plain, named)), longer)


def _has(text: str, name: str) -> bool:
    return f" {_plain(name)} " in f" {_plain(text)} "


def _plain(text: str) -> str:
    return " ".join("".join(filter(str.isalnum, word.lower().removesuffix("'s"))) for word in text.split())


if __name__ == "__main__":
    main()

"""Word errors and speed of the short encoder window beside `WhisperModel.transcribe`, on the same recordings.

    python -m tests.bench.hearing FOLDER TRANSCRIPTS

FOLDER holds NAME.wav, TRANSCRIPTS has lines `NAME: text` (plain or gzip). Debian's package
asterisk-core-sounds-en-wav brings 270 recordings of a person in the telephone band that fit:
/usr/share/asterisk/sounds/en_US_f_Allison and /usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz.
The sides take turns on every recording, so that a machine whose speed drifts treats both alike.
"""

from __future__ import annotations

import gzip
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import jiwer
from faster_whisper import WhisperModel
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

from model.store import Store
from server.ask import read_wav
from voice.asr import Recognizer
from voice.audio import HEARING_RATE, Samples

BUCKETS = ((0, 2), (2, 4), (4, 8), (8, 28))
"""Lengths in seconds that are reported apart."""

FEWEST_WORDS = 4
"""Shorter prompts are single words and digits, which say little about sentences."""


@dataclass
class Recording:
    text: str
    audio: Samples
    heard: dict[str, str] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return len(self.audio) / HEARING_RATE


def load(folder: Path, transcripts: Path) -> list[Recording]:
    """The recordings that have a transcript of at least four spoken words and no stage directions."""
    opened = gzip.open if transcripts.suffix == ".gz" else open
    found = []
    with opened(transcripts, "rt", encoding="utf-8") as lines:
        for line in lines:
            name, _, text = line.partition(":")
            path, text = folder / f"{name.strip()}.wav", text.strip()
            if line.startswith(";") or not path.exists() or len(text.split()) < FEWEST_WORDS or set("[]()") & set(text):
                continue
            recording = Recording(text, read_wav(path))
            if recording.seconds < BUCKETS[-1][1]:
                found.append(recording)
    return found


def sides(folder: Path) -> dict[str, Callable[[Samples], str]]:
    recognizer, whole = Recognizer(folder), WhisperModel(str(folder), device="cpu", compute_type="int8")

    def greedy(audio: Samples) -> str:
        segments, _ = whole.transcribe(
            audio, language="en", beam_size=1, temperature=0, condition_on_previous_text=False
        )
        return " ".join(segment.text for segment in segments)

    def default(audio: Samples) -> str:
        segments, _ = whole.transcribe(audio, language="en")
        return " ".join(segment.text for segment in segments)

    def ours(audio: Samples) -> str:
        return " ".join(segment.text for segment in recognizer.transcribe(audio))

    return {"short window": ours, "transcribe, greedy": greedy, "transcribe, default": default}


def interval(recordings: list[Recording], a: str, b: str, normalize: Callable[[str], str]) -> tuple[float, float]:
    """95 % bootstrap interval of the difference in word error rate, a - b."""
    counted = []
    for recording in recordings:
        said = normalize(recording.text)
        errors = []
        for side in (a, b):
            out = jiwer.process_words(said, normalize(recording.heard[side]))
            errors.append(out.substitutions + out.deletions + out.insertions)
        counted.append((errors[0] - errors[1], len(said.split())))
    draw = random.Random(0)
    rates = []
    for _ in range(2000):
        sample = draw.choices(counted, k=len(counted))
        rates.append(sum(d for d, _ in sample) / sum(n for _, n in sample))
    rates.sort()
    return rates[50], rates[-51]


def main() -> None:
    recordings = load(Path(sys.argv[1]), Path(sys.argv[2]))
    runs = sides(Store().locate("whisper-base"))
    for run in runs.values():
        run(recordings[0].audio)
    console = Console()
    for recording in track(recordings, "listening", console=Console(stderr=True)):
        for name, run in runs.items():
            began = time.perf_counter()
            recording.heard[name] = run(recording.audio)
            recording.took[name] = time.perf_counter() - began
    normalize = EnglishTextNormalizer({})
    table = Table("length", "n", *(f"{name}: WER, median ms" for name in runs), "faster than greedy")
    for low, high in (*BUCKETS, (0, BUCKETS[-1][1])):
        chosen = [r for r in recordings if low <= r.seconds < high]
        said = [normalize(r.text) for r in chosen]
        cells, medians = [], []
        for name in runs:
            rate = jiwer.wer(said, [normalize(r.heard[name]) for r in chosen])
            medians.append(statistics.median(r.took[name] for r in chosen))
            cells.append(f"{100 * rate:.1f} %, {1000 * medians[-1]:.0f}")
        ratio = statistics.median(r.took["transcribe, greedy"] / r.took["short window"] for r in chosen)
        table.add_row(f"{low} to {high} s", str(len(chosen)), *cells, f"{ratio:.1f}×")
    console.print(table)
    for other in list(runs)[1:]:
        low, high = interval(recordings, "short window", other, normalize)
        console.print(f"short window - {other}: {100 * low:+.2f} to {100 * high:+.2f} points of WER (95 %)")


if __name__ == "__main__":
    main()

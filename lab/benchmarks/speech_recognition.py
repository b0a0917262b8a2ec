"""Word errors and speed of the short encoder window compared with `WhisperModel.transcribe`, on the same recordings.

    python -m lab.benchmarks.speech_recognition FOLDER TRANSCRIPTS

FOLDER contains NAME.wav; TRANSCRIPTS has lines `NAME: text` (plain or gzip). Debian's package
asterisk-core-sounds-en-wav has 270 suitable recordings of a person in the telephone band:
/usr/share/asterisk/sounds/en_US_f_Allison and /usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz.
The systems alternate on every recording, so that a drift in the machine's speed affects all of them alike.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
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

from model.hub.store import ModelStore
from voice.asr import Recognizer
from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.audio.wav import read_wav

BUCKETS = ((0, 2), (2, 4), (4, 8), (8, 28))
"""Ranges of length in seconds, each reported separately."""

MIN_WORDS = 4
"""Shorter prompts are single words and digits, which say little about sentences."""


@dataclass
class Recording:
    """A recording, and the transcript and duration in seconds of each system by its name.

    Attributes:
        audio: [T] float32 at 16 kHz.
    """

    text: str
    audio: Samples
    transcripts: dict[str, str] = field(default_factory=dict)
    durations_s: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return len(self.audio) / RECOGNITION_RATE


def load_recordings(folder: Path, transcripts: Path, min_words: int = MIN_WORDS) -> list[Recording]:
    """The recordings whose transcript has so many words and no stage directions."""
    open_file = gzip.open if transcripts.suffix == ".gz" else open
    recordings = []
    with open_file(transcripts, "rt", encoding="utf-8") as lines:
        for line in lines:
            name, _, text = line.partition(":")
            path, text = folder / f"{name.strip()}.wav", text.strip()
            if line.startswith(";") or not path.exists() or len(text.split()) < min_words or set("[]()") & set(text):
                continue
            recording = Recording(text, read_wav(path))
            if recording.seconds < BUCKETS[-1][1]:
                recordings.append(recording)
    return recordings


def systems(folder: Path) -> dict[str, Callable[[Samples], str]]:
    recognizer, faster_whisper = Recognizer(folder), WhisperModel(str(folder), device="cpu", compute_type="int8")

    def greedy(audio: Samples) -> str:
        segments, _ = faster_whisper.transcribe(
            audio, language="en", beam_size=1, temperature=0, condition_on_previous_text=False
        )
        return " ".join(segment.text for segment in segments)

    def default(audio: Samples) -> str:
        segments, _ = faster_whisper.transcribe(audio, language="en")
        return " ".join(segment.text for segment in segments)

    def short_window(audio: Samples) -> str:
        return " ".join(segment.text for segment in recognizer.transcribe(audio))

    return {"short window": short_window, "transcribe, greedy": greedy, "transcribe, default": default}


def interval(recordings: list[Recording], a: str, b: str, normalize: Callable[[str], str]) -> tuple[float, float]:
    """95% bootstrap interval of the difference in word error rate, a - b."""
    counts = []
    for recording in recordings:
        reference = normalize(recording.text)
        errors = []
        for system in (a, b):
            result = jiwer.process_words(reference, normalize(recording.transcripts[system]))
            errors.append(result.substitutions + result.deletions + result.insertions)
        counts.append((errors[0] - errors[1], len(reference.split())))
    draw = random.Random(0)
    rates = []
    for _ in range(2000):
        sample = draw.choices(counts, k=len(counts))
        rates.append(sum(d for d, _ in sample) / sum(n for _, n in sample))
    rates.sort()
    return rates[50], rates[-51]


def main() -> None:
    recordings = load_recordings(Path(sys.argv[1]), Path(sys.argv[2]))
    transcribers = systems(ModelStore().locate("whisper-base"))
    for transcribe in transcribers.values():
        transcribe(recordings[0].audio)
    console = Console()
    for recording in track(recordings, "transcribing", console=Console(stderr=True)):
        for name, transcribe in transcribers.items():
            began = time.perf_counter()
            recording.transcripts[name] = transcribe(recording.audio)
            recording.durations_s[name] = time.perf_counter() - began
    normalize = EnglishTextNormalizer({})
    table = Table("length", "n", *(f"{name}: WER, median ms" for name in transcribers), "faster than greedy")
    for low, high in (*BUCKETS, (0, BUCKETS[-1][1])):
        bucket = [r for r in recordings if low <= r.seconds < high]
        references = [normalize(r.text) for r in bucket]
        cells, medians = [], []
        for name in transcribers:
            rate = jiwer.wer(references, [normalize(r.transcripts[name]) for r in bucket])
            medians.append(statistics.median(r.durations_s[name] for r in bucket))
            cells.append(f"{100 * rate:.1f} %, {1000 * medians[-1]:.0f}")
        ratio = statistics.median(r.durations_s["transcribe, greedy"] / r.durations_s["short window"] for r in bucket)
        table.add_row(f"{low} to {high} s", str(len(bucket)), *cells, f"{ratio:.1f}×")
    console.print(table)
    for other in list(transcribers)[1:]:
        low, high = interval(recordings, "short window", other, normalize)
        console.print(f"short window - {other}: {100 * low:+.2f} to {100 * high:+.2f} points of WER (95 %)")


if __name__ == "__main__":
    main()

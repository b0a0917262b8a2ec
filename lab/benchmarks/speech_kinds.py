"""Word errors and time by kind of speech: telephone, single words, noise, accents, spontaneous speech, digits.

    python -m lab.benchmarks.speech_kinds FOLDER TRANSCRIPTS [--half 0|1]

FOLDER and TRANSCRIPTS are those of `lab.benchmarks.speech_recognition`, recordings of a person; the other kinds are of
the held-out corpus of `rejoinder report`. Every recording is transcribed in one go and with a second look where words
are doubtful, as it is done for a turn. A word that one text writes as two is no error, and neither is punctuation.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jiwer
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

from lab.benchmarks.speech_recognition import MIN_WORDS, Recording, load_recordings
from lab.report.background import at_snr, pink
from lab.report.corpus import SpokenTurn
from lab.report.recordings import HELD_OUT, from_folder
from model.hub.store import ModelStore
from voice.asr import FINAL_WINDOW, Recognizer
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE
from voice.audio.resampling import resample

_MAX_S = 28.0
_ACCENTS = ("kokoro:b", "pico:en-GB", "flite:awb", "espeak")
_PLAIN = ("question", "statement", "command", "context")
_SPONTANEOUS = ("hesitation", "correction", "pause")

ONE_LOOK = replace(FINAL_WINDOW, retry_below_logprob=-float("inf"))


def asterisk(folder: Path, transcripts: Path, half: int | None) -> dict[str, list[Recording]]:
    """Recordings of Debian's asterisk-core-sounds-en-wav, by their length in words.

    Args:
        half: 0 or 1 for every other one, None for all.
    """
    sentences, phrases, words = list[Recording](), list[Recording](), list[Recording]()
    for recording in load_recordings(folder, transcripts, min_words=1):
        if not set("*#") & set(recording.text):  # these are said as words
            count = len(recording.text.split())
            (sentences if count >= MIN_WORDS else phrases if count > 1 else words).append(recording)
    kinds = {"telephone: sentences": sentences, "two or three words": phrases, "one word": words}
    return {kind: each if half is None else each[half::2] for kind, each in kinds.items()}


def noisy(recordings: list[Recording], snr_db: float) -> list[Recording]:
    """The same with pink noise."""
    noise = resample(pink(0), OUTPUT_RATE, RECOGNITION_RATE)
    return [
        Recording(one.text, one.audio + np.resize(at_snr(noise, one.audio, snr_db), len(one.audio)))
        for one in recordings
    ]


def held_out(half: int | None) -> dict[str, list[Recording]]:
    """The held-out corpus by kind of speech; a turn may be of several kinds."""
    turns = [turn for turn in from_folder(HELD_OUT) if turn.text]
    kinds: dict[str, Callable[[SpokenTurn], bool]] = {
        "questions, statements, commands": lambda turn: turn.kind in _PLAIN,
        "spontaneous: hesitations, corrections, pauses": lambda turn: turn.kind in _SPONTANEOUS,
        "dictated digits": lambda turn: turn.kind == "dictation",
        "in noise and among talkers": lambda turn: turn.kind == "background",
        "British and Scottish voices": lambda turn: turn.voice.startswith(_ACCENTS),
        "people": lambda turn: turn.voice.startswith("person"),
    }
    found = {kind: [_recorded(turn) for turn in turns if belongs(turn)] for kind, belongs in kinds.items()}
    return {kind: each if half is None else each[half::2] for kind, each in found.items()}


def _recorded(turn: SpokenTurn) -> Recording:
    audio = turn.audio if turn.background is None else turn.audio + np.resize(turn.background, len(turn.audio))
    return Recording(turn.text, resample(audio, OUTPUT_RATE, RECOGNITION_RATE)[: int(_MAX_S * RECOGNITION_RATE)])


def word_errors(reference: str, transcript: str, normalize: Callable[[str], str]) -> tuple[int, int]:
    """The number of wrong, missing and additional words, and that of words in the reference."""
    said, heard = (
        [word for word in normalize(text).split() if any(map(str.isalnum, word))] for text in (reference, transcript)
    )
    said, heard = _joined(said, set(heard)), _joined(heard, set(said))
    result = jiwer.process_words(" ".join(said) or "-", " ".join(heard) or "-")
    return result.substitutions + result.deletions + result.insertions, len(said)


def _joined(words: list[str], others: set[str]) -> list[str]:
    """Two words are one where the other text writes them so."""
    joined = list[str]()
    for word in words:
        if joined and joined[-1] + word in others:
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("transcripts", type=Path)
    parser.add_argument("--half", type=int, choices=(0, 1), help="only every other recording")
    parser.add_argument("--show", action="store_true", help="print what was misheard in the telephone recordings")
    arguments = parser.parse_args()
    kinds = asterisk(arguments.folder, arguments.transcripts, arguments.half)
    sentences = kinds["telephone: sentences"]
    kinds |= {f"telephone, noise at {snr_db} dB": noisy(sentences, snr_db) for snr_db in (10, 5)}
    kinds |= held_out(arguments.half)
    recognizer, normalize = Recognizer(ModelStore().locate("whisper-base"), workers=1), EnglishTextNormalizer({})
    recognizer.transcribe(sentences[0].audio)
    table = Table("kind", "recordings", "words", "errors, one look", "errors", "%", "median ms, one look", "median ms")
    console = Console(width=140)
    for kind, recordings in kinds.items():
        errors, seconds, words = [0, 0], (list[float](), list[float]()), 0
        for one in track(recordings, kind, console=Console(stderr=True)):
            for number, window in enumerate((ONE_LOOK, FINAL_WINDOW)):
                started = time.perf_counter()
                text = " ".join(segment.text for segment in recognizer.transcribe(one.audio, window))
                seconds[number].append(time.perf_counter() - started)
                wrong, count = word_errors(one.text, text, normalize)
                errors[number] += wrong
                if number and wrong and arguments.show and kind.startswith("telephone: "):
                    console.print(f"{wrong} {one.text!r}\n  {text!r}", markup=False, highlight=False)
            words += count
        medians = [f"{1000 * statistics.median(each):.0f}" if each else "-" for each in seconds]
        share = f"{100 * errors[1] / max(1, words):.1f}"
        table.add_row(kind, str(len(recordings)), str(words), *map(str, errors), share, *medians)
    console.print(table)


if __name__ == "__main__":
    main()

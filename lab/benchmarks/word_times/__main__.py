"""How exact the times of spoken words are where a voice's model does not say them, and what times cost.

    python -m lab.benchmarks.word_times [--sentences 50] [--train]

Sentences of the conversation benchmark are spoken by Piper, whose model says how long each phoneme lasts; the aligner
gets the sound and the phonemes only. Its classifier is trained (`--train`) on other sentences: of eight of Kokoro's
voices, which shows how exact the times of an unknown voice are, and then of Piper's as well.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  isort: skip - before torch

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from model.hub.store import ModelStore
from voice import phoneme_alignment
from voice.kokoro_voice import KokoroSynthesizer
from voice.phoneme_alignment import aligned, classifier
from voice.piper_voice import PiperSynthesizer
from voice.pronunciation import Pronunciation
from voice.speech_times import SpeechTimes, speech_times
from voice.voice_file import Sessions

_SENTENCES = Path(__file__).parent.parent / "conversation"

_TRAINING_VOICES = (
    "af_heart", "af_bella", "am_michael", "am_fenrir", "bf_emma", "bf_isabella", "bm_george", "bm_fable",
)  # fmt: skip
_TRAINING_SENTENCES = 113

_FEWEST_WORDS = 5

Recording = tuple[Pronunciation, int]
"""What a voice said, with its durations and its sample rate."""


def sentences(part: str, count: int) -> list[str]:
    """What people say, in one part of the conversation benchmark."""
    lines = (_SENTENCES / part / "everyday.jsonl").read_text(encoding="utf-8").splitlines()
    said = [text for line in lines if len((text := json.loads(line)["say"]).split()) >= _FEWEST_WORDS]
    return said[:count]


def recordings(store: ModelStore, piper: PiperSynthesizer) -> tuple[list[Recording], list[Recording]]:
    """The sentences of the training, each by two of Kokoro's voices and by Piper's."""
    folder, loaded = store.locate("kokoro:af_heart").parent, Sessions()
    voices = [KokoroSynthesizer(folder / f"{name}.bin", loaded=loaded) for name in _TRAINING_VOICES]
    texts = sentences("development", _TRAINING_SENTENCES)
    turns = [(text, voices[(2 * n + other) % len(voices)]) for n, text in enumerate(texts) for other in (0, 1)]
    return (
        [(voice.pronounce(text, 1.0), voice.sample_rate) for text, voice in turns],
        [(piper.pronounce(text, 1.0), piper.sample_rate) for text in texts],
    )


def train(spoken: Sequence[Recording]) -> str:
    """Train the classifier on these, and say how well it knows them."""
    from lab.benchmarks.word_times.training import train as train_classifier

    share = train_classifier(spoken, Path(phoneme_alignment.__file__).with_suffix(".json"))
    classifier.cache_clear()
    seconds = sum(len(each.samples) / rate for each, rate in spoken)
    return f"trained on {seconds:.0f} s: {share:.1%} of the frames are right"


def compare(console: Console, name: str, sentences: Sequence[tuple[str, Pronunciation]], rate: int) -> None:
    """Print how far the aligner is from what a voice says, and what both cost."""
    apart: list[float] = []
    own_ms, aligned_ms = list[float](), list[float]()
    for text, spoken in sentences:
        start = time.thread_time()
        own = _times(text, spoken, rate)
        between = time.thread_time()
        found = _times(text, aligned(replace(spoken, lengths=None), rate), rate)
        own_ms.append(1000 * (between - start))
        aligned_ms.append(1000 * (time.thread_time() - between))
        apart += _distances(own, found)
    table = Table(title=f"{name}, {len(sentences)} sentences, {len(apart)} beginnings and ends of words")
    table.add_column("")
    for column in ("median", "95 %", "largest"):
        table.add_column(column, justify="right")
    for label, values in (
        ("distance of the aligner, ms", np.abs(apart)),
        ("cost a clause with the model's durations, ms", np.array(own_ms)),
        ("cost a clause with the aligner, ms", np.array(aligned_ms)),
    ):
        table.add_row(label, *(f"{value:.1f}" for value in (*np.percentile(values, (50, 95)), values.max())))
    console.print(table, f"bias {np.mean(apart):+.1f} ms, within 60 ms {np.mean(np.abs(apart) <= 60):.1%}")


def _times(text: str, spoken: Pronunciation, rate: int) -> SpeechTimes:
    return speech_times(text, text, spoken.phonemes(slice(0, len(spoken.samples)), rate))


def _distances(own: SpeechTimes, found: SpeechTimes) -> Iterator[float]:
    for one, other in zip(own.words, found.words, strict=True):
        yield other.start_ms - one.start_ms
        yield other.end_ms - one.end_ms


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--train", action="store_true", help="train the classifier first")
    arguments = parser.parse_args()
    store, console = ModelStore(), Console()
    piper = PiperSynthesizer(store.locate("en_US-joe-medium"))
    spoken = [(text, piper.pronounce(text, 1.0)) for text in sentences("reported", arguments.sentences)]
    if arguments.train:
        of_kokoro, of_piper = recordings(store, piper)
        console.print(train(of_kokoro))
        compare(console, "Piper joe, unknown", spoken, piper.sample_rate)
        console.print(train([*of_kokoro, *of_piper]))
    compare(console, "Piper joe", spoken, piper.sample_rate)


if __name__ == "__main__":
    main()

"""Synthesizes what the voice got of answers, transcribes it back, and compares the words.

    python -m lab.benchmarks.conversation.listening --answers FILE [--count 50] [--show]

FILE is what `python -m lab.benchmarks.conversation` has written. Numbers count in every form, so errors are those of
the recognizer, and what the voice says unintelligibly. `--show` prints the transcripts: not for the reported part.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import soxr
from rich.console import Console

from lab.bench.grading import normalize
from lab.benchmarks.conversation.__main__ import read_answers
from server.serving.options import ModelOptions
from server.serving.speech import load_speech_models
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE
from voice.clauses import Clause

_MAX_WORDS = 60
"""Of an answer: the recognizer hears 28 seconds."""


def word_errors(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Words that were missed, added or replaced."""
    blocks = SequenceMatcher(None, reference, heard, autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in blocks if tag != "equal")


def main() -> None:
    """Listen, and print the share of wrong words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    models = load_speech_models(ModelOptions(), Console(stderr=True))
    answers = [said for (name, _), [said, *_] in read_answers(options.answers).items() if name == "questions"]
    short = [said for said in answers if 5 <= len(" ".join(said.spoken).split()) <= _MAX_WORDS]
    errors, words, whole = 0, 0, 0
    chosen = short[:: max(1, len(short) // options.count)][: options.count]
    for said in chosen:
        audio = np.concatenate([models.voices.default.synthesize(Clause(spoken, True)) for spoken in said.spoken])
        segments = models.recognizer.transcribe(soxr.resample(audio, OUTPUT_RATE, RECOGNITION_RATE))
        reference = normalize(" ".join(said.spoken)).split()
        heard = normalize(" ".join(segment.text for segment in segments)).split()
        wrong = word_errors(reference, heard)
        errors, words, whole = errors + wrong, words + len(reference), whole + (not wrong)
        if options.show and wrong:
            print(f"{wrong} of {len(reference)}\n  {' '.join(reference)}\n  {' '.join(heard)}")
    print(f"{len(chosen)} answers, {words} words: {100 * errors / words:.1f} % wrong; {whole} without an error")


if __name__ == "__main__":
    main()

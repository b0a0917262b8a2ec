"""How late the end of speech is detected in noise: from the true last sample to the detected one, on the audio clock.

    python -m lab.benchmarks.noisy_turns FOLDER [--half held-out] [--sentences 2]
        [--remedies | --conversation]
    python -m lab.benchmarks.noisy_turns FOLDER --half clauses --sentences 8 --conversation --completion 0.98

FOLDER is made by `lab.benchmarks.noisy_turns.sources`. Without options: the served detector, by SNR and by noise.
`--remedies` compares what was tried; `--conversation` plays the turns to whole sessions, with the recognizer and the
endpointer and without a language model. The second command plays clauses with a pause of 0.35 s between them to a
session whose language model takes everything for complete.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import jiwer
import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

from lab.benchmarks.noisy_turns.conversation import HeardTurn, converse
from lab.benchmarks.noisy_turns.remedies import detectors
from lab.benchmarks.noisy_turns.simulation import Detection, detect
from lab.benchmarks.noisy_turns.turns import NoisyTurn, noisy_turns
from model.hub.store import ModelStore
from voice.asr import Recognizer
from voice.audio.codec import RECOGNITION_RATE
from voice.audio.vad import Silero, bundled_silero
from voice.timing import Timing

_SNRS_DB = (15.0, 10.0, 5.0)
_MISSED_MS = 4000.0
"""Delay of a turn whose end was not detected, for the percentiles: the noise after each turn lasts as long."""

_console = Console(width=130)


def main(
    folder: Path,
    half: Annotated[str, typer.Option()] = "held-out",
    sentences: Annotated[int, typer.Option(help="Of each speaker.")] = 2,
    snr: Annotated[list[float] | None, typer.Option(help="In dB; may be repeated.")] = None,
    *,
    remedies: Annotated[bool, typer.Option("--remedies")] = False,
    conversation: Annotated[bool, typer.Option("--conversation")] = False,
    completion: Annotated[float | None, typer.Option(help="The language model's verdict on every text.")] = None,
) -> None:
    """Print the tables of docs/benchmarks/noise.md."""
    turns = list(noisy_turns(folder / half, tuple(snr or _SNRS_DB), sentences))
    if conversation:
        _converse(turns, completion)
        return
    found = detectors()
    for name in found if remedies else ("served",):
        began, detections = time.process_time(), list[list[Detection]]()
        for turn in turns:
            frames = found[name](turn.audio)
            timing = Timing()
            detections.append([detect(turn, frames, ms) for ms in (timing.shortest_wait_ms, timing.longest_wait_ms)])
        seconds = sum(len(turn.audio) for turn in turns) / RECOGNITION_RATE
        title = f"{name}: {1000 * (time.process_time() - began) / seconds:.1f} ms of CPU per second of audio"
        groups: list[Callable[[NoisyTurn], str]] = [_snr_name]
        if not remedies:
            groups.append(lambda turn: turn.noise)
        for group in groups:
            _print_detections(title, turns, detections, group)


def _snr_name(turn: NoisyTurn) -> str:
    """One person who talks in the background is a case of its own: no loudness tells their pauses from silence."""
    name = "quiet" if turn.noise == "quiet" else f"{turn.snr_db:.0f} dB"
    return f"{name}, one talker" if turn.noise == "talker" else name


def _print_detections(
    title: str,
    turns: Sequence[NoisyTurn],
    detections: Sequence[Sequence[Detection]],
    group: Callable[[NoisyTurn], str],
) -> None:
    """`detections` of each turn: with words that were understood, and misheard."""
    table = Table("", "turns", "p5", "p50", "p95", "misheard: p50", "p95", "no end", "false ends", "noise took a turn")
    for name in dict.fromkeys(group(turn) for turn in turns):
        chosen = [found for turn, found in zip(turns, detections, strict=True) if group(turn) == name]
        understood, misheard = ([_delay(found[n]) for found in chosen] for n in (0, 1))
        table.add_row(
            name,
            str(len(chosen)),
            *(f"{np.percentile(understood, q):.0f}" for q in (5, 50, 95)),
            *(f"{np.percentile(misheard, q):.0f}" for q in (50, 95)),
            str(sum(found[1].delay_ms is None for found in chosen)),
            str(sum(found[0].false_ends > 0 for found in chosen)),
            str(sum(found[0].false_starts > 0 for found in chosen)),
        )
    table.title = title
    _console.print(table)


def _delay(found: Detection) -> float:
    return _MISSED_MS if found.delay_ms is None else found.delay_ms


def _converse(turns: Sequence[NoisyTurn], completion: float | None) -> None:
    recognizer, silero = Recognizer(ModelStore().locate("whisper-base"), workers=1), Silero(bundled_silero())
    heard: list[HeardTurn] = []
    for turn in turns:
        heard.append(converse(turn, recognizer, silero, completion))
        _console.print(turn.speaker, turn.noise, _snr_name(turn), heard[-1], highlight=False)
    table = Table("", "turns", "end decided after, p50", "p95", "max", "no end", "cut off", "word errors")
    normalize = EnglishTextNormalizer({})
    for name in dict.fromkeys(_snr_name(turn) for turn in turns):
        chosen = [(turn, found) for turn, found in zip(turns, heard, strict=True) if _snr_name(turn) == name]
        delays = [_MISSED_MS if found.decided_ms is None else found.decided_ms for _, found in chosen]
        known = [(turn.text.replace("|", ""), found.transcript) for turn, found in chosen if turn.text]
        errors = jiwer.wer([normalize(text) for text, _ in known], [normalize(text) for _, text in known])
        table.add_row(
            name,
            str(len(chosen)),
            *(f"{np.percentile(delays, q):.0f}" for q in (50, 95, 100)),
            str(sum(found.decided_ms is None for _, found in chosen)),
            str(sum(found.cut_off for _, found in chosen)),
            f"{100 * errors:.0f} %",
        )
    _console.print(table)


if __name__ == "__main__":
    typer.run(main)

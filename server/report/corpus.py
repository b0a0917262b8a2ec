"""Spoken turns with labels from the waveform: the built-in corpus, made once with the shipped voice, and folders of
recordings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from model.store import write_whole
from server.ask import read_wav
from server.report.background import at_snr, babble, pink
from server.report.lines import BABBLE, LINES, Expected, Line
from voice.audio import SPEAKING_RATE, BadAudio, Samples, from_pcm16, to_pcm16
from voice.clauses import Clause

_VERSION = 2
"""Raised when the corpus is made in another way; another text makes another corpus by itself."""

_FLOOR = 0.01
"""Share of the speech's own peak (-40 dB) from which a sample counts as speech."""

_LOUDNESS = 0.6
"""Peak of the spoken turns."""

_SPEEDS = (0.95, 1.0, 1.05, 1.1, 1.18)
"""Paces that the turns are spoken at, one after another."""


class Speaker(Protocol):
    """Speaks a clause: [T] float32 at 24 kHz. `voice.tts.Voice` is one."""

    def say(self, clause: Clause, speed: float = 1.0) -> Samples: ...


@dataclass(frozen=True)
class Overlap:
    """What is said over the answer.

    Attributes:
        audio: [T] float32 at 24 kHz.
        speech_start_ms: its first sample of speech.
        after_ms: from the first audible sample of the answer to that first sample of speech.
        interrupts: whether the assistant should stop.
    """

    text: str
    audio: Samples
    speech_start_ms: float
    speech_end_ms: float
    after_ms: float
    interrupts: bool


@dataclass(frozen=True)
class SpokenTurn:
    """One turn to speak.

    Attributes:
        audio: [T] float32 at 24 kHz, without the background.
        speech_start_ms, speech_end_ms: first and last sample above -40 dB of the speech's own peak.
        expected: whether an answer should come.
        background: a loop to mix in from before the turn until after its answer, loud as it should be; or None.
        over: what is said over the answer, or None.
    """

    name: str
    kind: str
    text: str
    audio: Samples
    speech_start_ms: float
    speech_end_ms: float
    expected: Expected = "answer"
    background: Samples | None = None
    over: Overlap | None = None


def bounds_ms(samples: Samples) -> tuple[float, float]:
    """Where speech begins and ends in a clean recording: its first and last sample above -40 dB of its peak.

    Raises:
        BadAudio: nothing but silence.
    """
    peak = float(np.abs(samples).max(initial=0.0))
    if peak == 0.0:
        raise BadAudio("a recording without any sound cannot be a turn")
    loud = np.flatnonzero(np.abs(samples) >= _FLOOR * peak)
    return 1000 * float(loud[0]) / SPEAKING_RATE, 1000 * float(loud[-1]) / SPEAKING_RATE


def built_in(speaker: Callable[[], Speaker], folder: Path, voice: str) -> list[SpokenTurn]:
    """The corpus that comes with Rejoinder, made on first use.

    Args:
        speaker: loads the voice; called only when the corpus is not in `folder` yet.
        folder: where it is kept from one report to the next.
        voice: the voice's name, which is part of the file's.
    """
    said = json.dumps([_VERSION, [asdict(line) for line in LINES], BABBLE])
    path = folder / f"corpus-{voice}-{hashlib.sha256(said.encode()).hexdigest()[:12]}.npz"
    if not path.exists():
        _write(path, _synthesize(LINES, speaker()))
    return _read(path)


def from_folder(folder: Path) -> list[SpokenTurn]:
    """Turns from WAV files with a text file of the same name beside each; an empty text means that no answer should
    come. The end of the speech is where a recording last exceeds -40 dB of its peak, so they should be clean.

    Raises:
        BadAudio: the folder holds no such turns, or a recording cannot be read.
    """
    if not folder.is_dir():
        raise BadAudio(f"there is no folder {folder}: --corpus wants one with WAV files and a .txt beside each")
    recordings = sorted(folder.glob("*.wav"))
    if not recordings:
        raise BadAudio(f"{folder} holds no .wav file: --corpus wants WAV files and a .txt of the same name beside each")
    turns = []
    for path in recordings:
        try:
            text = path.with_suffix(".txt").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise BadAudio(f"{path.name} has no {path.stem}.txt beside it that says what is spoken") from None
        except UnicodeDecodeError:
            raise BadAudio(f"{path.stem}.txt is not UTF-8 text: save it as UTF-8") from None
        audio = read_wav(path, SPEAKING_RATE)
        try:
            start, end = bounds_ms(audio)
        except BadAudio:
            raise BadAudio(f"{path} holds nothing but silence") from None
        turns.append(SpokenTurn(path.stem, "recording", text, audio, start, end, "answer" if text else "none"))
    return turns


def choose(turns: Sequence[SpokenTurn], kinds: Sequence[str], count: int | None, seed: int) -> list[SpokenTurn]:
    """`count` turns (all when None), kinds taking turns, so that a short report has some of each; in an order that
    `seed` decides. With more asked for than there are, the corpus starts over.

    Raises:
        ValueError: a kind that the corpus does not have.
    """
    there = list(dict.fromkeys(turn.kind for turn in turns))
    for kind in kinds:
        if kind not in there:
            raise ValueError(f"this corpus has no turns of kind {kind!r}: it has {', '.join(there)}")
    rng = np.random.default_rng(seed)
    piles = {kind: [turn for turn in turns if turn.kind == kind] for kind in kinds or there}
    for pile in piles.values():
        rng.shuffle(pile)
    longest = max(len(pile) for pile in piles.values())
    order = [pile[row] for row in range(longest) for pile in piles.values() if row < len(pile)]
    wanted = len(order) if count is None else count
    return [order[n % len(order)] for n in range(wanted)]


def _synthesize(lines: Sequence[Line], speaker: Speaker) -> dict[str, Any]:
    sounds: dict[str, Any] = {}
    for n, line in enumerate(lines):
        speed = _SPEEDS[n % len(_SPEEDS)]
        sounds[f"turn{n}"] = _pcm(_speak(line.parts, line.pauses_s, speaker, speed))
        if line.over is not None:
            sounds[f"over{n}"] = _pcm(_speak((line.over.text,), (), speaker, speed))
    voices = [speaker.say(Clause(text, True), _SPEEDS[n % len(_SPEEDS)]) for n, text in enumerate(BABBLE)]
    sounds["pink"], sounds["babble"] = pink(seed=1), babble(voices, seed=2)
    return sounds


def _speak(parts: Sequence[str], pauses_s: Sequence[float], speaker: Speaker, speed: float) -> Samples:
    """The parts one behind the other, each cut to its speech, with silence of the right length between."""
    pieces: list[Samples] = []
    for n, text in enumerate(parts):
        if n:
            pieces.append(np.zeros(round(pauses_s[n - 1] * SPEAKING_RATE), np.float32))
        said = speaker.say(Clause(text, n == len(parts) - 1), speed)
        start, end = bounds_ms(said)
        pieces.append(said[round(start * SPEAKING_RATE / 1000) : round(end * SPEAKING_RATE / 1000) + 1])
    whole = np.concatenate(pieces)
    return whole * np.float32(_LOUDNESS / np.abs(whole).max())


def _pcm(samples: Samples) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.frombuffer(to_pcm16(samples), np.uint8)


def _write(path: Path, sounds: dict[str, Any]) -> None:
    """All or nothing: a killed process leaves no half corpus under the name."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(partial: Path) -> None:
        with partial.open("wb") as out:  # a name would be given the suffix .npz
            np.savez(out, **sounds)

    write_whole(path, write)


def _read(path: Path) -> list[SpokenTurn]:
    counts: dict[str, int] = {}
    turns = []
    with np.load(path) as sounds:
        backgrounds = {name: sounds[name] for name in ("pink", "babble")}
        for n, line in enumerate(LINES):
            counts[line.kind] = counts.get(line.kind, 0) + 1
            audio = from_pcm16(sounds[f"turn{n}"].tobytes())
            start, end = bounds_ms(audio)
            background = None
            if line.background is not None and line.snr_db is not None:
                background = at_snr(backgrounds[line.background], audio, line.snr_db)
            over = None
            if line.over is not None:
                said = from_pcm16(sounds[f"over{n}"].tobytes())
                over = Overlap(line.over.text, said, *bounds_ms(said), line.over.after_ms, line.over.interrupts)
            name = f"{line.kind}-{counts[line.kind]}"
            text = " ".join(line.parts)
            turns.append(SpokenTurn(name, line.kind, text, audio, start, end, "answer", background, over))
    return turns

"""Spoken turns with labels from the waveform, and the built-in corpus, synthesized once. What comes from folders of
recordings is in `recordings.py`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lab.report.background import at_snr, babble, pink
from lab.report.corpus_lines import BABBLE, LINES, Expected, Line
from lab.report.corpus_voices import assign_voices
from model.hub.store import write_atomically
from voice.audio.codec import OUTPUT_RATE, BadAudio, Samples, from_pcm16, to_pcm16
from voice.clauses import Clause

_VERSION = 2
"""Increased when the synthesis of the corpus changes; a change of its text is detected automatically."""

_SPEECH_THRESHOLD = 0.01
"""Fraction of the recording's peak (-40 dB) above which a sample counts as speech."""

_PEAK = 0.6
"""Peak amplitude of the synthesized turns."""

TURNS_PER_SPEAKER = 8
"""Turns that a voice speaks before the next one takes over, on a connection of its own: a conversation has one user."""

_SPEEDS = (0.95, 1.0, 1.05, 1.1, 1.18)
"""Speaking rates, which the turns cycle through."""


class Synthesizer(Protocol):
    """Synthesizes a clause as [T] float32 at 24 kHz, like `voice.tts.Voice`."""

    def synthesize(self, clause: Clause, speed: float = 1.0) -> Samples: ...


@dataclass(frozen=True)
class Overlap:
    """What the user says over the response.

    Attributes:
        audio: [T] float32 at 24 kHz.
        speech_start_ms, speech_end_ms: first and last sample of speech.
        after_ms: from the first audible sample of the response to the first sample of this speech.
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
    """One turn for the client to speak.

    Attributes:
        audio: [T] float32 at 24 kHz, without the background.
        speech_start_ms, speech_end_ms: first and last sample above -40 dB of the speech's own peak.
        expected: whether the assistant should respond.
        background: a loop at its final level, mixed in from before the turn until after the response; or None.
        overlap: what the user says over the response, or None.
        voice: who speaks, such as the name of the voice that was synthesized; may be empty for a recording.
        corpus: what the turn is a part of.
    """

    name: str
    kind: str
    text: str
    audio: Samples
    speech_start_ms: float
    speech_end_ms: float
    expected: Expected = "answer"
    background: Samples | None = None
    overlap: Overlap | None = None
    voice: str = ""
    corpus: str = ""


def bounds_ms(samples: Samples) -> tuple[float, float]:
    """Start and end of speech in a clean recording: the first and last sample above -40 dB of its peak.

    Raises:
        BadAudio: the recording is silent.
    """
    peak = float(np.abs(samples).max(initial=0.0))
    if peak == 0.0:
        raise BadAudio("a silent recording cannot be used as a turn")
    loud = np.flatnonzero(np.abs(samples) >= _SPEECH_THRESHOLD * peak)
    return 1000 * float(loud[0]) / OUTPUT_RATE, 1000 * float(loud[-1]) / OUTPUT_RATE


def built_in(load_voice: Callable[[str], Synthesizer], folder: Path, voices: Sequence[str]) -> list[SpokenTurn]:
    """The built-in corpus, synthesized on first use.

    Args:
        load_voice: loads one of the voices; called only if the corpus is not in `folder` yet.
        folder: caches the corpus, one file for each choice of voices.
        voices: names of the voices, which take turns.
    """
    identity: list[Any] = [_VERSION, [asdict(line) for line in LINES], BABBLE]
    name = re.sub(r"[^\w.-]+", "-", voices[0])
    if len(voices) > 1:
        identity.append(list(voices))
        name = f"{len(voices)}-voices"
    path = folder / f"corpus-{name}-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]}.npz"
    if not path.exists():
        _write(path, _synthesize(LINES, voices, load_voice))
    return _read(path, voices)


def select_turns(turns: Sequence[SpokenTurn], kinds: Sequence[str], count: int | None, seed: int) -> list[SpokenTurn]:
    """Select `count` turns of each corpus (all if None) in an order that depends on `seed`. Kinds alternate, so that a
    short report includes each, and so do voices, every `TURNS_PER_SPEAKER` turns. If `count` exceeds the size of the
    corpus, turns repeat.

    Raises:
        ValueError: there are no turns of one of the kinds.
    """
    available = list(dict.fromkeys(turn.kind for turn in turns))
    for kind in kinds:
        if kind not in available:
            raise ValueError(f"there are no turns of kind {kind!r}: the kinds are {', '.join(available)}")
    rng = np.random.default_rng(seed)
    corpora: dict[str, list[SpokenTurn]] = {}
    for turn in turns:
        corpora.setdefault(turn.corpus, []).append(turn)
    return [turn for corpus in corpora.values() for turn in _select(corpus, kinds or available, count, rng)]


def _select(
    turns: Sequence[SpokenTurn], kinds: Sequence[str], count: int | None, rng: np.random.Generator
) -> list[SpokenTurn]:
    by_kind = {kind: [turn for turn in turns if turn.kind == kind] for kind in kinds}
    for group in by_kind.values():
        rng.shuffle(group)
    longest = max(len(group) for group in by_kind.values())
    order = [group[row] for row in range(longest) for group in by_kind.values() if row < len(group)]
    selected = [order[n % len(order)] for n in range(len(order) if count is None or not order else count)]
    by_voice: dict[str, list[SpokenTurn]] = {}
    for turn in selected:
        by_voice.setdefault(turn.voice, []).append(turn)
    return [
        turn
        for start in range(0, len(selected), TURNS_PER_SPEAKER)
        for group in by_voice.values()
        for turn in group[start : start + TURNS_PER_SPEAKER]
    ]


def _synthesize(
    lines: Sequence[Line], voices: Sequence[str], load_voice: Callable[[str], Synthesizer]
) -> dict[str, Any]:
    """The recordings by name. Only one voice is loaded at a time."""
    recordings: dict[str, Any] = {}
    assigned, babbling = assign_voices(lines, voices), {}
    for voice in voices:
        synthesizer = load_voice(voice)
        for n, line in enumerate(lines):
            if assigned[n] != voice:
                continue
            speed = _SPEEDS[n % len(_SPEEDS)]
            recordings[f"turn{n}"] = _pcm(_speak(line.parts, line.pauses_s, synthesizer, speed))
            if line.over is not None:
                recordings[f"over{n}"] = _pcm(_speak((line.over.text,), (), synthesizer, speed))
        for n, text in enumerate(BABBLE):
            if voices[n % len(voices)] == voice:
                babbling[n] = synthesizer.synthesize(Clause(text, True), _SPEEDS[n % len(_SPEEDS)])
    recordings["pink"] = pink(seed=1)
    recordings["babble"] = babble([babbling[n] for n in range(len(BABBLE))], seed=2)
    return recordings


def _speak(parts: Sequence[str], pauses_s: Sequence[float], synthesizer: Synthesizer, speed: float) -> Samples:
    """Synthesize the parts, trim each to its speech, and join them with the given pauses."""
    chunks: list[Samples] = []
    for n, text in enumerate(parts):
        if n:
            chunks.append(np.zeros(round(pauses_s[n - 1] * OUTPUT_RATE), np.float32))
        clause = synthesizer.synthesize(Clause(text, n == len(parts) - 1), speed)
        start, end = bounds_ms(clause)
        chunks.append(clause[round(start * OUTPUT_RATE / 1000) : round(end * OUTPUT_RATE / 1000) + 1])
    whole = np.concatenate(chunks)
    return whole * np.float32(_PEAK / np.abs(whole).max())


def _pcm(samples: Samples) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.frombuffer(to_pcm16(samples), np.uint8)


def _write(path: Path, recordings: dict[str, Any]) -> None:
    """Write atomically, so that a killed process leaves no incomplete corpus."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def write(partial: Path) -> None:
        with partial.open("wb") as out:  # given a name, numpy would append the suffix .npz
            np.savez(out, **recordings)

    write_atomically(path, write)


def _read(path: Path, voices: Sequence[str]) -> list[SpokenTurn]:
    counts: dict[str, int] = {}
    turns = []
    with np.load(path) as recordings:
        backgrounds = {name: recordings[name] for name in ("pink", "babble")}
        for n, (line, voice) in enumerate(zip(LINES, assign_voices(LINES, voices), strict=True)):
            counts[line.kind] = counts.get(line.kind, 0) + 1
            audio = from_pcm16(recordings[f"turn{n}"].tobytes())
            start, end = bounds_ms(audio)
            background = None
            if line.background is not None and line.snr_db is not None:
                background = at_snr(backgrounds[line.background], audio, line.snr_db)
            overlap = None
            if line.over is not None:
                words = from_pcm16(recordings[f"over{n}"].tobytes())
                overlap = Overlap(line.over.text, words, *bounds_ms(words), line.over.after_ms, line.over.interrupts)
            name = f"{line.kind}-{counts[line.kind]}"
            text = " ".join(line.parts)
            turns.append(SpokenTurn(name, line.kind, text, audio, start, end, "answer", background, overlap, voice))
    return turns

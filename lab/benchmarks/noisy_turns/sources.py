"""Makes the recordings for `python -m lab.benchmarks.noisy_turns`: speakers and noises, in halves that share nothing,
and clauses with a short pause between them.

    apt-get install flite espeak-ng asterisk-core-sounds-{en,fr,it,ru}-g722 asterisk-moh-opsound-wav
    python -m lab.benchmarks.noisy_turns.sources FOLDER [--kokoro MODEL_FOLDER] [--debian ROOT]

Writes FOLDER/HALF/speakers/NAME/N.wav, each with its text in N.txt (`|` marks a pause), and FOLDER/HALF/noises/NAME.wav
at 16 kHz. MODEL_FOLDER holds kokoro-v1.0.int8.onnx and voices such as af_heart.bin. What is not installed is left out.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import av
import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from lab.benchmarks.turn_ends import CLAUSES
from server.serving.options import DEFAULT_VOICE
from server.serving.runtime import locate_model
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, Samples
from voice.audio.resampling import resample
from voice.audio.wav import read_wav, write_wav
from voice.clauses import Clause
from voice.tts import Voice

Speak = Callable[[str], Samples]
"""Synthesizes a text: [T] float32 at 16 kHz."""

TEXTS = {
    "tuning": (
        "How do I keep bread from going stale?",
        "Which river runs through Budapest?",
        "Tell me something nice about hedgehogs.",
        "What time does the sun set in December?",
        "Is it cheaper to rent a car or to take the train?",
        "Why does my knee hurt when I run?",
        "Could you find me a quick recipe with lentils?",
        "When I boil eggs | they always crack, what am I doing wrong?",
        "We are five people for dinner tonight | so how much rice do I need?",
        "Who was the president | before Abraham Lincoln?",
    ),
    "held-out": (
        "How many legs does a lobster have?",
        "What is a good present for a girl of seven?",
        "Please explain how a microwave oven works.",
        "Does coffee lose its taste in the freezer?",
        "Where did the first Olympic games take place?",
        "I need an idea for a rainy afternoon.",
        "How long should I let the dough rest?",
        "My radiator makes a strange noise | is that dangerous?",
        "If I plant the seeds in April | when can I expect the first flowers?",
        "What did people eat | before there were potatoes in Europe?",
    ),
    "clauses": tuple(line.replace(", ", " | ") for line in CLAUSES.strip().splitlines()),
}
"""No text of the report's corpus or of the training templates."""

PAUSES_S = {"tuning": (0.4, 0.55, 0.7), "held-out": (0.4, 0.55, 0.7), "clauses": (0.35,)}
"""Pauses at `|`, which the recordings cycle through."""

PIPER_SPEEDS = {"tuning": 1.0, "held-out": 1.2, "clauses": 1.1}
FLITE = {"tuning": ("rms", "slt"), "held-out": ("awb", "kal16"), "clauses": ("slt",)}
ESPEAK = {"tuning": ("en-us+m3",), "held-out": ("en-gb+f2",), "clauses": ()}
KOKORO = {
    "tuning": ("af_heart", "am_michael", "bm_george"),
    "held-out": ("af_bella", "am_fenrir", "bf_isabella", "bm_fable"),
    "clauses": ("bf_emma",),
}
PEOPLE = {"tuning": ("fr_CA_f_June", "it_IT_m_Carlo"), "held-out": ("ru_RU_f_IvrvoiceRU", "en_US_f_Allison")}
"""Recordings of people, who talk in the background. The last one of the held-out half is also a speaker."""

MUSIC = {
    "tuning": ("macroform-cold_day", "reno_project-system"),
    "held-out": ("manolo_camp-morning_coffee", "macroform-robot_dity"),
}
_NOISE_S = 24
_MIN_PROMPT_S, _MAX_PROMPT_S = 2.0, 7.0


def main(
    folder: Path,
    kokoro: Annotated[Path | None, typer.Option()] = None,
    debian: Annotated[Path, typer.Option(help="Where the Debian packages are unpacked.")] = Path("/"),
) -> None:
    """Write all recordings."""
    piper = Voice(locate_model(DEFAULT_VOICE, Console()))
    for half in TEXTS:
        random = np.random.default_rng(len(half))
        voices: list[Samples] = []
        for name, speak in _synthesizers(half, piper, kokoro, debian):
            out = folder / half / "speakers" / name
            out.mkdir(parents=True, exist_ok=True)
            for n, text in enumerate(TEXTS[half]):
                audio = _with_pauses(speak, text, PAUSES_S[half][n % len(PAUSES_S[half])])
                write_wav(out / f"{n}.wav", 0.5 * audio, RECOGNITION_RATE)
                (out / f"{n}.txt").write_text(text + "\n", encoding="utf-8")
                voices.append(audio)
            print(half, name, flush=True)
        if half == "clauses":
            continue
        people = [recording for name in PEOPLE[half] for recording in _prompts(debian, name)]
        if half == "held-out":
            out = folder / half / "speakers" / "human"
            out.mkdir(parents=True, exist_ok=True)
            for n, audio in enumerate(list(_prompts(debian, PEOPLE[half][-1]))[:10]):
                write_wav(out / f"{n}.wav", 0.5 * audio, RECOGNITION_RATE)
                (out / f"{n}.txt").write_text("\n", encoding="utf-8")
        talkers = [voices[n] for n in random.permutation(len(voices))[:30]] + people
        noises = _noises(half, talkers, people, random, debian)
        (folder / half / "noises").mkdir(parents=True, exist_ok=True)
        for name, noise in noises.items():
            write_wav(folder / half / "noises" / f"{name}.wav", 0.1 * _normalized(noise), RECOGNITION_RATE)


def _synthesizers(half: str, piper: Voice, kokoro: Path | None, debian: Path) -> Iterator[tuple[str, Speak]]:
    yield "piper-joe", _speaker(piper, PIPER_SPEEDS[half])
    flite = shutil.which("flite") or str(debian / "usr/bin/flite")
    for voice in FLITE[half]:
        command = [str(Path(flite).with_name(f"flite_cmu_us_{voice}"))]
        if Path(command[0]).exists():
            yield f"flite-{voice}", lambda text, command=command: _run(command, "-t", text, "-o")  # type: ignore[misc]
    for voice in ESPEAK[half]:
        if shutil.which("espeak-ng"):
            command = ["espeak-ng", "-v", voice, "-s", "160"]
            yield f"espeak-{voice}", lambda text, command=command: _run(command, text, "-w")  # type: ignore[misc]
    for voice in KOKORO[half] if kokoro is not None else ():
        yield f"kokoro-{voice}", _speaker(Voice(kokoro / f"{voice}.bin"), 1.0)  # type: ignore[operator]


def _speaker(voice: Voice, speed: float) -> Speak:
    return lambda text: resample(voice.synthesize(Clause(text, True), speed), OUTPUT_RATE, RECOGNITION_RATE)


def _run(command: Sequence[str], *arguments: str) -> Samples:
    """Run a synthesizer that writes a WAV file to its last argument."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.wav"
        subprocess.run([*command, *arguments, str(path)], check=True, capture_output=True)
        return read_wav(path, RECOGNITION_RATE)


def _with_pauses(speak: Speak, text: str, pause_s: float) -> Samples:
    """The parts of a text, trimmed and joined with pauses, peak 1."""
    parts = [_trimmed(speak(part.strip())) for part in text.split("|")]
    pause = np.zeros(round(pause_s * RECOGNITION_RATE), np.float32)
    audio = np.concatenate([chunk for part in parts for chunk in (pause, part)][1:])
    return audio / np.abs(audio).max()


def _trimmed(audio: Samples) -> Samples:
    loud = np.flatnonzero(np.abs(audio) >= 0.01 * np.abs(audio).max())
    return audio[loud[0] : loud[-1] + 1]


def _prompts(debian: Path, name: str) -> Iterator[Samples]:
    """A person's longer prompts, peak 1."""
    for path in sorted((debian / "usr/share/asterisk/sounds" / name).glob("*.g722")):
        with av.open(str(path)) as container:
            frames = [frame.to_ndarray().ravel() for frame in container.decode(audio=0)]
        audio = np.concatenate([np.zeros(0), *frames]).astype(np.float32)
        if _MIN_PROMPT_S < len(audio) / RECOGNITION_RATE < _MAX_PROMPT_S:
            trimmed = _trimmed(audio)
            yield trimmed / np.abs(trimmed).max()


def _noises(
    half: str, talkers: list[Samples], people: list[Samples], random: np.random.Generator, debian: Path
) -> dict[str, Samples]:
    count = _NOISE_S * RECOGNITION_RATE
    noises = {"babble-8": _babble(talkers, 8, random), "babble-4": _babble(people or talkers, 4, random)}
    music = [debian / "usr/share/asterisk/moh" / f"{name}.wav" for name in MUSIC[half]]
    if music[0].exists():
        halves = [read_wav(path)[20 * RECOGNITION_RATE :][: count // 2] for path in music]
        noises["music"] = np.concatenate([_normalized(piece) for piece in halves])
    if half == "tuning":
        noises["pink"] = _coloured(count, random, 0.5)
        noises["fan"] = _normalized(_coloured(count, random, 1.0)) + 0.5 * _hum(count)
    else:
        noises["talker"] = _babble(people or talkers, 1, random)
        noises["office"] = _office(_babble(talkers, 3, random), random)
        noises["street"] = _street(count, random)
    return noises


def _babble(talkers: Sequence[Samples], number: int, random: np.random.Generator) -> Samples:
    """`number` people who talk at once without a pause."""
    count = _NOISE_S * RECOGNITION_RATE
    mixed = np.zeros(count, np.float32)
    for _ in range(number):
        order = random.permutation(len(talkers))
        speech = np.concatenate([_normalized(talkers[n]) for n in order])[:count]
        mixed += np.resize(np.roll(speech, int(random.integers(count))), count) * np.float32(random.uniform(0.6, 1.0))
    return mixed


def _coloured(count: int, random: np.random.Generator, slope: float) -> Samples:
    """Noise whose amplitude falls as 1/f^slope from 50 Hz on: 0.5 is pink."""
    hertz = np.fft.rfftfreq(count, 1 / RECOGNITION_RATE)
    spectrum = random.normal(size=len(hertz)) + 1j * random.normal(size=len(hertz))
    spectrum *= np.where(hertz < 50, 0, np.maximum(hertz, 50) ** -slope)
    return np.fft.irfft(spectrum, count).astype(np.float32)


def _hum(count: int) -> Samples:
    time = np.arange(count) / RECOGNITION_RATE
    return sum(np.sin(2 * np.pi * 50 * n * time) / n for n in (1, 2, 3, 5, 7)).astype(np.float32)  # type: ignore[union-attr]


def _office(talk: Samples, random: np.random.Generator) -> Samples:
    """Distant colleagues, an air conditioner and keystrokes."""
    noise = 0.5 * _normalized(talk) + 0.5 * _normalized(_coloured(len(talk), random, 0.8))
    click = (random.normal(size=320) * np.exp(-np.arange(320) / 40)).astype(np.float32)
    position = 0
    while (position := position + int(random.exponential(0.18) * RECOGNITION_RATE) + 800) < len(noise) - len(click):
        noise[position : position + len(click)] += random.uniform(1, 4) * click
    return noise


def _street(count: int, random: np.random.Generator) -> Samples:
    """Cars that pass, each a few seconds long."""
    time = np.arange(count) / RECOGNITION_RATE
    noise = 0.3 * _normalized(_coloured(count, random, 0.9))
    for _ in range(8):
        shape = np.exp(-(((time - random.uniform(0, _NOISE_S)) / random.uniform(0.6, 2.0)) ** 2))
        noise += (random.uniform(0.5, 1.5) * shape).astype(np.float32) * _normalized(_coloured(count, random, 0.7))
    return noise


def _normalized(audio: NDArray[np.float32]) -> Samples:
    out: Samples = (audio / max(1e-9, float(np.sqrt(np.mean(np.square(audio, dtype=np.float64)))))).astype(np.float32)
    return out


if __name__ == "__main__":
    typer.run(main)

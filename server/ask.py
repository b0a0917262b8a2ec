"""`rejoinder ask`: one turn without a server, through the same session that a server runs."""

from __future__ import annotations

import asyncio
import json
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from server.loading import Choice, load_engine, load_voice_stages
from voice import events
from voice.audio import HEARING_RATE, SPEAKING_RATE, BadAudio, Samples, from_pcm16, resample, to_pcm16
from voice.history import Item
from voice.session import Session
from voice.speaking import Settings

_RATES = range(4_000, 192_001)
"""Hz that a WAV file may have."""

_BLOCK_S = 1.0
"""Audio handed to the session at a time."""


@dataclass(frozen=True)
class Question:
    """What to ask, and what to do with the answer."""

    text: str | None
    wav: Path | None
    out: Path | None
    as_json: bool


async def run(question: Question, choice: Choice, out: Console, err: Console) -> None:
    """Ask and print the answer.

    Raises:
        BadAudio: the WAV file cannot be used, or holds no speech.
        RuntimeError: the answer failed.
    """
    spoken = read_wav(question.wav) if question.wav else None
    stages, engine = load_voice_stages(choice, err), load_engine(choice, err)
    arrived: asyncio.Queue[events.SessionEvent] = asyncio.Queue()
    settings = Settings(detect_turns=False, speak=question.out is not None)
    session = Session(engine.conversation(), stages, arrived.put_nowait, settings)
    try:
        if spoken is None:
            session.history.add(Item("question", "user", question.text or "", spoken=False, complete=True))
        else:
            for start in range(0, len(spoken), int(_BLOCK_S * HEARING_RATE)):
                session.append(spoken[start : start + int(_BLOCK_S * HEARING_RATE)], HEARING_RATE)
            session.commit()
        session.respond()
        await _tell(question, arrived, out)
    finally:
        await session.close()
        engine.close()


async def _tell(question: Question, arrived: asyncio.Queue[events.SessionEvent], out: Console) -> None:
    heard, sound = question.text or "", [events.NO_SAMPLES]
    while True:
        match await arrived.get():
            case events.FinalTranscript(text=text):
                if not text:
                    raise BadAudio(f"no speech was found in {question.wav}")
                heard = text
                if not question.as_json:
                    out.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
            case events.TranscriptionFailed(reason=reason):
                raise ValueError(reason)
            case events.AnswerText(text=text) if not question.as_json:
                out.print(text, end="", markup=False, highlight=False, soft_wrap=True)
            case events.AnswerAudio(samples=samples):
                sound.append(samples)
            case events.AnswerDone() as done:
                break
    if done.status == "failed":
        raise ValueError(f"the answer failed: {done.reason}")
    if question.out is not None:
        write_wav(question.out, np.concatenate(sound), SPEAKING_RATE)
    if question.as_json:
        said = {
            "question": heard,
            "answer": done.item.text.strip(),
            "stages_ms": done.timeline.stages_ms(),
            "steps": done.timeline.steps,
            "tokens": done.timeline.tokens,
        }
        out.print_json(json.dumps(said))
    else:
        out.print()


def read_wav(path: Path, rate: int = HEARING_RATE) -> Samples:
    """A WAV file at `rate` Hz, its channels mixed.

    Raises:
        BadAudio: it is missing, not a 16-bit PCM WAV file, or empty.
    """
    try:
        with wave.open(str(path)) as file:
            width, channels, found = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except FileNotFoundError:
        raise BadAudio(f"there is no file {path}") from None
    except (wave.Error, EOFError) as error:
        raise BadAudio(
            f"{path} is not a PCM WAV file ({error}): convert it with `ffmpeg -i {path} -c:a pcm_s16le out.wav`"
        ) from None
    if width != 2:
        raise BadAudio(f"{path} has {8 * width}-bit samples: convert it to 16 bits")
    if found not in _RATES:
        raise BadAudio(f"{path} claims {found} samples a second, which is no rate for speech")
    samples = from_pcm16(data[: len(data) // (2 * channels) * 2 * channels]).reshape(-1, channels).mean(axis=1)
    if not len(samples):
        raise BadAudio(f"{path} holds no sound")
    return resample(samples.astype(np.float32), found, rate)


def write_wav(path: Path, samples: Samples, rate: int) -> None:
    """Write mono 16-bit PCM."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(to_pcm16(samples))

"""The command: builds the environments, starts the server, runs the clients, and checks what they report.

The environments stay in the work folder, so that a second run starts at once. The clients themselves are unmodified.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from piper import PiperVoice, SynthesisConfig

import server.openmp  # noqa: F401 - before torch
from lab.benchmarks.client_environments import Client, run_clients
from lab.benchmarks.realtime_clients.recordings import RATE, SENTENCES
from model.hub.store import ModelStore
from server.serving.options import DEFAULT_VOICE
from voice.audio.resampling import resample
from voice.audio.wav import write_wav

_SCRIPTS = Path(__file__).parent

CLIENTS = {
    "openai": Client(("openai[realtime]==3.54.0",), _SCRIPTS / "openai_client.py"),
    "agents": Client(("@openai/agents-realtime@0.20.0", "ws@8", "zod@4"), _SCRIPTS / "agents_client.mjs"),
    "pipecat": Client(("pipecat-ai[openai]==1.14.0",), _SCRIPTS / "pipecat_client.py"),
    "livekit": Client(("livekit-agents==1.8.9", "livekit-plugins-openai==1.8.9"), _SCRIPTS / "livekit_client.py"),
}


def record_sentences(folder: Path) -> None:
    """Let the server's own voice speak the user's sentences, without the noise that makes it sound different each time:
    some of those recordings are misheard ("the capital of friends")."""
    voice = PiperVoice.load(ModelStore(hub=False).locate(DEFAULT_VOICE))
    for name, text in SENTENCES.items():
        chunks = voice.synthesize(text, SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0))
        speech = np.concatenate([chunk.audio_float_array for chunk in chunks])
        write_wav(folder / f"{name}.wav", resample(speech, voice.config.sample_rate, RATE), RATE)


def faults(report: dict[str, Any]) -> list[str]:
    """What is wrong with a conversation."""
    turn, interruption, call = report["turn"], report["interruption"], report["call"]
    spoken = str(call["transcript"]).lower()
    checks = {
        f"the answer to the question is {turn['transcript']!r}": "paris" in str(turn["transcript"]).lower(),
        f"the answer lasts {turn['audio_ms']:.0f} ms": turn["audio_ms"] > 300,
        "the response was not interrupted": interruption["interrupted"],
        f"after the interruption: {interruption['transcript']!r}": "rome" in str(interruption["transcript"]).lower(),
        f"the function was called with {call['arguments']}": "london" in str(call["arguments"].get("city", "")).lower(),
        f"the result was spoken as {call['transcript']!r}": "eleven" in spoken or "11" in spoken or "rain" in spoken,
        f"errors: {report.get('errors')}": not report.get("errors"),
    }
    return [fault for fault, passed in checks.items() if not passed]


if __name__ == "__main__":
    run_clients("realtime", CLIENTS, faults, record_sentences)

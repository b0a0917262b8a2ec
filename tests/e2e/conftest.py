"""The real models and a real server. Without them a test is skipped on a person's machine and fails in CI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from piper import SynthesisConfig

from model.store import ModelUnavailable, Store
from server.ask import write_wav
from voice.asr import Recognizer
from voice.audio import HEARING_RATE, SPEAKING_RATE, Samples, resample
from voice.tts import Voice

START_SECONDS = 240
"""Assembling the models, making their int8 weights and warming up, on a slow machine."""


def missing(what: str) -> None:
    """Skip, or fail where everything should be there."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}, and CI must have it")
    pytest.skip(what)


def path_of(name: str) -> Path:
    """The files of a model."""
    try:
        return Store(hub=False).locate(name)
    except ModelUnavailable as error:
        missing(str(error))
        raise


@pytest.fixture(scope="session")
def recognizer() -> Recognizer:
    """The real Whisper."""
    return Recognizer(path_of("whisper-base"))


@pytest.fixture(scope="session")
def voice() -> Voice:
    """The real voice, which also speaks the user's part."""
    return Voice(path_of("en_US-joe-medium"))


@pytest.fixture(scope="session")
def language_model() -> Path:
    """The real 0.5B."""
    return path_of("qwen2.5-coder-0.5b")


def say(voice: Voice, text: str, before: float = 0.0, after: float = 0.0) -> Samples:
    """Spoken text at 24 kHz between stretches of silence (s); the same sound every time."""
    silence = [np.zeros(int(s * SPEAKING_RATE), np.float32) for s in (before, after)]
    steady = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0, length_scale=1.1)
    (chunk,) = voice._piper.synthesize(text, steady)
    spoken = resample(0.8 * chunk.audio_float_array, chunk.sample_rate, SPEAKING_RATE)
    return np.concatenate((silence[0], spoken, silence[1])).astype(np.float32)


def transcribe(recognizer: Recognizer, samples: Samples, rate: int) -> str:
    """What is said in a recording."""
    return " ".join(segment.text for segment in recognizer.transcribe(resample(samples, rate, HEARING_RATE)))


@pytest.fixture(scope="session")
def server(language_model: Path, recognizer: Recognizer, voice: Voice) -> Iterator[str]:
    """`rejoinder serve` with the default models; yields its http address."""
    command = [sys.executable, "-m", "server.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        began = time.monotonic()
        while time.monotonic() - began < START_SECONDS:
            line = process.stderr.readline()
            lines.append(line)
            if found := re.search(r"Ready: (http://\S+?)/?\s", line):
                break
            if process.poll() is not None:
                pytest.fail("the server ended: " + "".join(lines))
        else:
            process.kill()
            pytest.fail("the server did not start: " + "".join(lines))
        # It says so only once it answers: no retry here.
        assert httpx.get(f"{found[1]}/healthz").json()["status"] == "ok"
        yield found[1]
        process.terminate()
        assert process.wait(timeout=20) in (0, -15)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's path."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        missing("Chromium is not installed (Debian: apt install chromium)")
    return str(path)


@pytest.fixture
def microphone(tmp_path: Path) -> Path:
    """Where a test puts the WAV file that the browser's microphone plays."""
    return tmp_path / "microphone.wav"


def record(path: Path, samples: Samples) -> None:
    """Put samples at 24 kHz into a WAV file."""
    write_wav(path, samples, SPEAKING_RATE)

"""The real models and a real server. Without the models, tests are skipped locally and fail in CI."""

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

from model.hub.store import ModelStore
from model.hub.transfer import ModelUnavailable
from tests.real_time import HANG_S
from voice.asr import Recognizer
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, Samples
from voice.audio.resampling import resample
from voice.audio.wav import write_wav
from voice.piper_voice import PiperSynthesizer
from voice.tts import Voice

START_SECONDS = 240
"""Time to assemble and quantize the models and to warm up, on a slow machine."""


IN_REAL_TIME = "server"
"""Tests with this fixture, a server with real models, have both cores to themselves. Others are marked if they measure
times; those that wait for what a page shows need not be."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            if IN_REAL_TIME in getattr(item, "fixturenames", ()):
                item.add_marker("real_time")
            elif not any(map(item.get_closest_marker, ("real_time", "proof"))):
                item.add_marker("slow")


def skip_or_fail(reason: str) -> None:
    """Skip the test, or fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, which CI requires")
    pytest.skip(reason)


def model_path(name: str) -> Path:
    """Path of a model."""
    try:
        return ModelStore(hub=False).locate(name)
    except ModelUnavailable as error:
        skip_or_fail(str(error))
        raise


@pytest.fixture(scope="session")
def recognizer() -> Recognizer:
    """The real Whisper."""
    return Recognizer(model_path("whisper-base"))


@pytest.fixture(scope="session")
def voice() -> Voice:
    """The real voice, which also speaks for the user."""
    return Voice(model_path("en_US-joe-medium"))


@pytest.fixture(scope="session")
def language_model() -> Path:
    """The real 0.5B model."""
    return model_path("qwen2.5-coder-0.5b")


def synthesize(voice: Voice, text: str, before: float = 0.0, after: float = 0.0) -> Samples:
    """Speech at 24 kHz with silence before and after (s); deterministic."""
    silence = [np.zeros(int(s * OUTPUT_RATE), np.float32) for s in (before, after)]
    deterministic = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0, length_scale=1.1)
    assert isinstance(voice._synthesizer, PiperSynthesizer)
    (chunk,) = voice._synthesizer._piper.synthesize(text, deterministic)
    speech = resample(0.8 * chunk.audio_float_array, chunk.sample_rate, OUTPUT_RATE)
    return np.concatenate((silence[0], speech, silence[1])).astype(np.float32)


def transcribe(recognizer: Recognizer, samples: Samples, rate: int) -> str:
    """The transcript of a recording."""
    return " ".join(segment.text for segment in recognizer.transcribe(resample(samples, rate, RECOGNITION_RATE)))


@pytest.fixture(scope="session")
def server(
    language_model: Path, recognizer: Recognizer, voice: Voice, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """`rejoinder serve` with the default models; yields its http address."""
    data = str(tmp_path_factory.mktemp("data"))
    command = [sys.executable, "-m", "cli", "serve", "--port", "0", "--data", data]
    command += ["--max-conversations", "64"]  # those of browsers that were closed wait a minute for them
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        started = time.monotonic()
        while time.monotonic() - started < START_SECONDS:
            line = process.stderr.readline()
            lines.append(line)
            if match := re.search(r"Ready: (http://\S+?)/?\s", line):
                break
            if process.poll() is not None:
                pytest.fail("the server exited: " + "".join(lines))
        else:
            process.kill()
            pytest.fail("the server did not start: " + "".join(lines))
        # The server prints "Ready" only once it accepts requests, so there is no retry.
        assert httpx.get(f"{match[1]}/healthz", timeout=HANG_S).json()["status"] == "ok"
        yield match[1]
        process.terminate()
        assert process.wait(timeout=HANG_S) in (0, -15)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        skip_or_fail("Chromium is not installed (Debian: apt install chromium; elsewhere set CHROMIUM to its path)")
    return str(path)


@pytest.fixture
def microphone(tmp_path: Path) -> Path:
    """Path of the WAV file that plays as the browser's microphone."""
    return tmp_path / "microphone.wav"


def write_recording(path: Path, samples: Samples) -> None:
    """Write samples at 24 kHz to a WAV file."""
    write_wav(path, samples, OUTPUT_RATE)

"""Takes the picture of the page that the guide shows: a real conversation of two spoken turns.

    python -m lab.benchmarks.page_screenshot docs/images/page.png
    python -m lab.benchmarks.page_screenshot --states FOLDER [STATE ...]

With `--states`, it takes pictures of all states of the pages, or of those named, on a wide screen and on a phone, light
and dark; they are scripted (`page_states.py`), and need no models.

Otherwise it starts `rejoinder serve` with the default models, opens the page in Chromium, and plays two questions,
spoken by the default voice, into the browser's fake microphone. Run it on a quiet machine: the picture shows real
latencies. Both need the `test` extra and Chromium (`CHROMIUM` names another one than that on the path).
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import onnxruntime
from playwright.sync_api import expect, sync_playwright

from lab.benchmarks.page_states import photograph
from model.hub.store import ModelStore
from server.serving.options import DEFAULT_VOICE
from voice.audio.codec import OUTPUT_RATE, Samples
from voice.audio.wav import write_wav
from voice.clauses import Clause
from voice.tts import Voice

QUESTIONS = ("What is the capital of France?", "And what is the capital of Germany?")

RESPONSE_S = 9.0
"""Silence after each question: time for the wait, the response and a second of rest."""

STARTUP_S = 240
"""The first start assembles the models and quantizes the language model."""

TURN_MS = 60_000

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
]


def spoken_questions() -> Samples:
    """The questions with silence before and after each, [T] float32 at 24 kHz."""
    onnxruntime.set_seed(1)  # Piper samples its prosody; the questions should sound the same every time
    voice = Voice(ModelStore().locate(DEFAULT_VOICE))
    chunks = [np.zeros(int(2.0 * OUTPUT_RATE), np.float32)]
    for question in QUESTIONS:
        chunks += [voice.synthesize(Clause(question, True)), np.zeros(int(RESPONSE_S * OUTPUT_RATE), np.float32)]
    chunks.append(np.zeros(int(60 * OUTPUT_RATE), np.float32))
    return np.concatenate(chunks)


@contextmanager
def running_server() -> Iterator[str]:
    """`rejoinder serve` on a free port; yields its address once it responds.

    Raises:
        RuntimeError: the server exits, or takes too long to start.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}/"
    with subprocess.Popen([sys.executable, "-m", "cli", "serve", "--port", str(port)]) as process:
        try:
            deadline = time.monotonic() + STARTUP_S
            while not _responds(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the server did not start: its output above says why")
                time.sleep(0.5)
            yield address
        finally:
            process.terminate()


def _responds(address: str) -> bool:
    try:
        return httpx.get(f"{address}healthz").is_success
    except httpx.TransportError:
        return False


def take_screenshot(address: str, microphone: Path, picture: Path) -> None:
    """Hold the conversation on the page and write the picture once both timelines are shown."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    flags = [*FLAGS, f"--use-file-for-fake-audio-capture={microphone}%noloop"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(
            viewport={"width": 860, "height": 600},
            device_scale_factor=2,
            color_scheme="light",
            base_url=address,
            bypass_csp=True,  # Playwright waits with an eval
        )
        page.goto(address)
        page.wait_for_function("window.rejoinder")
        page.click("#start")
        expect(page.locator("#talk .assistant .latency")).to_have_count(len(QUESTIONS), timeout=TURN_MS)
        expect(page.locator("#phase")).to_have_text("Listening", timeout=TURN_MS)
        page.screenshot(path=picture)
        browser.close()


def main() -> None:
    """Write the picture to the path given, or those of the states into the folder."""
    if sys.argv[1:2] == ["--states"] and len(sys.argv) > 2:
        asyncio.run(photograph(Path(sys.argv[2]), sys.argv[3:]))
        return
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m lab.benchmarks.page_screenshot PICTURE.png | --states FOLDER [STATE ...]")
    with tempfile.TemporaryDirectory() as folder:
        microphone = Path(folder) / "microphone.wav"
        write_wav(microphone, spoken_questions(), OUTPUT_RATE)
        with running_server() as address:
            take_screenshot(address, microphone, Path(sys.argv[1]))


if __name__ == "__main__":
    main()

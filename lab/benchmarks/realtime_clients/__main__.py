"""The command: builds the environments, starts the server, runs the clients, and checks what they report.

The environments stay in the work folder, so that a second run starts at once. The clients themselves are unmodified.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
from piper import PiperVoice, SynthesisConfig

import server.openmp  # noqa: F401 - before torch
from lab.benchmarks.client_environments import Client
from lab.benchmarks.realtime_clients.recordings import RATE, SENTENCES
from lab.report.own_server import own_server
from model.hub.store import ModelStore
from server.serving.options import DEFAULT_VOICE
from voice.audio.resampling import resample
from voice.audio.wav import write_wav

_SCRIPTS = Path(__file__).parent

_TIMEOUT_S = 240.0
"""A conversation takes about 40 s."""


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


async def converse(argv: Sequence[str], url: str, recordings: Path, work: Path) -> dict[str, Any]:
    """Run a client; returns what it reports.

    Raises:
        RuntimeError: it failed.
    """
    process = await asyncio.create_subprocess_exec(
        *argv, url, str(recordings), str(work),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
    lines = out.decode().strip().splitlines()
    if process.returncode != 0 or not lines:
        raise RuntimeError(err.decode().strip()[-2000:] or f"exit status {process.returncode}")
    report: dict[str, Any] = json.loads(lines[-1])
    return report


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


async def run(names: Sequence[str], work: Path, url: str | None, server_options: Sequence[str]) -> int:
    """Run the clients one after the other; returns how many failed."""
    commands = {name: CLIENTS[name].command(work / name) for name in names}
    failed = 0
    async with AsyncExitStack() as stack:
        recordings = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        record_sentences(recordings)
        if url is None:
            address = await stack.enter_async_context(own_server(server_options))
            url = address.replace("ws://", "http://").removesuffix("/v1/realtime")
        for name, argv in commands.items():
            try:
                report = await converse(argv, url, recordings, work / name)
                wrong = faults(report)
            except RuntimeError as error:
                report, wrong = {}, [str(error)]
            failed += bool(wrong)
            print(f"{name}: {'FAILED' if wrong else 'passed'} {json.dumps(report)}", flush=True)
            for fault in wrong:
                print(f"  {fault}")
    return failed


def main() -> None:
    """Parse the arguments and run the clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "rejoinder-realtime-clients")
    parser.add_argument("--url", help="a server that runs already, such as http://127.0.0.1:8000")
    parser.add_argument("server_options", nargs="*", help="options of `rejoinder serve`, after --")
    options = parser.parse_args()
    sys.exit(asyncio.run(run(options.clients, options.work, options.url, options.server_options)))


if __name__ == "__main__":
    main()

"""What a conversation costs the CPU when its language model runs elsewhere, as on a GPU: processor seconds for each
minute of conversation, by what they are spent on.

    python -m lab.benchmarks.speech_cost [--conversations 1 2 4] [--seconds 45]

The real speech models and the real server, in a process of its own, and a language model that costs nothing and
responds at once. Each conversation speaks a question of the report's corpus in real time, listens to the whole
response, and goes on after a second. Linux only: the times come from /proc.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  isort: skip - before torch

import argparse
import asyncio
import base64
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import numpy as np
import uvicorn
from rich.console import Console
from websockets.asyncio.client import ClientConnection, connect

from chat.types import Ask
from lab.report.corpus import SpokenTurn, built_in
from lab.report.corpus_voices import default_voices
from lab.simulator.microphone import Microphone
from model.hub.store import ModelStore, cache_folder
from server.access.admission import Admission
from server.app import build_app
from server.context import ServerContext
from server.serving.options import ModelOptions
from server.serving.runtime import locate_model
from server.serving.speech import load_speech_models
from server.telephony.routes import TelephonySettings
from tests.fakes import FakeLanguageModel, FakeProgress
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, Samples, to_pcm16
from voice.audio.resampling import resample
from voice.audio.vad import SpeechDetector
from voice.clauses import Clause
from voice.speech_models import SpeechModels
from voice.tts import Voice

_PAUSE_S = 1.0
_RESPONSES = (
    "The river rises in the mountains in the north, and it reaches the sea after about three hundred kilometers. "
    "On its way it runs through four towns.",
    "You could take the train at half past nine, which arrives shortly before noon. Shall I look for a later one?",
    "That is a good question. Bread needs time rather than work: mix the dough in the evening, leave it in a cool "
    "place, and bake it in the morning.",
)
"""About eight to ten seconds each, as spoken responses are."""

_TOKENS_AT_A_TIME = 2
"""Words that the language model commits at a time."""


class FreeLanguageModel(FakeLanguageModel):
    """A language model that costs nothing: it has its responses ready."""

    _draw = random.Random(0)

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:  # type: ignore[override]
        """One of the responses, some words at a time."""
        words = self._draw.choice(_RESPONSES).split(" ")
        for start in range(0, len(words), _TOKENS_AT_A_TIME):
            await asyncio.sleep(0.002)
            text = " ".join(words[start : start + _TOKENS_AT_A_TIME])
            finished = "stop" if start + _TOKENS_AT_A_TIME >= len(words) else None
            step = start // _TOKENS_AT_A_TIME + 1
            yield FakeProgress(text if start == 0 else f" {text}", step=step, finished=finished)


def thread_seconds() -> dict[int, float]:
    """Processor seconds of each thread of this process, by thread id."""
    times = {}
    for folder in Path("/proc/self/task").iterdir():
        try:
            times[int(folder.name)] = int((folder / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it has just ended
            continue
    return times


def busiest_threads(work: Callable[[], object]) -> set[int]:
    """The threads other than this one that `work` keeps busy."""
    before = thread_seconds()
    began = time.monotonic()
    while time.monotonic() - began < 1.0:
        work()
    used = {thread: seconds - before.get(thread, 0.0) for thread, seconds in thread_seconds().items()}
    own = threading.get_native_id()
    return {thread for thread, seconds in used.items() if thread != own and seconds > 0.1 * max(used.values())}


class _Meter:
    """Processor seconds of the server by what they are spent on. Its threads are told apart by what keeps them busy:
    each stage runs alone before the server starts."""

    def __init__(self, models: SpeechModels) -> None:
        draw = np.random.default_rng(0)
        noise = (draw.standard_normal(3 * RECOGNITION_RATE) * 0.01).astype(np.float32)
        clause = Clause("You could take the train at half past nine.", True)

        def synthesize() -> Samples:
            return models.synthesis_executor.submit(models.voices.default.synthesize, clause).result()

        self._groups = {
            "recognition": busiest_threads(lambda: models.recognizer.transcribe(noise)),
            "synthesis": busiest_threads(synthesize),
        }
        self._silero = models.silero

    def read(self) -> dict[str, float]:
        """Seconds so far."""
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        used: dict[str, float] = defaultdict(float)
        for thread, seconds in thread_seconds().items():
            name = names.get(thread, "")
            group = next((group for group, threads in self._groups.items() if thread in threads), "")
            if not group:
                prefixes = {"rejoinder-recognition": "recognition", "rejoinder-synthesis": "synthesis"}
                prefixes |= {"rejoinder-turn-detection": "turn detection", "MainThread": "server and voice detection"}
                group = next((group for prefix, group in prefixes.items() if name.startswith(prefix)), "other threads")
            used[group] += seconds
        return dict(used)

    def detection_seconds(self, audio: Samples) -> float:
        """Processor seconds of voice detection over audio at 16 kHz, which the server's main thread runs."""
        detector, began = SpeechDetector(self._silero), time.thread_time()
        for start in range(0, len(audio), RECOGNITION_RATE // 50):
            detector.push(audio[start : start + RECOGNITION_RATE // 50])
        return time.thread_time() - began


def serve() -> None:
    """The server. For each line that it reads it prints what it has used so far; after the last one it ends."""
    models = load_speech_models(ModelOptions(), Console(stderr=True))
    meter = _Meter(models)
    context = ServerContext(FreeLanguageModel, models, "none", Admission(64))
    config = uvicorn.Config(
        build_app(context, TelephonySettings(), None), port=0, ws="websockets-sansio", log_level="warning"
    )
    uvicorn_server = uvicorn.Server(config)

    def answer() -> None:
        while not uvicorn_server.started:
            time.sleep(0.05)
        print(uvicorn_server.servers[0].sockets[0].getsockname()[1], flush=True)
        for line in sys.stdin:
            if line.strip() == "detection":
                rate, seconds = RECOGNITION_RATE, 20
                audio = resample(_corpus()[0].audio, OUTPUT_RATE, rate)
                audio = np.resize(np.concatenate((audio, np.zeros(len(audio), np.float32))), rate * seconds)
                print(json.dumps(meter.detection_seconds(audio) * 60 / seconds), flush=True)
            else:
                print(json.dumps(meter.read()), flush=True)
        uvicorn_server.should_exit = True

    threading.Thread(target=answer, name="meter", daemon=True).start()
    uvicorn_server.run()


def _corpus() -> list[SpokenTurn]:
    """The questions of the report's corpus that expect an answer, in the voices that are installed."""
    console, voices = Console(stderr=True), default_voices(ModelStore())
    turns = built_in(
        lambda name: Voice(locate_model(name, console, kind="voice")), cache_folder() / "report", voices
    )  # fmt: skip
    return [turn for turn in turns if turn.expected == "answer" and turn.overlap is None and turn.background is None]


class _Caller:
    """A conversation: it speaks, listens to the end, and goes on.

    Attributes:
        spoken_s, heard_s: audio so far, of the user and of the responses.
        seconds: how long it has lasted.
        turns: questions that were answered.
    """

    def __init__(self, turns: Sequence[SpokenTurn], seed: int) -> None:
        self._turns, self._draw = turns, random.Random(seed)
        self.spoken_s = self.heard_s = self.seconds = 0.0
        self.turns = 0
        self._done = asyncio.Event()

    async def run(self, url: str, until: float) -> None:
        """Talk until a moment on `time.monotonic`."""
        began = time.monotonic()
        async with connect(url, max_size=None, compression=None) as socket:
            microphone = Microphone(lambda block: self._send(socket, block))
            tasks = [asyncio.create_task(microphone.run()), asyncio.create_task(self._listen(socket))]
            await asyncio.sleep(self._draw.uniform(0, 3))
            while time.monotonic() < until:
                turn, heard = self._draw.choice(self._turns), self.heard_s
                self._done.clear()
                await microphone.play(turn.audio)
                await asyncio.sleep(len(turn.audio) / OUTPUT_RATE)
                self.spoken_s += len(turn.audio) / OUTPUT_RATE
                try:
                    await asyncio.wait_for(self._done.wait(), 15)
                    self.turns += 1
                except TimeoutError:
                    continue
                await asyncio.sleep(self.heard_s - heard + _PAUSE_S)
            for task in tasks:
                task.cancel()
        self.seconds = time.monotonic() - began

    async def _send(self, socket: ClientConnection, block: Samples) -> None:
        audio = base64.b64encode(to_pcm16(block)).decode("ascii")
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))

    async def _listen(self, socket: ClientConnection) -> None:
        async for frame in socket:
            event = json.loads(frame)
            if event["type"] == "response.output_audio.delta":
                self.heard_s += len(base64.b64decode(event["delta"])) / 2 / OUTPUT_RATE
            elif event["type"] == "response.done" and event["response"]["status"] == "completed":
                self._done.set()


class _Child:
    """The server in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "lab.benchmarks.speech_cost", "--serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = f"ws://127.0.0.1:{int(self._read())}/v1/realtime"

    def ask(self, question: str) -> object:
        """What it prints for a line."""
        assert self._process.stdin is not None
        print(question, file=self._process.stdin, flush=True)
        return json.loads(self._read())

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the server ended: its messages are above")
        return line


async def measure(child: _Child, turns: Sequence[SpokenTurn], conversations: int, seconds: float) -> None:
    """Run some conversations and print a row: processor seconds for each minute of a conversation."""
    before, began = child.ask("times"), time.monotonic()
    callers = [_Caller(turns, seed) for seed in range(conversations)]
    await asyncio.gather(*(caller.run(child.url, began + seconds) for caller in callers))
    minutes = sum(caller.seconds for caller in callers) / 60
    after = child.ask("times")
    assert isinstance(before, dict) and isinstance(after, dict)
    used = {group: (after[group] - before.get(group, 0.0)) / minutes for group in after}
    spoken, heard = (sum(getattr(caller, name) for caller in callers) for name in ("spoken_s", "heard_s"))
    answered = sum(caller.turns for caller in callers)
    stages = ("recognition", "synthesis", "turn detection", "server and voice detection", "other threads")
    cells = [f"{used.get(stage, 0.0):.2f}" for stage in stages]
    print(
        f"| {conversations} | {answered} | {spoken / minutes:.0f} s | {heard / minutes:.0f} s | {' | '.join(cells)} | "
        f"**{sum(used.values()):.1f}** |",
        flush=True,
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.speech_cost", description="CPU of a conversation.")
    parser.add_argument("--conversations", type=int, nargs="+", default=[1, 2, 4], help="how many at a time, in turn")
    parser.add_argument("--seconds", type=float, default=45, help="of each measurement")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    turns, child = _corpus(), _Child()
    try:
        print(f"{os.cpu_count()} cores; processor seconds for each minute of a conversation")
        print("| conversations | turns | user speaks | assistant speaks | recognition | synthesis | turn detection |"
              " server and voice detection | other threads | all |")  # fmt: skip
        print("|---|---|---|---|---|---|---|---|---|---|")
        for conversations in arguments.conversations:
            asyncio.run(measure(child, turns, conversations, arguments.seconds))
        print(f"voice detection alone: {child.ask('detection'):.2f} s for each minute of audio")
    finally:
        child.close()


if __name__ == "__main__":
    main()

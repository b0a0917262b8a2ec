"""Faults, one after the other, in a server with fake models: next to a witness whose every turn must be answered, and
with a stopwatch that runs until a client that met the fault is answered again.

    python -m lab.benchmarks.faults
    python -m lab.benchmarks.faults --restart qwen2.5-coder-0.5b   # also `kill -9`, and the real server starting again
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import socket
import sqlite3
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from chat.types import Ask
from server.access.admission import MAX_WAITING, Admission
from server.budgets import Budget
from server.observability import turn_log
from server.observability.observers import TurnObservers
from server.observability.turn_log import TurnLog, read_turn_log
from tests.fakes import FakeLanguageModel, FakeProgress, FakeRecognizer, FakeVoice, LoudnessDetector, fake_speech_models
from tests.real_time import wait_until
from tests.server.live_server import connected, receive, serving, speak_one_turn
from voice import session
from voice.audio.codec import OUTPUT_RATE, Samples
from voice.chunks import Chunk
from voice.clauses import Clause
from voice.lexicon import NO_LEXICON, Lexicon
from voice.speech_times import Speech

MAX_RECOVERY_S = 5.0

_SLOTS = 12

_VICTIM = "victim"
"""In the instructions of clients that meet the faults of a stage; their models then say it as well."""

_VICTIM_LOUDNESS = 0.9
"""They speak louder than the witness, so that the recognizer can tell them apart."""


@dataclass
class Poison:
    """Makes one stage fail for the victim.

    Attributes:
        stage: the one that fails; empty for none.
    """

    stage: str = ""
    error: type[Exception] = RuntimeError

    def take(self, stage: str, is_victim: bool) -> None:
        """Raise the error if it is this stage's turn to fail."""
        if is_victim and stage == self.stage:
            raise self.error("it broke")


class _Recognizer(FakeRecognizer):
    def __init__(self, poison: Poison) -> None:
        super().__init__()
        self._poison = poison

    def transcribe(self, audio: Samples, *arguments: Any, **options: Any) -> Any:
        self._poison.take("recognition", len(audio) > 0 and float(np.abs(audio).max()) > 0.7)
        return super().transcribe(audio, *arguments, **options)


class _Voice(FakeVoice):
    def __init__(self, poison: Poison) -> None:
        super().__init__()
        self._poison = poison

    def synthesize(self, clause: Clause, speed: float = 1.0, learned: Lexicon = NO_LEXICON) -> Samples:
        self._poison.take("synthesis", _VICTIM in clause.text)
        return super().synthesize(clause, speed, learned)


@dataclass
class _LanguageModel(FakeLanguageModel):
    poison: Poison = field(default_factory=Poison)

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        is_victim = _VICTIM in ask.messages[0].content
        self.poison.take("language model", is_victim)
        async for progress in super().reply(ask):
            yield progress if progress.step > 1 or not is_victim else replace(progress, committed=f"{_VICTIM} words")

    async def turn_completion(self, text: str) -> float | None:
        self.poison.take("turn completion", True)
        return None


@dataclass
class Site:
    """The server under test.

    Attributes:
        log: its turn log.
    """

    address: str
    admission: Admission
    poison: Poison
    log: Path

    @contextlib.asynccontextmanager
    async def client(self, token: str = "") -> AsyncIterator[ClientConnection]:
        """A client that has configured its session, or come back to it."""
        protocols = [Subprotocol("realtime"), Subprotocol(f"rejoinder-resume.{token}")] if token else None
        async with connected(self.address, subprotocols=protocols) as client:
            await receive(client, "session.created")
            if not token:
                update = {"type": "realtime", "instructions": _VICTIM, "include": ["rejoinder.resume"]}
                await client.send(json.dumps({"type": "session.update", "session": update}))
            yield client

    async def recover(self) -> None:
        """A new client is admitted, asks and is answered."""
        async with self.client() as client:
            await answered(client)


async def answered(client: ClientConnection) -> None:
    """One turn. Raises AssertionError if the response is not complete."""
    done = await speak_one_turn(client, _VICTIM_LOUDNESS)
    assert done["response"]["status"] == "completed", done["response"]


Fault = Callable[[Site], Awaitable[float]]
"""Injects a fault. Returns when it was over, on `time.monotonic`; from then on the server has to recover. It returns
once a client that met the fault was answered again."""


async def cut(site: Site) -> float:
    """A connection is reset in the middle of a response; the client comes back to its conversation."""
    async with site.client() as client:
        token = (await receive(client, "rejoinder.resume"))["token"]
        await client.send(json.dumps({"type": "response.create"}))
        await receive(client, "response.output_audio.delta")
        reset = struct.pack("ii", 1, 0)
        client.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        client.transport.abort()
        began = time.monotonic()
    async with site.client(token) as client:
        await answered(client)
    return began


async def half_open(site: Site) -> float:
    """A network fails without a word: the server takes the old connection for open when the client comes back. Next to
    it a request of which half arrives."""
    _, writer = await asyncio.open_connection(*site.address.split(":"))
    writer.write(b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: webso")
    async with site.client() as old:
        token = (await receive(old, "rejoinder.resume"))["token"]
        began = time.monotonic()
        async with site.client(token) as new:
            await answered(new)
    writer.transport.abort()
    return began


async def garbage(site: Site) -> float:
    """Bytes that are no frames."""
    dice = random.Random(1)
    with contextlib.suppress(ConnectionClosed, OSError, RuntimeError):
        async with connected(site.address) as client:
            for _ in range(20):
                client.transport.write(dice.randbytes(200))
                await asyncio.sleep(0)
    began = time.monotonic()
    await site.recover()
    return began


def malformed_from(clients: int) -> Fault:
    """A thousand frames that are no events, from each of so many clients; one of them then asks."""

    async def send(client: ClientConnection, seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(1000):
            await client.send("".join(dice.choices('{}[]":,typesonull0123\\u', k=dice.randint(0, 60))))

    async def fault(site: Site) -> float:
        async with contextlib.AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(site.client()) for _ in range(clients)]
            draining = [asyncio.create_task(_drain(client)) for client in opened[1:]]
            await asyncio.gather(*(send(client, seed) for seed, client in enumerate(opened)))
            began = time.monotonic()
            await answered(opened[0])
            for task in draining:
                task.cancel()
        return began

    return fault


malformed = malformed_from(1)


async def flood(site: Site) -> float:
    """Three thousand events at once, from a client that stays connected."""
    async with connected(site.address) as client:
        reading = asyncio.create_task(_drain(client))
        for _ in range(3000):
            await client.send('{"type": "input_audio_buffer.clear"}')
        began = time.monotonic()
        await site.recover()
        reading.cancel()
        client.transport.abort()  # closing it in order would wait until the server has read them all
    return began


async def slow_reader(site: Site) -> float:
    """A client that asks for events and reads none, until it is disconnected."""
    with patch("server.realtime.resumable_session.OUTBOX", Budget(6 << 20, 60.0)):
        async with connected(site.address, max_queue=1) as client:
            slots = len(site.admission.slots)
            with contextlib.suppress(ConnectionClosed, OSError):
                update = {"type": "session.update", "session": {"type": "realtime", "instructions": "x" * 100_000}}
                while len(site.admission.slots) >= slots:
                    await asyncio.wait_for(client.send(json.dumps(update)), 1)
            began = time.monotonic()
            await site.recover()
            client.transport.abort()
    return began


async def crowd(site: Site) -> float:
    """More clients than there are slots and places in the queue; those who were refused come again when the others have
    left."""

    async def knock() -> str:
        async with connected(site.address) as client:
            event = json.loads(await client.recv())
            await asyncio.sleep(0.2)
            return str(event["type"])

    seen = await asyncio.gather(*(knock() for _ in range(30)))
    assert seen.count("error") == 30 - (_SLOTS - 1) - MAX_WAITING, seen
    began = time.monotonic()
    await wait_until(lambda: len(site.admission.slots) < _SLOTS)
    await site.recover()
    return began


async def clock_jumps(site: Site) -> float:
    """The clock of the machine is set a day ahead in the middle of a conversation, and back."""
    wall_clock = time.time
    async with site.client() as client:
        for jump_s in (86_400.0, -86_400.0):
            with patch("time.time", lambda jump_s=jump_s: wall_clock() + jump_s):
                began = time.monotonic()
                await answered(client)
    return began


async def disk_full(site: Site) -> float:
    """The turn log cannot be written during a turn; afterwards it can."""

    def full(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    async with site.client() as client:
        with patch.object(turn_log, "_open", full):
            await answered(client)
            await asyncio.sleep(0.1)
        logged, began = len(read_turn_log(site.log)), time.monotonic()
        await answered(client)
        await wait_until(lambda: len(read_turn_log(site.log)) > logged)
    return began


def failing(stage: str, error: type[Exception]) -> Fault:
    """A stage raises an error during one turn, which fails with an apology; the next one works."""

    async def fault(site: Site) -> float:
        async with site.client() as client:
            site.poison.stage, site.poison.error = stage, error
            done = await speak_one_turn(client, _VICTIM_LOUDNESS)
            site.poison.stage, began = "", time.monotonic()
            expected = "completed" if stage == "turn completion" else "failed"
            assert done["response"]["status"] == expected, done["response"]
            await answered(client)
        return began

    return fault


FAULTS: dict[str, Fault] = {
    "a connection is reset": cut,
    "a connection is half open": half_open,
    "bytes that are no frames": garbage,
    "a thousand malformed events": malformed,
    "a flood of events": flood,
    "a client that does not read": slow_reader,
    "thirty clients for twelve slots": crowd,
    "the clock jumps by a day": clock_jumps,
    "the disk is full": disk_full,
    **{
        f"{stage} {problem}": failing(stage, error)
        for stage in ("recognition", "language model", "synthesis", "turn completion")
        for problem, error in (("fails", RuntimeError), ("runs out of memory", MemoryError))
    },
}


@dataclass
class Witness:
    """A conversation that asks one question after the other.

    Attributes:
        slowest_s: its longest turn since this was last reset.
        turns: how many were answered.
    """

    slowest_s: float = 0.0
    turns: int = 0

    async def ask(self, client: ClientConnection) -> None:
        """Ask until cancelled. Raises AssertionError if a turn is not answered."""
        while True:
            began = time.monotonic()
            done = await speak_one_turn(client)
            assert done["response"]["status"] == "completed", done["response"]
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.turns += 1


@dataclass(frozen=True)
class Recovery:
    """What a fault did.

    Attributes:
        seconds: until a client that met it was answered again.
        witness_turns, witness_slowest_s: turns of the witness meanwhile, and the longest.
    """

    fault: str
    seconds: float
    witness_turns: int
    witness_slowest_s: float


@contextlib.contextmanager
def site() -> Any:
    """A server with fake models and a turn log."""
    poison = Poison()
    models = fake_speech_models(_Recognizer(poison), _Voice(poison))
    apology = Chunk("Sorry.", Speech(np.full(OUTPUT_RATE // 10, 0.25, np.float32)))
    with tempfile.TemporaryDirectory() as folder, patch.object(session, "SpeechDetector", LoudnessDetector):
        admission, path = Admission(_SLOTS), Path(folder) / "turns.sqlite"
        log = TurnLog(path)
        try:
            with serving(
                new_language_model=lambda: _LanguageModel(poison=poison),
                speech_models=replace(models, apology=apology),
                admission=admission,
                observers=TurnObservers([log.record]),
            ) as address:
                yield Site(address, admission, poison, path)
        finally:
            log.close()


async def inject(faults: Mapping[str, Fault] = MappingProxyType(FAULTS)) -> list[Recovery]:
    """Inject faults. Raises AssertionError if the witness or a client is not answered, or a slot is not given back."""
    recoveries = []
    with site() as place:
        async with connected(place.address) as client:
            await receive(client, "session.created")
            witness = Witness()
            asking = asyncio.create_task(witness.ask(client))
            for name, fault in faults.items():
                witness.slowest_s, turns = 0.0, witness.turns
                began = await fault(place)
                seconds = time.monotonic() - began
                await wait_until(lambda: len(place.admission.slots) == 1 or asking.done())
                if asking.done():
                    asking.result()
                recoveries.append(Recovery(name, seconds, witness.turns - turns, witness.slowest_s))
            turns = witness.turns
            await wait_until(lambda: witness.turns > turns or asking.done())
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
    return recoveries


async def _drain(client: ClientConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            await client.recv()


async def restart(model: str) -> None:
    """`kill -9`, and what a supervisor does then: print how long it takes until the first answer."""
    port = 0
    for attempt in ("started", "killed and started again"):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as data:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "cli", "serve", "--port", str(port), "--model", model, "--data", data,
                "--max-conversations", "2", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                assert process.stderr is not None
                while (match := re.search(rb"Ready: http://127.0.0.1:(\d+)", await process.stderr.readline())) is None:
                    assert process.returncode is None
                port, ready_s = int(match[1]), time.monotonic() - began
                async with connected(f"127.0.0.1:{port}") as client:
                    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
                    await client.send(json.dumps({"type": "conversation.item.create", "item": item}))
                    await client.send(json.dumps({"type": "response.create"}))
                    await receive(client, "response.output_audio.delta")
                    print(f"{model} {attempt}: ready after {ready_s:.1f} s, audible {time.monotonic() - began:.1f} s")
            finally:
                process.kill()
                await process.wait()


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restart", metavar="MODEL", help="also time a real server that is killed and started again")
    arguments = parser.parse_args()
    recoveries = asyncio.run(inject(FAULTS | {"ten thousand malformed events": malformed_from(10)}))
    print("| fault | answered again after | turns of the witness, the longest |\n|---|---|---|")
    for one in recoveries:
        print(f"| {one.fault} | {one.seconds:.2f} s | {one.witness_turns}, {one.witness_slowest_s:.2f} s |")
    if arguments.restart:
        asyncio.run(restart(arguments.restart))
    return int(any(one.seconds > MAX_RECOVERY_S for one in recoveries))


if __name__ == "__main__":
    sys.exit(main())

"""A replica whose models are fakes that take the time of real ones, in a cluster or as a server of its own.

python -m lab.benchmarks.cluster.replica --port 8100
"""

from __future__ import annotations

import server.openmp  # noqa: F401  isort: skip - before torch

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn

from chat.types import Ask
from server.access.admission import Admission
from server.app import build_app
from server.context import ServerContext
from server.serving.service import Service
from server.shared_store import SharedRecords, SQLiteStore
from tests.fakes import FakeLanguageModel, FakeProgress, LoudnessDetector, fake_speech_models
from voice import session

FIRST_S, REST_S = 0.298, 0.255
"""Of a turn on two cores of an EPYC with the 0.5B, measured: until the first audio, and from there to the end."""


class TimedLanguageModel(FakeLanguageModel):
    """Responds to one conversation of its process at a time, like the engine's thread, and says which process it is."""

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        """Two sentences."""
        async with _engine():
            await asyncio.sleep(FIRST_S)
            yield FakeProgress(f"Process {os.getpid()} has read {len(ask.messages)} ask.messages.")
            await asyncio.sleep(REST_S)
            yield FakeProgress(" This is the rest of its response.", finished="stop")


_engines: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}


def _engine() -> asyncio.Lock:
    return _engines.setdefault(asyncio.get_running_loop(), asyncio.Lock())


def load_timed_replica(capacity: int, records: str = "") -> Service:
    """A replica that admits so many conversations.

    Args:
        records: file of the shared records; empty for none.
    """
    session.SpeechDetector = LoudnessDetector  # type: ignore[misc, assignment]
    shared = SharedRecords(SQLiteStore(Path(records)) if records else None)
    models, admission = fake_speech_models(), Admission(capacity)
    context = ServerContext(TimedLanguageModel, models, "timed", admission, records=shared)
    return Service(context, build_app(context))


def main() -> None:
    """Serve without a cluster, on the loopback interface."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.cluster.replica")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    app = load_timed_replica(1000).app
    uvicorn.run(app, port=arguments.port, log_level="error", ws="websockets-sansio", ws_per_message_deflate=False)


if __name__ == "__main__":
    main()

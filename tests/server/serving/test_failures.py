"""Failures that end the process, and that what hangs is noticed."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from server.observability.stages import StageExecutor
from server.serving import failures as failures_module
from server.serving.failures import Failures, Heartbeat, watch, with_accounts
from tests.fakes import fake_speech_models
from tests.real_time import HANG_S
from voice.clauses import Clause


def test_the_first_failure_stops_the_server_and_a_process_that_hangs_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures_module, "_MAX_STOP_S", 0.01)
    ended, stopped, statuses = threading.Event(), list[str](), list[int]()

    def end(status: int) -> None:
        statuses.append(status)
        ended.set()

    failures = Failures(end)
    failures.report("the device of synthesis failed")
    assert not ended.wait(0.05)  # it ends by itself
    failures.report_hang("synthesis has hung")
    failures.on_failure(lambda: stopped.append("stopped"))  # it was not running yet
    assert failures.reason == "the device of synthesis failed"
    assert stopped == ["stopped"]
    assert ended.wait(HANG_S)
    assert statuses == [1]


def test_every_stage_is_watched() -> None:
    models, stages = with_accounts(fake_speech_models(), lambda reason: None)
    models.synthesis_executor.submit(models.voices.default.synthesize, Clause("Hello.", True)).result()
    models.recognition_executor.submit(int)
    models.turn_detection_executor.submit(int)
    assert {stage.name: stage.jobs for stage in stages} == {"recognition": 1, "synthesis": 1, "turn detection": 1}


def test_a_stage_that_hangs_is_reported_once() -> None:
    release, reported = threading.Event(), threading.Event()
    reasons: list[str] = []
    with ThreadPoolExecutor(1) as inner:
        stage = StageExecutor("synthesis", inner)

        def on_hang(reason: str) -> None:
            reasons.append(reason)
            reported.set()

        stop = watch([stage], 0.1, on_hang)
        try:
            stage.submit(release.wait)
            assert reported.wait(HANG_S)
        finally:
            release.set()
            stop()
    assert len(reasons) == 1
    assert "synthesis has hung for 0.1 s" in reasons[0]


def test_a_heartbeat_is_long_only_while_nobody_answers() -> None:
    asked: list[Callable[[], None]] = []
    heart = Heartbeat("the language model", asked.append)
    assert heart.longest_s == 0
    assert heart.longest_s > 0
    assert len(asked) == 1
    asked[0]()
    assert heart.longest_s == 0  # and asks again
    assert len(asked) == 2


def test_a_closed_thread_is_not_asked() -> None:
    def closed(answer: Callable[[], None]) -> None:
        raise RuntimeError("the engine was closed")

    heart = Heartbeat("the language model", closed)
    assert [heart.longest_s for _ in range(3)] == [0.0] * 3


PROGRAM = """
import server.openmp, asyncio, io, sys, threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from rich.console import Console
from server import app
from server.serving import failures, run, service
from server.serving.settings import ServeSettings
from tests.fakes import FakeLanguageModel, FakeVoice, fake_speech_models

class HangingVoice(FakeVoice):
    def synthesize(self, clause, speed=1.0, learned=None):
        threading.Event().wait()

class Engine:
    failure, context = Future(), 512
    model = type("Model", (), {"grammars": type("Grammars", (), {"preload": staticmethod(lambda: None)})})
    def submit(self, steps, on_error, on_done, **options):
        on_done()
    def close(self):
        pass

models = replace(fake_speech_models(voice=HangingVoice()), synthesis_executor=ThreadPoolExecutor(1))
failures._MAX_STOP_S = 1.0
service.resolve_model = lambda options: options
service.load_engine = lambda *_: Engine()
service.load_speech_models = lambda *_: models
service.Conversation = lambda engine: FakeLanguageModel()
app.read_ahead = lambda engine, tools: asyncio.sleep(0)
settings = ServeSettings(port=0, model="tiny", max_conversations="4", hang_seconds=0.5)
run.run(settings, Console(file=sys.stdout, width=200))
"""


async def test_a_process_whose_voice_hangs_ends_with_status_1_although_its_thread_never_does() -> None:
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", PROGRAM, cwd=root,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(HANG_S):
            match = None
            while match is None:
                line = await process.stdout.readline()
                assert line, (await process.stderr.read()).decode()
                match = re.search(rb"Ready: http://([\d.:]+)/", line)
            async with connect(f"ws://{match[1].decode()}/v1/realtime") as client:
                await client.send(json.dumps({"type": "response.create"}))
                assert await process.wait() == 1
            log = (await process.stderr.read()).decode()
        assert "synthesis has hung for 0.5 s" in log
        assert "synthesize" in log  # what its thread was doing
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

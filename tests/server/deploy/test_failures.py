"""Failures that end the process."""

from __future__ import annotations

import threading

import pytest

from server.deploy import failures as failures_module
from server.deploy.failures import Failures, with_accounts
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

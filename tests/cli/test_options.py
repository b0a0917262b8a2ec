"""The shared model options, and the help."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.main import app
from lab.report import new_run
from lab.report.own_server import as_arguments
from model.hub.transfer import ModelUnavailable
from server.serving.options import ModelOptions


def help_of(path: str) -> str:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*path.split(), "--help"]).output


@pytest.mark.parametrize("path", ["serve", "ask", "talk", "bench model", "report"])
def test_every_command_that_loads_models_has_the_model_options(path: str) -> None:
    for option in ("--model", "--adapter", "--decoding", "--effort", "--max-steps", "--rule", "--blocks-in-flight"):
        assert option in help_of(path)


def test_several_voices_can_be_given_and_are_passed_on_to_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--voice", "kokoro:bf_emma", "--voice", "en_US-joe-medium", "--effort", "low"]
    received: list[ModelOptions] = []

    def resolve(options: ModelOptions) -> ModelOptions:
        received.append(options)
        raise ModelUnavailable("there is none")

    monkeypatch.setattr(new_run, "resolve_model", resolve)
    assert "there is none" in CliRunner().invoke(app, ["report", *arguments]).output
    assert list(received[0].voice) == ["kokoro:bf_emma", "en_US-joe-medium"]
    assert sorted(as_arguments(received[0])) == sorted(arguments)


def test_the_help_of_serve_is_in_topics_and_tells_variables_defaults_and_limits() -> None:
    words = " ".join(help_of("serve").split())
    for topic in ("Network", "Access", "Limits", "Phone calls", "Several replicas", "Models"):
        assert f"─ {topic} ─" in words
    for text in ("[env var: REJOINDER_DATA]", "[default: 8000]", "[0<=x<=65535]", "org/repo[@revision]"):
        assert text in words

"""The shared model options, and the help."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.main import app, load_command
from lab.report import new_run
from lab.report.own_server import as_arguments
from model.hub.transfer import ModelUnavailable
from server.serving.options import ModelOptions

PANELS_OF_SERVE = {
    "Options": "yes config",
    "Network": "host port tls_cert tls_key tls_self_signed",
    "Access": "api_key allow_anyone allow_origin allow_mcp_server",
    "Limits": "max_conversations target_p95 max_session_minutes idle_minutes drain_seconds hang_seconds",
    "Phone calls": "phone_secret twilio_token plivo_token telnyx_key public_url audiosocket max_call_minutes greeting",
    "Logs and traces": "log_format turn_log keep_days no_text otlp_endpoint",
    "Several replicas": "cluster replicas spare_conversations scale_in_minutes records",
    "Tools and documents": "tools mcp_config no_builtin_tools docs data",
    "A bigger model": "llm_url llm_model llm_key_env llm_for llm_first_token_seconds llm_seconds",
    "Weather and web search": "weather_url weather_places_url weather_home weather_units search_url",
    "Models": "model voice asr lexicon family",
    "Devices and memory": "device speech_device precision context kv_cache_dtype",
    "Drafts and decoding": "adapter drafts decoding temperature",
    "Classifiers and programs": "turn_completion request_classifier call_gate program_prefix",
    "Diffusion decoding (--decoding blocks)": "effort max_steps rule block_size blocks_in_flight edit_threshold",
}
"""The options of each panel of `rejoinder serve --help`, in the order in which they are shown."""


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


def test_every_option_of_serve_is_in_a_panel_of_its_topic() -> None:
    panels: dict[str, list[str]] = {}
    for parameter in load_command("serve").params:
        panels.setdefault(getattr(parameter, "rich_help_panel", None) or "Options", []).append(parameter.name or "")
    assert panels == {topic: names.split() for topic, names in PANELS_OF_SERVE.items()}


def test_the_help_of_serve_is_in_topics_and_tells_variables_defaults_and_limits() -> None:
    words = " ".join(help_of("serve").split())
    for topic in PANELS_OF_SERVE:
        assert f"─ {topic} ─" in words
    for text in ("[env var: REJOINDER_DATA]", "[default: 8000]", "[0<=x<=65535]", "org/repo[@revision]"):
        assert text in words

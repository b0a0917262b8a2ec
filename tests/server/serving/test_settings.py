"""Where the values of `rejoinder serve` come from, and what replicas get of them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from server.serving.options import load
from server.serving.settings import ServeSettings


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rejoinder.toml"
    file.write_text('[serve]\nport = 1\nhost = "file"\nrecords = "file"\ndata = "file"\n')
    monkeypatch.setenv("REJOINDER_CONFIG", str(file))
    monkeypatch.setenv("REJOINDER_DATA", "environment")
    monkeypatch.setenv("REJOINDER_RECORDS", "environment")
    settings = load(ServeSettings, {"records": "command line", "port": 2})
    assert (settings.records, settings.port, settings.host) == ("command line", 2, "file")
    assert (settings.data, settings.drain_seconds) == (Path("environment"), 20)


def test_a_variable_holds_several_keys_and_an_empty_one_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEY", "k3y-1 k3y-2")
    monkeypatch.setenv("REJOINDER_RECORDS", "")
    settings = ServeSettings()
    assert (settings.api_keys, settings.records) == (("k3y-1", "k3y-2"), "")
    assert "k3y-1" not in repr(settings) and "k3y-1" in settings.secrets


def test_what_kubernetes_sets_for_a_service_of_our_name_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("port", "80")
    assert ServeSettings().port == 8000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"port": 70000}, "--port: Input should be less than or equal to 65535"),
        ({"tls_key": Path("key.pem")}, "give both --tls-cert and --tls-key, or neither"),
        ({"api_key": [""]}, "an API key may contain only"),
    ],
)
def test_an_error_names_the_option(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as error:
        load(ServeSettings, given)
    assert str(error.value).startswith(message)


def test_a_replica_accepts_the_tickets_of_the_others_and_has_the_key_of_the_bigger_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THE_KEY", "k3y")
    llm = {"llm_url": "http://llm.example.org/v1", "llm_model": "big", "llm_key_env": "THE_KEY"}
    settings = ServeSettings(twilio_token="token", **llm)
    monkeypatch.delenv("THE_KEY")
    replica = pickle.loads(pickle.dumps(settings.model_copy(update={"port": 1})))
    ticket = settings.carrier_auth.issue_ticket()
    assert replica.carrier_auth.read_ticket(ticket) is not None
    assert ServeSettings(twilio_token="token").carrier_auth.read_ticket(ticket) is None
    assert replica.remote_llm == settings.remote_llm and replica.remote_llm.api_key == "k3y"


def test_an_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEY", "a/b")
    with pytest.raises(ValueError, match="REJOINDER_API_KEY: an API key may contain only"):
        load(ServeSettings, {})

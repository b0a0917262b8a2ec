"""The configuration file, and `rejoinder config`."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cli.main import app as cli
from cli.options import with_options
from server.serving.settings import ServeSettings

WIDE = {"COLUMNS": "400", "NO_COLOR": "1"}


def config(path: Path, text: str, **environment: str) -> str:
    """What `rejoinder config` prints for a file, or its error."""
    path.write_text(text)
    done = CliRunner().invoke(cli, ["config", "--config", str(path)], env={**WIDE, **environment})
    return " ".join(done.output.split()) if done.exit_code else done.output


def test_the_printed_configuration_has_every_option_and_can_be_used_again(tmp_path: Path) -> None:
    text = '[serve]\nport = 9000\nmax_conversations = 3\nallow-origin = ["https://a.example"]\nno-text = true\n'
    text += 'temperature = 0.5\nturn-log = "turns.sqlite"\n[prices]\ncurrency = "EUR"\n[prices.hosted]\nminute = 0.1\n'
    first = config(tmp_path / "a.toml", text)
    for line in ("port = 9000  # from the file", 'max-conversations = "3"', 'allow-origin = ["https://a.example"]'):
        assert line in first
    assert 'turn-log = "turns.sqlite"' in first
    assert "idle-minutes = 15" in first
    assert 'currency = "EUR"' in first
    second = config(tmp_path / "b.toml", first)
    assert [line.partition("#")[0] for line in second.splitlines()] == [
        line.partition("#")[0] for line in first.splitlines()
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[serve]\nport = 9000\n\nmax-conversation = 3\n", "line 4: there is no option 'max-conversation': did"),
        ("[serve]\nport = 70000\n", "line 2: port: "),
        ('[serve]\n# x\nport = "many"\n', "line 3: port: "),
        ("[serve]\nport = [1]\n", "line 2: port is a single value, not a list"),
        ('[serve]\nallow-origin = "x"\n', "line 2: allow-origin is a list, not 'x'"),
        ('[serve]\nno-text = "yes"\n', "line 2: no-text is true or false, not 'yes'"),
        ("[serve]\nport = true\n", "line 2: port is no switch, not True"),
        ('[serve]\neffort = "huge"\n', "line 2: effort: "),
        ("[server]\nport = 1\n", "line 1: there is no table 'server'"),
        ("[serve]\nport = \n", "is not TOML: Invalid value (at line 2"),
        ("[prices]\nminute = -1\n", "line 2: minute: Input should be greater than or equal to 0"),
        ("[prices]\n[prices.hosted]\nhour = 1\n", "line 3: hour: Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_an_error_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    assert message in config(tmp_path / "bad.toml", text)


def test_secrets_are_not_printed_and_not_read_from_a_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "secrets.toml"
    path.touch(mode=0o644)
    text = '[serve]\nphone-secret = "hunter2"\n'
    assert "line 2: phone-secret is a secret" in config(path, text)
    path.chmod(0o600)
    printed = config(path, text, TWILIO_AUTH_TOKEN="t0ken")
    assert "phone-secret: a secret, set; use the environment variable REJOINDER_PHONE_SECRET" in printed
    assert "hunter2" not in printed and "t0ken" not in printed


def test_the_environment_and_the_command_line_come_before_the_file(tmp_path: Path) -> None:
    printed = config(tmp_path / "a.toml", '[serve]\ndata = "x"\n', REJOINDER_DATA="/elsewhere")
    assert 'data = "/elsewhere"  # from REJOINDER_DATA' in printed


def test_serve_reports_a_bad_file_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[serve]\ncolour = 1\n")
    done = CliRunner().invoke(cli, ["serve", "--config", str(tmp_path / "bad.toml")], env=WIDE)
    assert done.exit_code == 2
    assert "line 2: there is no option 'colour'" in " ".join(done.output.split())
    done = CliRunner().invoke(cli, ["serve", "--config", str(tmp_path / "missing.toml")], env=WIDE)
    assert "cannot read the configuration" in " ".join(done.output.split())


def test_secrets_come_from_files_and_a_url_with_a_password_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"TWILIO_AUTH_TOKEN": "t0ken", "REJOINDER_API_KEY": "one two", "REJOINDER_LLM_KEY": "k3y"}
    for name, secret in secrets.items():
        (tmp_path / name).write_text(f"{secret}\n")
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    settings = ServeSettings(llm_url="http://llm.example.org/v1", llm_model="big", records="redis://:pa55@host:6379/0")
    assert settings.twilio_token.get_secret_value() == "t0ken" and settings.api_keys == ("one", "two")
    assert settings.remote_llm is not None and settings.remote_llm.api_key == "k3y"
    assert {"t0ken", "one", "two", "k3y", "pa55"} <= set(settings.secrets)
    assert ServeSettings(twilio_token="given").twilio_token.get_secret_value() == "given"
    path, text = tmp_path / "a.toml", '[serve]\nrecords = "redis://:pa55@host:6379/0"\n'
    path.touch(mode=0o644)
    assert "line 2: records is a secret" in config(path, text)
    path.chmod(0o600)
    assert "pa55" not in config(path, text)


def test_secrets_come_from_standard_input_and_those_of_the_command_line_are_warned_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, loaded = typer.Typer(), list[ServeSettings]()

    @app.command()
    @with_options
    def serve(*, settings: ServeSettings) -> None:
        loaded.append(settings)

    monkeypatch.delenv("TWILIO_AUTH_TOKEN", raising=False)
    arguments = ["--api-key", "-", "--api-key", "-"]
    done = CliRunner().invoke(app, arguments, input="one\ntwo\n", env=WIDE)
    assert (done.exit_code, done.output, loaded[0].api_keys) == (0, "", ("one", "two"))
    done = CliRunner().invoke(app, arguments, input="one\n", env=WIDE)
    assert done.exit_code == 2 and "there is no further line on standard input" in done.output
    done = CliRunner().invoke(app, [*arguments, "--twilio-token", "-"], input="one\ntwo\nthree\n", env=WIDE)
    assert done.exit_code == 2 and "standard input holds the secrets of one option" in done.output
    done = CliRunner().invoke(app, ["--records", "-"], input="redis://:pa55@127.0.0.1:6379/0\n", env=WIDE)
    assert (done.exit_code, done.output, loaded[-1].records) == (0, "", "redis://:pa55@127.0.0.1:6379/0")
    done = CliRunner().invoke(app, ["--twilio-token", "t0ken"], env=WIDE)
    assert "--twilio-token is in the list of processes" in done.output and "t0ken" not in done.output

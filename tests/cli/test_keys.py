"""`rejoinder keys`."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from cli.main import app as cli
from server.access.keys import ApiKeys, KeyStore


def keys(data: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["keys", *arguments, "--data", str(data)], env={"COLUMNS": "200", "NO_COLOR": "1"})
    return done.exit_code, done.output


def test_a_key_is_made_listed_and_revoked(tmp_path: Path) -> None:
    code, output = keys(
        tmp_path, "add", "kitchen", "--conversations", "2", "--minutes-per-day", "30", "--tokens-per-day", "1000000"
    )
    (secret,) = [line for line in output.splitlines() if line.startswith("rj_")]
    assert code == 0
    assert ApiKeys(store=KeyStore(tmp_path / "keys.sqlite")).find([secret]) is not None
    listed = keys(tmp_path, "list")[1]
    assert "kitchen" in listed and "0.0 of 30" in listed and "0 of 1000000" in listed and secret not in listed
    assert keys(tmp_path, "revoke", "kitchen")[0] == 0
    assert ApiKeys(store=KeyStore(tmp_path / "keys.sqlite")).find([secret]) is None


def test_mistakes_are_reported_in_one_sentence(tmp_path: Path) -> None:
    assert "no active key called 'nobody'" in " ".join(keys(tmp_path, "revoke", "nobody")[1].split())
    keys(tmp_path, "add", "kitchen")
    code, output = keys(tmp_path, "add", "kitchen")
    assert (code, "choose a new name" in " ".join(output.split())) == (1, True)
    assert "There are no keys" in keys(tmp_path / "empty", "list")[1]

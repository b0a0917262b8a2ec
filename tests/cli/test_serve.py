"""`rejoinder serve`: invalid options."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli.main import app as cli


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--public-url", "phone.example.org"], 2, "--public-url looks like"),
        (["--public-url", "https://phone.example.org/phone"], 2, "without a path"),
        (["--max-conversations", "many"], 2, "auto, or a number"),
        (["--telnyx-key", "mine"], 1, "32 bytes in base64"),
        (["--llm-url", "llm.example.org", "--llm-model", "big"], 2, "--llm-url looks like https://llm.example.org/v1"),
        (["--llm-url", "https://llm.example.org/v1"], 2, "--llm-model, the name of a model there, belong together"),
        (["--llm-model", "big"], 2, "belong together"),
        (["--weather-home", "Oslo"], 2, "need --weather-url"),
        (["--weather-url", "open-meteo.com"], 2, "--weather-url looks like https://api.open-meteo.com"),
        (["--search-url", "file:///etc/passwd"], 2, "--search-url looks like"),
        (["--cluster", "--replicas", "many"], 1, "--replicas is auto, a number, or two"),
        (["--audiosocket", "0", "--cluster"], 1, "leave out --audiosocket or --cluster"),
        (["--host", "0.0.0.0", "--cluster", "10.0.0.7:6379"], 1, "make a key with `rejoinder keys add NAME`"),
    ],
)
def test_an_invalid_option_is_reported_in_one_sentence(arguments: list[str], code: int, message: str) -> None:
    done = CliRunner().invoke(cli, ["serve", *arguments], env={"COLUMNS": "400", "NO_COLOR": "1"})
    assert done.exit_code == code
    assert message in " ".join(done.output.split())

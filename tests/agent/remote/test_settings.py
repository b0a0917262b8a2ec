"""The address of the bigger model."""

from __future__ import annotations

import pytest

from agent.remote.settings import RemoteSettings


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://localhost:11434", "http://localhost:11434/v1/chat/completions"),
        ("https://llm.example.org/v1/", "https://llm.example.org/v1/chat/completions"),
        ("https://llm.example.org/api/v1/chat/completions", "https://llm.example.org/api/v1/chat/completions"),
    ],
)
def test_the_address_of_the_api_is_enough(url: str, endpoint: str) -> None:
    assert RemoteSettings(url, "big").endpoint == endpoint


@pytest.mark.parametrize(
    ("url", "leaves"),
    [
        ("http://localhost:11434", False),
        ("http://127.0.0.2/v1", False),
        ("http://[::1]:8000/v1", False),
        ("http://192.168.1.5/v1", True),
        ("https://localhost.example.org/v1", True),
    ],
)
def test_words_for_this_machine_do_not_leave_it(url: str, leaves: bool) -> None:
    assert RemoteSettings(url, "big").leaves_machine is leaves


@pytest.mark.parametrize(
    "url", ["llm.example.org/v1", "ftp://x/v1", "https://", "https://h:99999/v1", "https://h/v1?key=1", "https://a b/"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="--llm-url looks like"):
        RemoteSettings(url, "big")


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ValueError, match="contains a password") as error:
        RemoteSettings("https://me:secret@h/v1", "big")
    assert "secret" not in str(error.value)

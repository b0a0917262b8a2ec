"""Where the bigger model is, and what it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from agent.addresses import leaves_machine

Scope = Literal["hard", "all"]
"""Which responses come from the bigger model: those to hard questions (`routing.py`), or all."""

_PATH = "/chat/completions"


@dataclass(frozen=True)
class RemoteSettings:
    """An OpenAI-compatible endpoint and how it is used.

    Attributes:
        url: of the API, such as `https://llm.example.org/v1`, or of its chat completions.
        model: name of the model there.
        api_key: sent as a bearer token; empty for none.
        first_token_s: when nothing has arrived after this time, the local model answers.
        total_s: how long one response may take.

    Raises:
        ValueError: the URL is none, or contains a password; a sentence.
    """

    url: str
    model: str
    api_key: str = field(default="", repr=False)
    scope: Scope = "hard"
    first_token_s: float = 2.5
    total_s: float = 60.0

    def __post_init__(self) -> None:
        check_url(self.url, "--llm-url", "https://llm.example.org/v1")

    @property
    def endpoint(self) -> str:
        """The URL of chat completions."""
        url = self.url.rstrip("/")
        if url.endswith(_PATH):
            return url
        return f"{url}{_PATH}" if urlsplit(url).path else f"{url}/v1{_PATH}"

    @property
    def host(self) -> str:
        """The host that the words go to."""
        return urlsplit(self.url).hostname or ""

    @property
    def leaves_machine(self) -> bool:
        """Whether that is another machine than this one."""
        return leaves_machine(self.host)


def check_url(url: str, option: str, example: str) -> None:
    """Raise ValueError unless `url`, given as `option`, is one of HTTP without a password, a query or a fragment."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or any(character.isspace() for character in url):
        raise ValueError(f"{option} looks like {example}, not {url!r}")
    if parts.username or parts.password:
        raise ValueError(f"{option} contains a password: give the address alone")

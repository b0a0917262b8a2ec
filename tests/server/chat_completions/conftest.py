"""A server with a tiny language model, and the official client for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from model.engine.engine import Engine
from tests.real_time import HANG_S
from tests.server.live_server import serving


@pytest.fixture(scope="session")
def address(tiny_engine: Engine) -> Iterator[str]:
    with serving(engine=tiny_engine) as address:
        yield address


@pytest.fixture(scope="session")
def client(address: str) -> OpenAI:
    return OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=HANG_S)

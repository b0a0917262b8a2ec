"""Requests to services that send too much. `test_weather.py` and `test_web_search.py` have other failures."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
from pydantic import BaseModel

from agent.tools.web_service import ServiceFailed, WebService
from tests.agent.tools.json_server import json_server


class Anything(BaseModel):
    pass


async def test_a_compressed_answer_is_not_expanded() -> None:
    async with json_server({"/a": gzip.compress(b"{" + b" " * (64 << 20) + b"}"), "/b": {}}) as server:
        service = WebService("the service", server.url)
        await service.get("/b", {}, Anything)
        tracemalloc.start()
        with pytest.raises(ServiceFailed):
            await service.get("/a", {}, Anything)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        await service.close()
    assert peak < 4 << 20

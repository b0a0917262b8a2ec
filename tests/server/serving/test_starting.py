"""A server whose models are still loading."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from server.app import build_app
from server.context import ServerContext
from server.serving.service import Service
from server.serving.starting import StartingApp
from server.serving.trial import Start
from tests.fakes import FakeLanguageModel, fake_speech_models
from tests.real_time import wait_until


class Loading:
    """Loads when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.start, self.error, self.go_on = Start(), error, threading.Event()
        self.loaded, self.ready, self.failed = list[Service](), list[Service](), list[bool]()
        self.app = StartingApp(
            self._load, self.start, self.loaded.append, self.ready.append, lambda: self.failed.append(True)
        )

    def _load(self) -> Service:
        self.start.doing = "The language model is tried."
        self.go_on.wait(10)
        if self.error is not None:
            raise self.error
        context = ServerContext(FakeLanguageModel, fake_speech_models(), "tiny")
        app = build_app(context)
        assert isinstance(app, Starlette)
        return Service(context, app)


@asynccontextmanager
async def alive(app: StartingApp) -> AsyncIterator[httpx.AsyncClient]:
    to_app, from_app = asyncio.Queue[Any](), asyncio.Queue[Any]()
    task = asyncio.create_task(app({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
        await task


async def test_the_page_is_served_meanwhile_and_says_what_the_server_does() -> None:
    loading = Loading()
    async with alive(loading.app) as client:
        page = await client.get("/")
        assert page.status_code == 200 and "Start talking" in page.text
        assert "content-security-policy" in page.headers
        await wait_until(lambda: "tried" in loading.start.doing)
        assert (await client.get("/healthz")).json() == {"status": "ok", "starting": "The language model is tried."}
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()) == (503, {"status": "starting"})
        assert not loading.start.visited.is_set()
        loading.go_on.set()
        await wait_until(lambda: bool(loading.ready))
        assert loading.loaded == loading.ready
        assert (await client.get("/readyz")).json()["status"] == "ready"
        assert "starting" not in (await client.get("/healthz")).json()


async def test_who_wants_to_talk_waits_and_is_noticed() -> None:
    loading = Loading()
    async with alive(loading.app) as client:
        secret = asyncio.create_task(client.post("/v1/realtime/client_secrets", json={}))
        await wait_until(loading.start.visited.is_set)
        assert not secret.done()
        loading.go_on.set()
        assert (await secret).json()["value"]


async def test_who_only_looks_does_not_wait_and_is_told_to_come_back() -> None:
    loading = Loading()
    async with alive(loading.app) as client:
        for path in ("/metrics", "/dashboard", "/v1/models"):
            refused = await client.get(path)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        assert not loading.start.visited.is_set()
        loading.go_on.set()


async def test_a_model_that_cannot_be_loaded_ends_the_server(caplog: pytest.LogCaptureFixture) -> None:
    loading = Loading(ValueError("the model is damaged"))
    async with alive(loading.app):
        loading.go_on.set()
        await wait_until(lambda: bool(loading.failed))
        assert str(loading.app.error) == "the model is damaged"
        assert not loading.ready


async def test_a_server_can_be_stopped_while_it_loads() -> None:
    loading = Loading()
    async with alive(loading.app):
        await asyncio.sleep(0)
    assert loading.start.visited.is_set()  # a trial ends
    loading.go_on.set()
    await asyncio.sleep(0.2)
    assert not loading.loaded

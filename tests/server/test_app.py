"""The routes of the application."""

from __future__ import annotations

import asyncio
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from threading import Event

import httpx
import pytest

from agent import background_tasks
from agent.instructions import INSTRUCTIONS
from chat.types import Message
from model.engine.engine import Engine
from model.engine.prefix_cache import PrefixCache
from server.access.admission import Admission
from server.realtime.resumptions import Resumptions
from server.shared_store import SharedRecords, SQLiteStore
from tests.real_time import HANG_S
from tests.server.live_server import serving
from voice.turn_metrics import END_OF_TURN, STAGES


async def test_the_page_and_the_health_check_are_served() -> None:
    with serving() as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:
            page, health, script = [await web.get(path) for path in ("/", "/healthz", "/app.js")]
            missing = await web.get("/../pyproject.toml")
    assert "Start talking" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert script.headers["content-type"].startswith("text/javascript")
    assert (health.json()["status"], health.json()["model"]) == ("ok", "tiny")
    assert (health.json()["voice"], health.json()["voices"]) == ("fake", ["fake", "other"])
    assert missing.status_code == 404


def test_an_unknown_route_of_the_api_is_an_error_in_its_form() -> None:
    with serving() as address:
        for method, path in (("POST", "/v1/chat/completion"), ("GET", "/v1/chat/completions"), ("PUT", "/v1/models")):
            answer = httpx.request(method, f"http://{address}{path}", timeout=HANG_S)
            assert answer.status_code == 404 and f"{method} {path}" in answer.json()["error"]["message"]
        assert httpx.post(f"http://{address}/app.js", timeout=HANG_S).status_code == 405


def test_the_default_instructions_are_read_before_anybody_can_connect(tiny_engine: Engine) -> None:
    tiny_engine.prefix_cache = PrefixCache()
    with serving(engine=tiny_engine) as address:
        assert httpx.get(f"http://{address}/healthz", timeout=HANG_S).is_success  # it has started
        model, cache = tiny_engine.model, tiny_engine.new_cache()
        ids = model.template.encode([Message("system", INSTRUCTIONS), Message("user", "What is a moon?")])
        tiny_engine.prefix_cache.fill(cache, ids)
    assert len(cache.tokens) >= len(model.tokenizer.encode(INSTRUCTIONS))


def test_a_replica_counts_the_conversations_of_those_that_died(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "records.sqlite")
    store.put("replica/gone", b'{"beat": 7, "realtime": 1, "phone": 2}', 60)
    with serving(records=SharedRecords(store)) as address:
        text = httpx.get(f"http://{address}/metrics", timeout=HANG_S).text
    assert 'rejoinder_dead_replica_conversations_total{kind="phone"} 0.0' in text  # it may still live
    store.close()


async def test_every_stage_of_a_turn_has_a_label_on_the_page() -> None:
    with serving() as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:
            labels, script = [await web.get(path) for path in ("/stage_labels.json", "/transcript.js")]
    assert labels.headers["content-type"] == "application/json"
    stages = {name for name, _, _ in (*STAGES, END_OF_TURN)}
    assert set(labels.json()) == stages | {"playing"}
    assert all(label.strip() for label in labels.json().values())
    assert "stage_labels.json" in script.text
    assert not [name for name in stages if f"{name}:" in script.text]  # the page has no second list


def test_every_file_of_the_page_is_package_data() -> None:
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["web"]
    files = [path.name for path in (root / "web").iterdir() if path.is_file() and path.suffix != ".py"]
    assert files
    assert not [name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)]


def test_work_in_the_background_that_fails_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the application itself: one that ended would leave revoked keys their conversations, and records untouched."""
    monkeypatch.setattr(background_tasks, "_RESTART_S", 0.0)
    works: list[tuple[type, str]] = [(Admission, "supervise"), (Resumptions, "keep_records")]
    begun = {name: Event() for _, name in works}
    for owner, name in works:
        failing(monkeypatch, owner, name, begun[name])
    with serving():
        assert all(event.wait(HANG_S) for event in begun.values())


def failing(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, begun_again: Event) -> None:
    """Let a method fail the first time it is awaited."""
    times = list[int]()

    async def work(self: object) -> None:
        times.append(len(times))
        if len(times) == 1:
            raise ValueError("a record that cannot be written")
        begun_again.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(owner, name, work)

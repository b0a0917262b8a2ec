"""Files and batches, as the official client sees them."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from model.engine.engine import Engine
from server.access.admission import Admission
from server.access.keys import ApiKeys, KeyStore
from server.batch_store import BatchStore
from tests.model.dialogues import held
from tests.real_time import HANG_S
from tests.server.live_server import serving

QUESTIONS = ["hello to you", "the capital of France", "Paris"]

BODIES: dict[str, Any] = {
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 4},
    "/v1/responses": lambda text: {"input": text, "max_output_tokens": 16},
    "/v1/decide": lambda text: {"type": "boolean", "input": text},
    "/v1/embeddings": lambda text: {"input": text, "dimensions": 8},
}


@pytest.fixture(scope="module")
def address(tiny_engine: Engine) -> Iterator[str]:
    with serving(engine=tiny_engine) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> OpenAI:
    return client_of(address)


def client_of(address: str, key: str = "none") -> OpenAI:
    return OpenAI(base_url=f"http://{address}/v1", api_key=key, max_retries=0, timeout=HANG_S)


def lines(endpoint: str, bodies: list[Any]) -> bytes:
    requests = [
        {"custom_id": f"request {n}", "method": "POST", "url": endpoint, "body": body} for n, body in enumerate(bodies)
    ]
    return "\n".join(map(json.dumps, requests)).encode()


def begin(client: OpenAI, endpoint: Any, bodies: list[Any], **options: Any) -> Batch:
    file = client.files.create(file=("requests.jsonl", lines(endpoint, bodies)), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **options)


def end(client: OpenAI, batch: Batch) -> Batch:
    deadline = time.monotonic() + HANG_S
    while batch.status in ("validating", "in_progress", "cancelling"):
        assert time.monotonic() < deadline, batch
        time.sleep(0.02)
        batch = client.batches.retrieve(batch.id)
    return batch


def results(client: OpenAI, file: str | None) -> dict[str, Any]:
    assert file is not None
    return {line["custom_id"]: line for line in map(json.loads, client.files.content(file).text.splitlines())}


@pytest.mark.parametrize("endpoint", list(BODIES))
def test_a_batch_gives_the_answers_that_the_endpoint_gives(client: OpenAI, address: str, endpoint: str) -> None:
    bodies = [BODIES[endpoint](text) for text in QUESTIONS]
    batch = end(client, begin(client, endpoint, bodies, metadata={"job": "7"}))
    assert batch.status == "completed" and batch.metadata == {"job": "7"} and batch.error_file_id is None
    assert batch.request_counts is not None and batch.request_counts.completed == len(QUESTIONS)
    assert batch.usage is not None and batch.usage.input_tokens > len(QUESTIONS)
    found = results(client, batch.output_file_id)
    for n, body in enumerate(bodies):
        answer = found[f"request {n}"]["response"]
        direct = httpx.post(f"http://{address}{endpoint}", json=body, timeout=HANG_S).json()
        assert answer["status_code"] == 200
        for field in ("choices", "probabilities", "data"):
            if field in direct:
                assert json.dumps(answer["body"][field])[:40] == json.dumps(direct[field])[:40]
        if endpoint == "/v1/responses":
            assert [item["content"][0]["text"] for item in answer["body"]["output"]] == [
                item["content"][0]["text"] for item in direct["output"]
            ]
            assert answer["body"]["store"] is False, "ten thousand responses would replace what the key has stored"


def test_a_request_that_is_refused_is_in_the_error_file(client: OpenAI) -> None:
    bodies = [BODIES["/v1/decide"]("hello"), {"type": "choice", "input": "hello"}]
    batch = end(client, begin(client, "/v1/decide", bodies))
    assert batch.status == "completed" and set(results(client, batch.output_file_id)) == {"request 0"}
    (wrong,) = results(client, batch.error_file_id).values()
    assert wrong["response"]["status_code"] == 400 and "'choices'" in wrong["response"]["body"]["error"]["message"]


def test_batches_and_files_are_listed_retrieved_and_deleted(client: OpenAI) -> None:
    batches = [end(client, begin(client, "/v1/decide", [BODIES["/v1/decide"](text)])) for text in QUESTIONS]
    assert [batch.id for batch in client.batches.list(limit=2)][:3] == [batch.id for batch in batches[::-1]]
    files = [file.id for file in client.files.list(purpose="batch_output", limit=2)]
    assert files[:3] == [batch.output_file_id for batch in batches[::-1]]
    file = client.files.retrieve(batches[0].input_file_id)
    assert (file.filename, file.purpose, file.status) == ("requests.jsonl", "batch", "processed")
    assert file.expires_at is not None and file.expires_at > time.time() + 29 * 86_400
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError, match="there is no file"):
        client.files.retrieve(file.id)
    short = client.files.create(
        file=io.BytesIO(b"{}"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert short.expires_at is not None and short.expires_at <= time.time() + 3600


def test_a_batch_is_cancelled_while_the_model_is_busy(client: OpenAI, tiny_engine: Engine) -> None:
    with held(tiny_engine):
        batch = begin(client, "/v1/decide", [BODIES["/v1/decide"](text) for text in QUESTIONS])
        with pytest.raises(openai.BadRequestError, match="still reads this file"):
            client.files.delete(batch.input_file_id)
        assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
        batch = end(client, batch)
    assert batch.status == "cancelled" and batch.output_file_id is None
    with pytest.raises(openai.BadRequestError, match="is cancelled"):
        client.batches.cancel(batch.id)


def test_a_batch_goes_on_after_a_restart(tiny_engine: Engine, tmp_path: Path) -> None:
    path, bodies = tmp_path / "batches.sqlite", [BODIES["/v1/chat/completions"](text) for text in QUESTIONS * 20]
    store = BatchStore(path)
    with serving(engine=tiny_engine, batches=store) as address:
        client = client_of(address)
        batch = begin(client, "/v1/chat/completions", bodies)
        while not (counts := client.batches.retrieve(batch.id).request_counts) or counts.completed < 3:
            time.sleep(0.01)
    (unfinished,) = store.batches("", "", 9)
    before = dict(store.lines(unfinished.output_file, 0, 99))
    assert len(before) >= 3
    store.close()
    with serving(engine=tiny_engine, batches=BatchStore(path)) as address:
        client = client_of(address)
        batch = end(client, client.batches.retrieve(batch.id))
        assert len(results(client, batch.output_file_id)) == len(bodies)
        content = client.files.content(batch.output_file_id or "").content
    assert all(text in content for text in before.values()), "what was answered stays as it was"


def test_other_keys_see_nothing_of_it(tiny_engine: Engine, tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.sqlite")
    secrets = {name: keys.add(name) for name in ("alice", "bob")}
    with serving(engine=tiny_engine, admission=Admission(keys=ApiKeys(store=keys))) as address:
        alice, bob = (client_of(address, secret) for secret in secrets.values())
        batch = end(alice, begin(alice, "/v1/decide", [BODIES["/v1/decide"]("hello")]))
        assert not list(bob.batches.list()) and not list(bob.files.list())
        for look in (
            lambda: bob.batches.retrieve(batch.id),
            lambda: bob.batches.cancel(batch.id),
            lambda: bob.files.content(batch.output_file_id or ""),
            lambda: bob.files.delete(batch.input_file_id),
            lambda: bob.batches.create(
                input_file_id=batch.input_file_id, endpoint="/v1/responses", completion_window="24h"
            ),
        ):
            with pytest.raises(openai.NotFoundError):
                look()


@pytest.mark.parametrize(
    ("path", "options", "status", "param", "words"),
    [
        ("files", {"data": {"purpose": "batch"}}, 400, "file", "form field"),
        ("files", {"files": {"file": b"x"}, "data": {"purpose": "vision"}}, 400, "purpose", "'batch'"),
        ("files", {"files": {"file": b"x"}, "data": {"purpose": "batch", "x": "y"}}, 400, "x", "no parameter"),
        (
            "files",
            {"files": {"file": b"x"}, "data": {"purpose": "batch", "expires_after[seconds]": "1"}},
            400,
            "expires_after[seconds]",
            "3600",
        ),
        ("batches", {"json": {"input_file_id": "file-0"}}, 400, "endpoint", "missing"),
        (
            "batches",
            {"json": {"input_file_id": "file-0", "endpoint": "/v1/decide", "completion_window": "24h"}},
            404,
            "input_file_id",
            "there is no file",
        ),
        (
            "batches",
            {"json": {"input_file_id": "file-0", "endpoint": "/v1/moderations", "completion_window": "24h"}},
            400,
            "endpoint",
            "/v1/decide",
        ),
    ],
)
def test_bad_requests_get_a_sentence(
    address: str, path: str, options: dict[str, Any], status: int, param: str, words: str
) -> None:
    response = httpx.post(f"http://{address}/v1/{path}", timeout=HANG_S, **options)
    error = response.json()["error"]
    assert response.status_code == status and error["param"] == param and words in error["message"], error


def test_limits_of_a_list(address: str) -> None:
    for path, limit in (("files", "0"), ("batches", "101"), ("batches", "many"), ("files", "000000001" + 5000 * "9")):
        response = httpx.get(f"http://{address}/v1/{path}?limit={limit}", timeout=HANG_S)
        assert response.status_code == 400 and "limit must be a number" in response.json()["error"]["message"]

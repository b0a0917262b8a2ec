"""Embeddings, as the official client sees them, with the real embedding model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from openai import OpenAI

from agent.documents.embedding import EMBEDDING_MODEL, Embedder
from model.hub.store import ModelStore
from model.hub.transfer import ModelUnavailable
from server.access.admission import Admission
from server.embedder import SharedEmbedder
from server.search import embeddings
from tests.real_time import HANG_S
from tests.server.live_server import serving

TEXTS = ["How do I turn the heating on?", "The boiler is started with the red handle.", "Rent is due on the third."]


@pytest.fixture(scope="module")
def admission() -> Admission:
    return Admission()


@pytest.fixture(scope="module")
def address(admission: Admission) -> Iterator[str]:
    with serving(admission=admission) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> OpenAI:
    return OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=HANG_S)


def vectors(client: OpenAI, texts: Any, **options: Any) -> np.ndarray[Any, Any]:
    found = client.embeddings.create(model=EMBEDDING_MODEL, input=texts, **options)
    assert [one.index for one in found.data] == list(range(len(found.data)))
    return np.array([one.embedding for one in found.data])


def test_several_inputs_have_the_vectors_of_the_model(client: OpenAI, admission: Admission) -> None:
    before = admission.usage.total
    found = client.embeddings.create(model="rejoinder", input=TEXTS)
    assert found.model == EMBEDDING_MODEL
    expected = Embedder(ModelStore().locate(EMBEDDING_MODEL)).embed(TEXTS)
    assert np.allclose([one.embedding for one in found.data], expected.vectors, atol=1e-5)
    assert found.usage.prompt_tokens == found.usage.total_tokens == expected.tokens
    assert admission.usage.total.input_tokens - before.input_tokens == expected.tokens


def test_floats_and_base64_are_the_same_numbers(client: OpenAI) -> None:
    """The client itself asks for base64 unless it is told otherwise."""
    assert np.allclose(vectors(client, TEXTS), vectors(client, TEXTS, encoding_format="float"), atol=1e-6)


def test_fewer_dimensions_are_the_first_ones_of_length_one(client: OpenAI) -> None:
    (whole,), (few,) = vectors(client, TEXTS[0]), vectors(client, TEXTS[0], dimensions=64)
    assert len(few) == 64 and np.linalg.norm(few) == pytest.approx(1, abs=1e-5)
    assert np.allclose(few, whole[:64] / np.linalg.norm(whole[:64]), atol=1e-5)


def test_all_of_a_long_text_counts(client: OpenAI) -> None:
    heating, rent = TEXTS[1] * 24, TEXTS[2] * 24
    both, first, second = vectors(client, [heating + rent, heating, rent])
    assert first @ second < 0.5
    assert both @ first > 0.5 and both @ second > 0.5, "neither half is left out"


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"input": "x", "model": "text-embedding-3-small"}, 404, "model", EMBEDDING_MODEL),
        ({"input": [1, 2, 3]}, 400, "input", "send text"),
        ({"input": [[1, 2], [3]]}, 400, "input", "send text"),
        ({"input": ""}, 400, "input", "at least 1"),
        ({"input": []}, 400, "input", "at least 1"),
        ({"input": ["x"] * 2049}, 400, "input", "2048"),
        ({"input": "x" * 32_769}, 400, "input", "32768"),
        ({"input": ["x" * 30_000] * 41}, 400, None, "1,200,000"),
        ({"input": "x", "dimensions": 385}, 400, "dimensions", "384"),
        ({"input": "x", "surprise": 1}, 400, "surprise", "no parameter"),
    ],
)
def test_bad_requests_get_a_sentence(
    address: str, body: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    response = httpx.post(f"http://{address}/v1/embeddings", json=body, timeout=HANG_S)
    error = response.json()["error"]
    assert response.status_code == status and words in error["message"], error
    assert param is None or error["param"].startswith(param)


def test_a_server_without_the_model_says_what_to_install() -> None:
    def nowhere() -> Any:
        raise ModelUnavailable("install rejoinder[documents]")

    with serving(embedder=SharedEmbedder(nowhere)) as address:
        response = httpx.post(f"http://{address}/v1/embeddings", json={"input": "x"}, timeout=HANG_S)
    assert response.status_code == 503 and "rejoinder[documents]" in response.json()["error"]["message"]


def test_the_most_dimensions_are_those_of_the_model(client: OpenAI) -> None:
    assert vectors(client, "x").shape == (1, embeddings.MAX_DIMENSIONS)

"""Rankings, in the forms of Cohere's and Jina's APIs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from agent.documents.embedding import EMBEDDING_MODEL
from model.engine.engine import Engine
from model.engine.relevance import RelevanceScorer
from server.search.rerank import MAX_DOCUMENTS, MAX_SCORED
from tests.real_time import HANG_S
from tests.server.live_server import serving

QUERY = "How do I turn the heating on?"
DOCUMENTS = ["Rent is due on the third.", "The boiler is started with the red handle.", "Dogs are welcome."]


@pytest.fixture(scope="module")
def address(tiny_engine: Engine) -> Iterator[str]:
    with serving(engine=tiny_engine) as address:
        yield address


def rank(address: str, path: str = "v2/rerank", **body: Any) -> Any:
    body = {"query": QUERY, "documents": DOCUMENTS, **body}
    response = httpx.post(f"http://{address}/{path}", json=body, timeout=HANG_S)
    return response.json() if response.status_code == 200 else (response.status_code, response.json()["error"])


def test_the_second_version_has_the_indices_and_scores_of_the_best(address: str) -> None:
    found = rank(address, model=EMBEDDING_MODEL, top_n=2, max_tokens_per_doc=4096, priority=0)
    assert [result["index"] for result in found["results"]][:1] == [1] and len(found["results"]) == 2
    scores = [result["relevance_score"] for result in found["results"]]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    assert set(found["results"][0]) == {"index", "relevance_score"}
    assert found["meta"] == {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    assert found["id"]


def test_the_first_version_also_has_the_documents(address: str) -> None:
    found = rank(address, "v1/rerank", query={"text": QUERY}, documents=[{"text": text} for text in DOCUMENTS])
    assert found["object"] == "list" and found["model"] == EMBEDDING_MODEL
    assert found["usage"]["total_tokens"] > 20 and found["meta"]["api_version"] == {"version": "1"}
    assert found["results"][0]["document"] == {"text": DOCUMENTS[1]}
    assert "document" not in rank(address, "v1/rerank", return_documents=False)["results"][0]
    assert rank(address, return_documents=True)["results"][0]["document"] == {"text": DOCUMENTS[1]}


def test_fields_of_a_document_are_ranked_together(address: str) -> None:
    documents = [{"title": text, "body": "Page 7.", "id": 3} for text in DOCUMENTS]
    found = rank(address, "v1/rerank", documents=documents, rank_fields=["title", "body"])
    assert found["results"][0]["index"] == 1 and found["results"][0]["document"] == documents[1]


async def test_the_language_model_ranks_by_how_likely_a_yes_is(address: str, tiny_engine: Engine) -> None:
    found = rank(address, model="tiny")
    expected = await RelevanceScorer(tiny_engine, background=True, keep_all_messages=True).score(QUERY, DOCUMENTS)
    scores = {result["index"]: result["relevance_score"] for result in found["results"]}
    assert [scores[n] for n in range(3)] == pytest.approx(list(expected.probabilities), abs=1e-5)
    assert found["model"] == "tiny" and found["usage"]["prompt_tokens"] == expected.prompt_tokens


@pytest.mark.parametrize(
    ("body", "status", "param", "words"),
    [
        ({"model": "rerank-v3.5"}, 404, "model", "can rank"),
        ({"documents": []}, 400, "documents", "at least 1"),
        ({"documents": ["x"] * (MAX_DOCUMENTS + 1)}, 400, "documents", str(MAX_DOCUMENTS)),
        ({"documents": ["x"] * (MAX_SCORED + 1), "model": "tiny"}, 400, "documents", "send the best"),
        ({"documents": [{"title": "x"}]}, 400, "documents[0]", "'text'"),
        ({"query": ""}, 400, "query", "at least 1"),
        ({"top_n": 0}, 400, "top_n", "greater"),
        ({"query": "hello " * 4000, "model": "tiny"}, 400, None, "shorten"),
        ({"return_embeddings": True}, 400, "return_embeddings", "no parameter"),
    ],
)
def test_bad_requests_get_a_sentence(
    address: str, body: dict[str, Any], status: int, param: str | None, words: str
) -> None:
    found = rank(address, **body)
    assert found[0] == status and words in found[1]["message"], found
    assert param is None or found[1]["param"].startswith(param)


def test_without_a_language_model_the_embedding_model_ranks() -> None:
    with serving() as address:
        assert rank(address)["results"][0]["index"] == 1
        assert rank(address, model="tiny")[0] == 404

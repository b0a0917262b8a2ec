"""The real embedding model."""

from __future__ import annotations

import numpy as np
import pytest

from agent.documents.embedding import EMBEDDING_MODEL, Embedder
from model.hub.store import ModelStore
from model.hub.transfer import ModelUnavailable


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    try:
        return Embedder(ModelStore().locate(EMBEDDING_MODEL))
    except ModelUnavailable as error:
        pytest.fail(f"{error} (the extra `test` installs it)")


def test_texts_about_the_same_thing_are_nearer_than_others(embedder: Embedder) -> None:
    question, answer, other = embedder(
        ["How do I turn the heating on?", "The boiler is started with the red handle.", "Rent is due on the third."]
    )
    assert question @ answer > question @ other + 0.2
    assert np.allclose(np.linalg.norm([question, answer, other], axis=1), 1, atol=1e-5)


def test_a_batch_gives_the_vectors_of_its_texts_in_their_order(embedder: Embedder) -> None:
    texts = [f"{'long ' * (37 * n % 23)} text number {n}" for n in range(20)]
    together = embedder(texts)
    for n in (0, 7, 19):
        assert together[n] @ embedder([texts[n]])[0] > 0.98  # int8 activations depend on the batch

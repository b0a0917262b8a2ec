"""Tiny base models for tests of the conversion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lab.convert.generate_states import StateShard
from model.engine.loader import LoadedModel, load_model
from model.nn.forward_batch import text_input
from tests.model.dialogues import with_doubled_weights

TRAINED = {"model", "varied_model", "shard"}
"""Fixtures of the tests that train or generate."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and TRAINED & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")


@pytest.fixture(scope="module")
def model(tiny_qwen2: Path) -> LoadedModel:
    return load_model(tiny_qwen2, device="cpu", precision="float32", adapter="none")


@pytest.fixture(scope="session")
def folder(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint that does not repeat one token."""
    return with_doubled_weights(tiny_qwen2, tmp_path_factory.mktemp("varied"))


@pytest.fixture(scope="session")
def varied_model(folder: Path) -> LoadedModel:
    return load_model(folder, device="cpu", precision="int8", adapter="none")


@pytest.fixture(scope="session")
def shard(varied_model: LoadedModel) -> StateShard:
    """Greedy texts, which depend on little, so that there is something to learn."""
    draw, parts = torch.Generator().manual_seed(1), []
    tokens: list[int] = []
    for _ in range(12):
        cache = varied_model.decoder.new_cache()
        unread = torch.randint(3, 290, (6,), generator=draw).tolist()
        for _ in range(40):
            (logits,) = varied_model.decoder.run([replace(text_input(cache, unread, 1), on_features=parts.append)])
            cache.commit(unread)
            unread = [int(logits[0].argmax())]
            tokens += unread
    prompts = torch.zeros(12, dtype=torch.int32), torch.arange(1, 13)
    ends, kinds = 40 * torch.arange(1, 13), torch.zeros(12).long()
    return StateShard(torch.tensor(tokens, dtype=torch.int32), torch.cat(parts).half(), ends, kinds, *prompts)

"""Tiny models that several packages' tests use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from model.checkpoint.chat_template import CHATML, ChatTemplate
from model.decode.draft_length import DraftLengthController
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.nn.adapter import random_adapter
from tests.model.dialogues import with_doubled_weights


@pytest.fixture(scope="session")
def varied_qwen2(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint that does not repeat itself."""
    return with_doubled_weights(tiny_qwen2, tmp_path_factory.mktemp("varied"))


@pytest.fixture(scope="module")
def model(varied_qwen2: Path) -> LoadedModel:
    """A tiny model with an adapter and a template for tools."""
    loaded = load_model(varied_qwen2, device="cpu", precision="float32")
    template = ChatTemplate(
        "{% for tool in tools or [] %}{{ tool.function.name }}\n{% endfor %}" + CHATML, loaded.tokenizer
    )
    return replace(loaded, template=template, adapter=random_adapter(loaded.decoder.config, 4, 3, seed=3))


@pytest.fixture(scope="module")
def drafting(model: LoadedModel) -> Iterator[Engine]:
    """An engine that always drafts three tokens. Forward passes of any size are bit-identical in its precision."""
    engine = Engine(lambda: model)
    engine.draft_length = DraftLengthController({1: 1.0, 100: 1.0}, 3, [0.9] * 3)
    engine.drafts_with_grammar = True
    yield engine
    engine.close()

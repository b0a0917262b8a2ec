"""Sessions in these tests detect speech by its loudness. Those that need a language model get a tiny one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tokenizers import AddedToken, Tokenizer

from model.engine.engine import Engine
from model.engine.loader import load_model
from tests.conftest import save_tiny_checkpoint
from tests.fakes import LoudnessDetector
from tests.model.dialogues import with_doubled_weights
from voice import session


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


@pytest.fixture(scope="session")
def tiny_engine(tiny_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """It can fill in the middle, and its context holds declarations of tools."""
    tokenizer = Tokenizer.from_str(tiny_tokenizer.to_str())
    fill_in = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in fill_in])
    plain = save_tiny_checkpoint(tmp_path_factory.mktemp("plain"), tokenizer, "qwen2", max_position_embeddings=2048)
    folder = with_doubled_weights(plain, tmp_path_factory.mktemp("chat"))
    engine = Engine(lambda: load_model(folder, device="cpu", precision="float32"))
    yield engine
    engine.close()

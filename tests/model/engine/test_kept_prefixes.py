"""Instructions that were read are kept for the next start, which generates the same text without reading them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from chat.types import Message
from model.engine import kept_prefixes
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.kept_prefixes import KeptPrefixes
from model.engine.loader import load_model
from model.nn.decoder import CacheType
from tests.model.dialogues import HELLO, collect_progress, committed_text

INSTRUCTIONS = Message("system", "the capital of France is Paris and hello to you " * 4)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    return tmp_path / "instructions"


@contextmanager
def started(folder: Path, kv_cache_dtype: CacheType = "auto") -> Iterator[Engine]:
    engine = Engine(lambda: load_model(folder, device="cpu", precision="int8", kv_cache_dtype=kv_cache_dtype))
    try:
        yield engine
    finally:
        engine.close()


def respond(conversation: Conversation) -> tuple[int, str]:
    """How many tokens need not be read, and the response."""
    progress = asyncio.run(collect_progress(conversation, INSTRUCTIONS, HELLO, max_tokens=9))
    return progress[0].cached_tokens, committed_text(progress)


def cached_tokens(folder: Path, *, keep: bool = True) -> int:
    """How many tokens the first conversation of a new start need not read."""
    with started(folder) as engine:
        return respond(Conversation(engine, keep_instructions=keep))[0]


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8"])
def test_the_next_start_has_the_same_bits_and_generates_the_same_text(
    varied_qwen2: Path, kv_cache_dtype: CacheType
) -> None:
    with started(varied_qwen2, kv_cache_dtype) as engine:
        question = engine.model.template.encode([INSTRUCTIONS, HELLO], add_generation_prompt=False)
        empty = engine.model.template.encode([INSTRUCTIONS, Message("user", "")], add_generation_prompt=False)
        num_shared = next(n for n, (one, other) in enumerate(zip(question, empty, strict=False)) if one != other)
        reading = Conversation(engine, keep_instructions=True)
        none, text = respond(reading)
        read = [tensor[:, :num_shared].clone() for tensor in reading._cache.tensors()]
    with started(varied_qwen2, kv_cache_dtype) as engine:
        copying = Conversation(engine)
        assert (none, *respond(copying)) == (0, num_shared, text)
        copied = [tensor[:, :num_shared] for tensor in copying._cache.tensors()]
        assert all(torch.equal(one, two) for one, two in zip(read, copied, strict=True))


def test_what_a_user_or_a_client_has_written_is_not_kept(varied_qwen2: Path, files: Path) -> None:
    cached_tokens(varied_qwen2, keep=False)
    assert not files.exists()


def test_other_weights_read_the_instructions_again(varied_qwen2: Path, tiny_qwen2: Path) -> None:
    assert cached_tokens(varied_qwen2) == cached_tokens(tiny_qwen2) == 0


def test_a_damaged_file_is_ignored_and_written_again(varied_qwen2: Path, files: Path) -> None:
    assert cached_tokens(varied_qwen2) == 0
    (file,) = files.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert cached_tokens(varied_qwen2) == 0
    assert cached_tokens(varied_qwen2) > 0


def test_the_oldest_make_room(varied_qwen2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_prefixes, "_MAX_TOKENS", 50)
    with started(varied_qwen2) as engine:
        new_cache = engine.model.decoder.new_cache

        def kept() -> list[int]:
            return [len(tokens) for tokens in KeptPrefixes(("key",), new_cache).caches]

        for count in (10, 20, 30, 60, 12):
            cache = new_cache()
            cache.reserve(count)
            cache.commit([*range(count)])
            KeptPrefixes(("key",), new_cache).keep(cache)
    assert kept() == [30, 12]

"""Models are found by path or on a hub, and what was downloaded runs without network, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest
from rich.console import Console
from tokenizers import Tokenizer

from model.checkpoint import long_context
from model.hub.transfer import ModelUnavailable
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine, locate_model
from tests.conftest import save_tiny_checkpoint
from tests.model.gguf_files import write_gguf
from tests.model.hub.hub_client import run_program
from tests.model.hub.hub_server import Repository, running_hub

ROOT = Path(__file__).parents[3]

LOGITS = """
import server.openmp
import sys
from rich.console import Console
from server.serving.runtime import load_engine
from server.serving.options import ModelOptions

for name in sys.argv[1:]:
    engine = load_engine(ModelOptions(model=name, device="cpu", precision="float32"), Console(stderr=True))
    decoder, tokens = engine.model.decoder, engine.model.tokenizer.encode("the capital of France")
    logits = engine.call(lambda model: decoder.forward(tokens, decoder.new_cache(), logits="last"))
    print(logits.tolist())
    engine.close()
"""


def test_a_model_from_the_hub_runs_like_the_local_one_also_offline(
    tmp_path: Path, tiny_qwen2: Path, tiny_tokenizer: Tokenizer
) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    first = write_gguf(tiny_qwen2, tmp_path / "tiny-Q8_0.gguf", tiny_tokenizer, kind, tensors_per_part=20)
    files = {path.name: path.read_bytes() for path in (*first.parent.glob("*.gguf"), *tiny_qwen2.iterdir())}
    with running_hub() as hub:
        hub.repositories["org/tiny"] = Repository()
        hub.repositories["org/tiny"].commit(files)

        def logits(*names: str, **variables: str) -> list[str]:
            return run_program(hub, tmp_path, LOGITS, *names, **variables)

        online = logits("org/tiny", "org/tiny:safetensors", str(first), str(tiny_qwen2))
        assert online[:2] == online[2:] and online[0] != online[1]
        hub.requests.clear()
        assert logits("org/tiny", "org/tiny:safetensors", HF_HUB_OFFLINE="1") == online[:2]
        assert hub.requests == []


def test_a_local_folder_wins_over_a_hub_model_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org/model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert locate_model("org/model", Console()) == Path("org/model")


def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    for name in (str(tmp_path / "absent.gguf"), "models/absent.gguf", "a/b/c"):
        with pytest.raises(ModelUnavailable, match="there is no model at"):
            locate_model(name, Console())


def test_a_long_context_is_announced_with_its_memory_and_never_longer_than_the_model_was_trained_on(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, "qwen2", max_position_embeddings=8192)
    console = Console(record=True, width=200)
    engine = load_engine(ModelOptions(model=str(folder), device="cpu", precision="float32", context=8192), console)
    engine.close()
    size = 8192 * 2 * 3 * 2 * 16 * 4  # keys and values, layers, heads, their size, bytes
    assert engine.context == 8192
    assert f"8,192 tokens takes {size / 1e9:.1f} GB" in console.export_text()
    with pytest.raises(ValueError, match="trained on 8,192 tokens"):
        load_engine(ModelOptions(model=str(folder), device="cpu", precision="float32", context=8193), console)


def test_a_context_beyond_the_trained_length_is_announced_with_how_it_is_reached(
    tmp_path: Path, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, "qwen2", max_position_embeddings=32_768)
    settings = json.loads((folder / "config.json").read_text())
    size = ("qwen2", settings["hidden_size"], settings["num_hidden_layers"])
    console = Console(record=True, width=250)
    options = ModelOptions(model=str(folder), device="cpu", precision="int8", context=40_000, kv_cache_dtype="int8")
    for table, words in (("_PROMISED", "YaRN as its card describes"), ("_NOT_PROMISED", "promises no more")):
        with monkeypatch.context() as patched:
            patched.setattr(long_context, table, {size})
            engine = load_engine(options, console)
            engine.close()
            assert engine.context == 40_000
            assert words in console.export_text()
            with pytest.raises(ValueError, match="positions scaled, 131,072 tokens: choose a --context of at most"):
                load_engine(options.model_copy(update={"context": 131_073}), console)
    with pytest.raises(ValueError, match="trained on 32,768 tokens"):
        load_engine(options, console)

"""A trained prefix: it begins as the text that it stands for, its training falls in loss and resumes, and conversations
that begin with it use it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch
from tokenizers import Tokenizer

from chat.types import Ask, Message
from lab.convert.conversations import encode_responses
from lab.convert.corpus import TrainingText
from lab.convert.text_training import PackedTexts, TextTrainingConfig, packed_states
from lab.convert.train_prefix import PrefixTraining, read_prefix, share_right
from lab.convert.training import TrainingProgress
from model.checkpoint.gguf import BadModelFile
from model.engine.bundled import bundled, weights_checksum, weights_size
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.nn.forward_batch import text_input
from model.nn.kv_cache import KeyValueCache
from model.nn.trained_prefix import load_trained_prefix
from tests.model.gguf_files import write_gguf
from tests.model.nn.int8_records import dequantized

INSTRUCTIONS = Message("system", "hello to you and hello to you")
ANSWERS = ("Paris", "the capital", "hello", "France is the capital", "you", "to you")


def texts_of(model: LoadedModel) -> list[TrainingText]:
    return [
        text
        for answer in ANSWERS
        for text in encode_responses(
            [INSTRUCTIONS, Message("user", f"{answer} and"), Message("assistant", answer)],
            model.template,
            model.stop_tokens,
        )
    ]


def prefix_of(model: LoadedModel) -> list[int]:
    return model.template.encode([INSTRUCTIONS], add_generation_prompt=False)


def training(model: LoadedModel, file: Path, epochs: float = 4, rate: float = 3e-2) -> PrefixTraining:
    config = TextTrainingConfig(epochs, texts=2, rate=rate)
    return PrefixTraining(model.decoder, prefix_of(model), texts_of(model), "base", "data", config, file)


def test_untrained_it_is_the_text(model: LoadedModel) -> None:
    decoder, prefix = model.decoder, prefix_of(model)
    keys, values = read_prefix(decoder, prefix)
    [text] = texts_of(model)[:1]
    after = TrainingText(
        text.tokens[len(prefix) :], tuple((a - len(prefix), b - len(prefix)) for a, b in text.spans), "own"
    )
    packed = PackedTexts.of([after], decoder.device)
    with torch.no_grad():
        states = packed_states(decoder, packed, prefix=list(zip(keys, values, strict=True)))
    [whole] = decoder.run([text_input(decoder.new_cache(), text.tokens, len(text.tokens), return_hidden_states=True)])
    torch.testing.assert_close(states, whole[len(prefix) :], atol=1e-4, rtol=1e-4)


def test_the_loss_falls_and_programs_become_right(model: LoadedModel, tmp_path: Path) -> None:
    log: list[TrainingProgress] = []
    trained = training(model, tmp_path / "state", epochs=40)
    before = share_right(trained, texts_of(model))
    assert trained.run(log.append)
    assert sum(one.loss for one in log[-6:]) < sum(one.loss for one in log[:6]) * 0.7
    assert share_right(trained, texts_of(model)) > before


def test_an_interrupted_training_resumes_exactly(model: LoadedModel, tmp_path: Path) -> None:
    whole = training(model, tmp_path / "whole")
    whole.run(lambda progress: None)
    for _ in range(4):
        stops = iter((False, False, False, True))
        sliced = training(model, tmp_path / "slices")
        finished = sliced.run(lambda progress: None, lambda stops=stops: next(stops))
    assert finished
    assert torch.equal(sliced.prefix({}).keys, whole.prefix({}).keys)
    assert torch.equal(sliced.prefix({}).values, whole.prefix({}).values)


def test_the_first_token_stays_as_it_was(model: LoadedModel, tmp_path: Path) -> None:
    keys, _ = read_prefix(model.decoder, prefix_of(model))
    trained = training(model, tmp_path / "state")
    trained.run(lambda progress: None)
    assert torch.equal(trained.prefix({}).keys[:, :, 0], keys[:, :, 0])
    assert not torch.equal(trained.prefix({}).keys, keys)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_a_cache_holds_it_in_its_own_format(dtype: torch.dtype, model: LoadedModel) -> None:
    config, prefix = model.decoder.config, prefix_of(model)
    keys, values = read_prefix(model.decoder, prefix)
    cache = KeyValueCache(config, dtype, torch.device("cpu"))
    cache.load(prefix, keys, values)
    assert cache.tokens == prefix
    kept = [tensor[:, : len(prefix)] for tensor in cache.tensors()]
    if dtype == torch.int8:
        kept = [dequantized(records, config.head_dim) for records in kept]
    torch.testing.assert_close(
        torch.stack(kept), torch.cat([keys, values]), atol=0.05 if dtype == torch.int8 else 0, rtol=0
    )


async def test_a_conversation_that_begins_with_it_uses_it(
    model: LoadedModel, tiny_qwen2: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    base = write_gguf(tiny_qwen2, tmp_path / "base.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.Q8_0)
    sha, file = weights_checksum(base), tmp_path / "prefixes" / "base.safetensors"
    file.parent.mkdir()
    loaded = load_model(base, device="cpu", precision="float32")
    [text] = encode_responses(
        [INSTRUCTIONS, Message("user", "the capital of France"), Message("assistant", "hello Paris")],
        loaded.template, loaded.stop_tokens,
    )  # fmt: skip
    config = TextTrainingConfig(200, texts=2, rate=0.2)
    trained = PrefixTraining(loaded.decoder, prefix_of(loaded), [text] * 2, sha, "", config, tmp_path / "s")
    trained.run(lambda progress: None)
    trained.prefix({"base_bytes": str(weights_size(base))}).save(file, sha)
    found = bundled(base, loaded.decoder.config, file.parent, load_trained_prefix)
    assert found is not None and found.tokens == tuple(prefix_of(loaded))
    said = []
    for choice in ("none", file):
        engine = Engine(lambda choice=choice: load_model(base, device="cpu", program_prefix=choice))
        try:
            text = ""
            async for progress in Conversation(engine).reply(
                Ask([INSTRUCTIONS, Message("user", "the capital of France")], max_tokens=4)
            ):
                text += progress.committed
            said.append(text)
        finally:
            engine.close()
    assert said[0] != said[1] == "hello Paris"


def test_a_file_for_other_weights_or_of_another_shape_is_refused(model: LoadedModel, tmp_path: Path) -> None:
    trained = training(model, tmp_path / "state").prefix({})
    trained.save(tmp_path / "prefix.safetensors", "ab" * 32)
    config = model.decoder.config
    assert load_trained_prefix(tmp_path / "prefix.safetensors", config, "ab" * 32).tokens == trained.tokens
    with pytest.raises(BadModelFile, match="was made for weights"):
        load_trained_prefix(tmp_path / "prefix.safetensors", config, "cd" * 32)
    with pytest.raises(BadModelFile, match="another shape"):
        load_trained_prefix(tmp_path / "prefix.safetensors", replace(config, layers=config.layers + 1), "ab" * 32)

"""A draft head learns to predict a tiny model from that model's own responses and states."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from lab.convert.evaluate import evaluation_prompts
from lab.convert.generate_states import StateShard, generate_shard, invent_questions, load_shard
from lab.convert.spoken_prompts import follow_up, spoken_prompts
from lab.convert.tool_prompts import TOOL_KINDS, TOOL_SETS
from lab.convert.train_draft_head import HeadTraining, HeadTrainingConfig, choose_vocabulary
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.engine.loader import LoadedModel, load_model, output_rows
from model.nn.draft_head import load_draft_head
from model.nn.forward_batch import num_features
from tests.conftest import save_tiny_checkpoint
from tests.model.dialogues import with_doubled_weights

CONFIG = HeadTrainingConfig(epochs=16, size=64, inner=32, vocabulary=250, batch=96, drafts=2, rate=3e-3, dropout=0.0)


def test_features_end_with_the_states_that_the_output_head_reads(varied_model: LoadedModel, shard: StateShard) -> None:
    hidden = varied_model.decoder.config.hidden
    assert shard.features.shape == (len(shard.tokens), num_features(varied_model.decoder.config))
    predicted = varied_model.decoder.head(shard.features[:, -hidden:].float()).argmax(-1)
    assert float((predicted == shard.tokens).float().mean()) > 0.95, "the features are rounded to float16"


def test_a_head_learns_what_it_is_trained_on(
    varied_model: LoadedModel, folder: Path, shard: StateShard, tmp_path: Path
) -> None:
    """The held-out responses occur in the second shard as well: other random text has nothing in common with them."""
    checkpoint, config = open_checkpoint(folder), varied_model.decoder.config
    training = HeadTraining(
        [shard, shard], varied_model.decoder.embedding, lambda tokens: output_rows(checkpoint, tokens),
        config.vocab_size, CONFIG,
    )  # fmt: skip
    regression, losses = training.probe()["all"], []
    training.run(lambda progress: losses.append(progress.loss))
    trained = training.probe()["chat"]
    assert trained[0] > regression[0] + 0.05 and trained[0] >= trained[1] > regression[1]
    assert losses[-1] < losses[0]
    training.weights("base", 1).save(tmp_path / "head.safetensors")
    loaded = load_draft_head(tmp_path / "head.safetensors", config, "base")
    assert loaded.acceptance == trained
    assert loaded.vocabulary.tolist() == training.vocabulary.tolist()


def test_prompts_are_varied_and_never_those_of_the_evaluation() -> None:
    made = list(islice(spoken_prompts(1, "own instructions", [("chat", "Why is invented?")]), 3000))
    assert {prompt.kind for prompt in made} == {"chat", "list", "numbers", "json", *TOOL_KINDS}
    asked = {message.content for prompt in made for message in prompt.messages if message.role == "user"}
    assert len(asked) > 1000 and "Why is invented?" in asked and not any("{" in text for text in asked)
    assert all(bool(prompt.tools) == (prompt.kind in TOOL_KINDS) for prompt in made)
    assert {tool["function"]["name"] for prompt in made for tool in prompt.tools} == {
        tool.name for each in TOOL_SETS for tool in each.tools
    }
    own = sum(prompt.messages[0].content == "own instructions" for prompt in made) / len(made)
    assert 0.3 < own < 0.6
    assert not asked & {prompt.text for prompt in evaluation_prompts()}
    assert list(islice(spoken_prompts(1, "own instructions", [("chat", "Why is invented?")]), 3000)) == made
    longer = follow_up(made[0], "Because.", random.Random(1))
    assert [message.role for message in longer.messages] == ["system", "user", "assistant", "user"]


def test_a_shard_depends_on_its_seed_only(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder = save_tiny_checkpoint(tmp_path / "long", tiny_tokenizer, "qwen2", max_position_embeddings=4096)
    (tmp_path / "varied").mkdir()
    model = load_model(with_doubled_weights(folder, tmp_path / "varied"), device="cpu", precision="int8")

    def generate(name: str, seed: int) -> StateShard:
        return generate_shard(model, "base", tmp_path / name, "You are a test.", seed, tokens=200)

    first, again, other = generate("1", 1), generate("2", 1), generate("3", 2)
    for one in (again, load_shard(tmp_path / "1", "base")):
        assert torch.equal(one.tokens, first.tokens) and torch.equal(one.features, first.features)
    assert not torch.equal(other.tokens[:50], first.tokens[:50])
    assert len(first.kinds) == len(first.ends) and int(first.ends[-1]) == len(first.tokens) == len(first.features)
    assert len(first.tokens) >= 200
    with pytest.raises(BadModelFile, match="generate them again"):
        load_shard(tmp_path / "1", "other")
    assert all(kind in ("chat", "list", "numbers") for kind, _ in invent_questions(model, 1, ["cats", "dogs"]))


def test_the_vocabulary_is_what_occurs_most() -> None:
    tokens = torch.tensor([7, 7, 7, 3, 3, 9])
    assert choose_vocabulary(tokens, 2, 20).tolist() == [3, 7]
    assert choose_vocabulary(tokens, 5, 20).tolist() == [0, 1, 3, 7, 9]

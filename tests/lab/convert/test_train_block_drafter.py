"""A block drafter learns to fill masks in a tiny model's own text, and an interrupted training goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lab.convert.generate_states import StateShard
from lab.convert.train_block_drafter import BlockTraining, BlockTrainingConfig
from lab.convert.train_draft_head import HeadTraining, HeadTrainingConfig
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.engine.loader import LoadedModel, output_rows
from model.nn.block_drafter import load_block_drafter
from model.nn.draft_head import DraftHeadWeights, drafts_of

HEAD = HeadTrainingConfig(epochs=6, size=256, inner=64, vocabulary=250, batch=96, drafts=2, rate=3e-3, dropout=0.0)
CONFIG = BlockTrainingConfig(steps=60, rows=3, batch=96, rate=3e-3, dropout=0.0)


@pytest.fixture(scope="module")
def head(varied_model: LoadedModel, folder: Path, shard: StateShard) -> DraftHeadWeights:
    checkpoint = open_checkpoint(folder)
    training = HeadTraining(
        [shard, shard], varied_model.decoder.embedding, lambda tokens: output_rows(checkpoint, tokens),
        varied_model.decoder.config.vocab_size, HEAD,
    )  # fmt: skip
    training.run(lambda progress: None)
    return training.weights("base", 1)


def new_training(
    varied_model: LoadedModel, folder: Path, shard: StateShard, head: DraftHeadWeights, state: Path | None = None
) -> BlockTraining:
    rows = output_rows(open_checkpoint(folder), head.vocabulary)
    return BlockTraining([shard, shard], varied_model.decoder.embedding, head, rows, CONFIG, state)


def test_masks_learn_what_follows(
    varied_model: LoadedModel,
    folder: Path,
    shard: StateShard,
    head: DraftHeadWeights,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = varied_model.decoder.config
    monkeypatch.setattr("lab.convert.train_block_drafter.CANDIDATES", 2)  # otherwise the head chooses among all
    training, losses = new_training(varied_model, folder, shard, head), list[float]()
    before = training.probe(1)["all"]
    training.run(lambda progress: losses.append(progress.loss))
    after = training.probe(1)["all"]
    assert after[0] >= before[0] - 0.02 and after[1] > before[1] and losses[-1] < losses[0]
    assert training.probe(3)["all"][1] >= after[1] - 0.05
    training.weights().save(tmp_path / "drafter.safetensors")
    assert drafts_of(tmp_path / "drafter.safetensors") == "diffusion"
    loaded = load_block_drafter(tmp_path / "drafter.safetensors", config, "base")
    assert loaded.acceptance[0] == after and len(loaded.acceptance) == 3 and loaded.block == CONFIG.rows
    head.save(tmp_path / "head.safetensors")
    with pytest.raises(BadModelFile, match="no block drafter"):
        load_block_drafter(tmp_path / "head.safetensors", config, "base")


def test_an_interrupted_training_goes_on(
    varied_model: LoadedModel, folder: Path, shard: StateShard, head: DraftHeadWeights, tmp_path: Path
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(progress: object) -> None:
        if len(steps) == 20:
            raise Interrupted
        steps.append(progress)

    steps: list[object] = []
    whole = new_training(varied_model, folder, shard, head)
    whole.run(lambda progress: None)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr("lab.convert.training._SAVE_EVERY_S", 0.0)
        new_training(varied_model, folder, shard, head, tmp_path / "state").run(interrupt)
    again, more = new_training(varied_model, folder, shard, head, tmp_path / "state"), []
    again.run(more.append)
    assert len(more) == CONFIG.steps - 20
    for name, tensor in whole.tensors.items():
        assert torch.allclose(again.tensors[name], tensor, atol=1e-5), name


def test_a_training_on_another_text_begins_again(
    varied_model: LoadedModel, folder: Path, shard: StateShard, head: DraftHeadWeights, tmp_path: Path
) -> None:
    new_training(varied_model, folder, shard, head, tmp_path / "state").run(lambda progress: None)
    other, steps = shard.part(0, len(shard.ends) - 1), list[object]()
    new_training(varied_model, folder, other, head, tmp_path / "state").run(steps.append)
    assert len(steps) == CONFIG.steps

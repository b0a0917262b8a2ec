"""Training an adapter on a tiny model: it learns, and an interrupted training resumes exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lab.convert.corpus import Corpus
from lab.convert.train_adapter import AdapterProgress, AdapterTraining, TrainingConfig
from model.checkpoint.gguf import BadModelFile
from model.engine.bundled import bundled, weights_checksum, weights_size
from model.engine.loader import LoadedModel
from model.nn.adapter import Adapter, load_adapter
from tests.lab.convert.tiny_corpus import tiny_corpus


def trained(model: LoadedModel, corpus: Corpus, config: TrainingConfig, folder: Path) -> Adapter:
    training = AdapterTraining(model, corpus, config, folder)
    training.run()
    return training.adapter()


def test_an_adapter_learns_is_saved_and_loaded_and_rejected_for_other_weights(
    model: LoadedModel, tiny_qwen2: Path, tmp_path: Path
) -> None:
    corpus = replace(tiny_corpus(model, 48), base=weights_checksum(tiny_qwen2))
    log: list[AdapterProgress] = []
    config = TrainingConfig(
        None, 120, rank=8, texts=4, rows=16, curriculum=((0.0, 2),), rate=1e-2, whole_vocabulary=True
    )
    size = weights_size(tiny_qwen2)
    AdapterTraining(model, corpus, config, tmp_path, size).run(log.append)
    assert log[-1].variation < log[0].variation * 0.8
    assert log[-1].acceptance is not None and log[0].acceptance is not None
    assert log[-1].acceptance[0] > log[0].acceptance[0] + 0.1
    path = tmp_path / "adapter.safetensors"
    adapter = load_adapter(path, model.decoder.config, corpus.base)
    assert adapter.acceptance == log[-1].acceptance
    assert json.loads(adapter.metadata["recipe"])["rank"] == 8
    found = bundled(tiny_qwen2, model.decoder.config, tmp_path, load_adapter)
    assert found is not None and torch.equal(found.mask, adapter.mask)
    with pytest.raises(BadModelFile, match="was made for weights with sha256"):
        load_adapter(path, model.decoder.config, "other")
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 121))


def test_an_interrupted_training_resumes_exactly(model: LoadedModel, tmp_path: Path) -> None:
    corpus = tiny_corpus(model, 24)
    config = TrainingConfig(None, 8, rank=4, texts=4, rows=12, curriculum=((0.0, 2), (0.5, 3)))
    uninterrupted = trained(model, corpus, config, tmp_path / "whole")

    class Interrupted(Exception):
        pass

    def interrupt(progress: AdapterProgress) -> None:
        if progress.step == 5:
            raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lab.convert.training._SAVE_EVERY_S", 0.0)
        with pytest.raises(Interrupted):
            AdapterTraining(model, corpus, config, tmp_path / "twice").run(interrupt)
    resumed = trained(model, corpus, config, tmp_path / "twice")
    for one, two in zip(uninterrupted.layers, resumed.layers, strict=True):
        for name in one:
            assert torch.equal(one[name].a, two[name].a)
            assert torch.equal(one[name].b, two[name].b)
    with pytest.raises(BadModelFile, match="other settings \\(seed\\)"):
        AdapterTraining(model, corpus, replace(config, seed=2), tmp_path / "twice").run()


def test_a_training_in_slices_equals_one_without_a_stop(model: LoadedModel, tmp_path: Path) -> None:
    """A machine may be lent for some minutes at a time."""
    corpus = tiny_corpus(model, 24)
    config = TrainingConfig(None, 6, rank=4, texts=4, rows=12)
    whole = trained(model, corpus, config, tmp_path / "whole")
    for _ in range(3):
        steps = iter((False, False, True))
        training = AdapterTraining(model, corpus, config, tmp_path / "slices")
        finished = training.run(probe_every=None, is_over=lambda steps=steps: next(steps))
    assert finished
    assert json.loads((tmp_path / "slices" / "log.jsonl").read_text().splitlines()[-1])["step"] == 6
    for one, two in zip(whole.layers, training.adapter().layers, strict=True):
        assert all(torch.equal(one[name].a, two[name].a) and torch.equal(one[name].b, two[name].b) for name in one)


def test_restarting_a_finished_training_gives_the_same_adapter(model: LoadedModel, tmp_path: Path) -> None:
    corpus, config = tiny_corpus(model, 24), TrainingConfig(None, 3, rank=4, texts=4, rows=12)
    first = trained(model, corpus, config, tmp_path)
    assert first.acceptance
    assert trained(model, corpus, config, tmp_path).metadata == first.metadata


def test_a_state_saved_before_a_setting_existed_can_be_resumed(model: LoadedModel, tmp_path: Path) -> None:
    corpus, config = tiny_corpus(model, 24), TrainingConfig(None, 2, rank=4, texts=4, rows=12)
    AdapterTraining(model, corpus, config, tmp_path).run()
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    older = {key: value for key, value in state["purpose"].items() if key not in ("variation", "decay")}
    torch.save({**state, "purpose": older}, tmp_path / "state.pt")
    assert trained(model, corpus, replace(config, steps=3), tmp_path).metadata["steps"] == "3"
    torch.save({**state, "purpose": older}, tmp_path / "state.pt")
    with pytest.raises(BadModelFile, match="other settings \\(decay\\)"):
        AdapterTraining(model, corpus, replace(config, decay=1.0), tmp_path).run()


def test_held_out_text_is_evaluated_only_at_the_end_if_requested(model: LoadedModel, tmp_path: Path) -> None:
    log: list[AdapterProgress] = []
    config = TrainingConfig(None, 3, rank=4, texts=4, rows=12)
    AdapterTraining(model, tiny_corpus(model, 24), config, tmp_path).run(log.append, probe_every=None)
    assert [progress.acceptance is not None for progress in log] == [False, False, True]

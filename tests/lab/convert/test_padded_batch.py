"""Padded batches: lengths are multiples of 64 on a GPU, and padding changes no result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lab.convert.padded_batch import PaddedBatch, padded_length
from lab.convert.train_adapter import AdapterProgress, AdapterTraining, TrainingConfig
from model.engine.loader import LoadedModel
from tests.lab.convert.tiny_corpus import TOKENS, tiny_corpus


def pad_as_on_a_gpu(length: int, device: torch.device) -> int:
    """`padded_length` as it is on a GPU, whatever the device."""
    return padded_length(length, torch.device("cuda"))


@pytest.mark.parametrize(("length", "padded"), [(1, 64), (64, 64), (65, 128)])
def test_a_gpu_sees_lengths_that_are_multiples_of_64(length: int, padded: int) -> None:
    assert padded_length(length, torch.device("cuda")) == padded
    assert padded_length(length, torch.device("cpu")) == length


def test_a_slot_is_padded_as_far_as_the_context_allows(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.convert.padded_batch.padded_length", pad_as_on_a_gpu)
    context = model.decoder.config.context_length
    assert PaddedBatch(model.decoder, 1, 70).max_length == 128
    assert PaddedBatch(model.decoder, 1, context - 1).max_length == context
    with pytest.raises(ValueError, match="do not fit into the model's context"):
        PaddedBatch(model.decoder, 1, context + 1)


def test_padding_does_not_change_the_states_of_a_text(model: LoadedModel) -> None:
    starts = torch.zeros(1, dtype=torch.long)
    plain = PaddedBatch(model.decoder, 1, 41).forward(torch.tensor([TOKENS]), starts)
    padded_tokens = torch.tensor([[*TOKENS, *[0] * (64 - len(TOKENS))]])
    padded = PaddedBatch(model.decoder, 1, 64).forward(padded_tokens, starts)
    torch.testing.assert_close(padded[:, : len(TOKENS)], plain, atol=1e-5, rtol=1e-5)


def test_padding_does_not_change_the_training(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, config = tiny_corpus(model, 24), TrainingConfig(None, 4, rank=4, texts=4, rows=12)
    losses: list[list[float]] = []
    for folder in ("plain", "padded"):
        log: list[AdapterProgress] = []
        AdapterTraining(model, corpus, config, tmp_path / folder).run(log.append, probe_every=None)
        losses.append([progress.loss for progress in log])
        monkeypatch.setattr("lab.convert.padded_batch.padded_length", pad_as_on_a_gpu)
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)

"""Tuning a tiny model: it learns the responses and nothing else, and an interrupted training resumes exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy

from chat.types import Ask, Message
from lab.convert import text_training
from lab.convert.conversations import encode_responses
from lab.convert.corpus import TrainingText
from lab.convert.text_training import PackedTexts, packed_states
from lab.convert.training import TrainingProgress
from lab.convert.tune import Tuning, TuningConfig
from lab.convert.write_tuned import write_tuned
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.nn.adapter import random_adapter
from model.nn.forward_batch import text_input
from tests.model.gguf_files import write_gguf


def texts_of(model: LoadedModel) -> list[TrainingText]:
    answers = ("Paris", "the capital", "hello", "France is the capital", "you", "to you")
    return [
        text
        for answer in answers
        for text in encode_responses(
            [
                Message("system", "hello to you"),
                Message("user", f"{answer} and"),
                Message("assistant", answer),
                Message("user", "the capital of"),
                Message("assistant", f"is {answer}"),
            ],
            model.template,
            model.stop_tokens,
        )
    ]


def tuning(model: LoadedModel, file: Path, **settings: float) -> Tuning:
    config = replace(TuningConfig(epochs=4, rank=4, texts=2, rate=1e-2), **settings)
    return Tuning(model.decoder, texts_of(model), "base", "data", config, file)


def test_the_loss_falls(model: LoadedModel, tmp_path: Path) -> None:
    log: list[TrainingProgress] = []
    assert tuning(model, tmp_path / "state", epochs=12).run(log.append)
    assert [progress.step for progress in log] == [*range(1, 37)]
    assert sum(progress.loss for progress in log[-3:]) < sum(progress.loss for progress in log[:3]) * 0.7


def test_packed_texts_have_the_states_that_each_has_alone(model: LoadedModel) -> None:
    texts, decoder = texts_of(model), model.decoder
    packed = PackedTexts.of(texts, decoder.device)
    assert len(packed.tokens) < sum(len(text.tokens) for text in texts), "the instructions are there once"
    untrained = random_adapter(decoder.config, 2, 0, 1, b_std=0.0)
    with torch.no_grad():
        states = packed_states(decoder, packed, untrained)[packed.rows]
    alone, targets = [], []
    for text in texts:
        [rows] = decoder.run(
            [text_input(decoder.new_cache(), text.tokens, len(text.tokens), return_hidden_states=True)]
        )
        for begin, end in text.spans:
            alone.append(rows[begin - 1 : end - 1])
            targets += text.tokens[begin:end]
    torch.testing.assert_close(states, torch.cat(alone), atol=1e-4, rtol=1e-4)
    assert packed.targets.tolist() == targets


def test_a_step_s_loss_is_the_cross_entropy_of_the_responses(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, log = texts_of(model), list[TrainingProgress]()
    losses = []
    for text in texts:
        [logits] = model.decoder.run([text_input(model.decoder.new_cache(), text.tokens, len(text.tokens))])
        ids = torch.tensor(text.tokens)
        losses += [
            cross_entropy(logits[begin - 1 : end - 1], ids[begin:end], reduction="none") for begin, end in text.spans
        ]
    monkeypatch.setattr(text_training, "_BATCH_TOKENS", 60)  # several forward passes a step
    tuning(model, tmp_path / "state", epochs=1, texts=len(texts)).run(log.append)
    assert log[0].loss == pytest.approx(float(torch.cat(losses).mean()), rel=1e-4)


def test_every_text_is_used_once_an_epoch(model: LoadedModel, tmp_path: Path) -> None:
    training = tuning(model, tmp_path / "state", texts=4)
    used = []
    for step in range(training._epoch_steps):
        training._step = step
        used += training._select_texts()
    assert sorted(text.tokens for text in used) == sorted(text.tokens for text in texts_of(model))


def test_an_interrupted_training_resumes_exactly(model: LoadedModel, tmp_path: Path) -> None:
    whole = tuning(model, tmp_path / "whole")
    whole.run(lambda progress: None)
    for _ in range(4):
        stops = iter((False, False, False, True))
        sliced = tuning(model, tmp_path / "slices")
        finished = sliced.run(lambda progress: None, lambda stops=stops: next(stops))
    assert finished
    expected = whole.updates()
    for name, (b, a) in sliced.updates().items():
        assert torch.equal(b, expected[name][0]) and torch.equal(a, expected[name][1])
    with pytest.raises(BadModelFile, match="other settings \\(rank\\)"):
        tuning(model, tmp_path / "slices", rank=2)
    (tmp_path / "slices").write_bytes(b"x")
    with pytest.raises(BadModelFile, match="remove it to start over"):
        tuning(model, tmp_path / "slices")


async def test_a_tuned_model_says_what_it_was_taught(
    model: LoadedModel, tiny_qwen2: Path, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    base = write_gguf(tiny_qwen2, tmp_path / "base.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.Q8_0)
    question = [Message("user", "the capital of France")]
    texts = encode_responses([*question, Message("assistant", "hello Paris")], model.template, model.stop_tokens)
    training = Tuning(
        model.decoder, texts * 2, "ab" * 32, "", TuningConfig(40, texts=2, rate=1e-2, rank=4), tmp_path / "s"
    )
    training.run(lambda progress: None)
    tuned = write_tuned(open_checkpoint(base), training.updates(), "ab" * 32, tmp_path)
    said = []
    for path in (base, tuned):
        engine = Engine(lambda path=path: load_model(path, device="cpu"))
        try:
            text = ""
            async for progress in Conversation(engine).reply(Ask(question, max_tokens=8)):
                text += progress.committed
            said.append(text)
        finally:
            engine.close()
    assert said[0] != "hello Paris" and said[1] == "hello Paris"

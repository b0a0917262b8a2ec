"""Training a turn completion classifier: labelled sentences, hidden states, and the fit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from chat.types import Message
from lab.convert import train_turn_completion as training
from lab.convert.corpus import Corpus, TrainingText
from model.engine.loader import LoadedModel
from model.engine.turn_completion import TurnCompletionClassifier, user_turn_prefix
from model.nn.forward_batch import text_input


def test_a_prefix_that_is_complete_in_one_text_is_not_labelled_unfinished_in_another() -> None:
    messages = [
        "What is the capital of France?",
        "What is it about this song?",
        "How long is it?",
        "How long is it now?",
    ]
    texts = {text.origin: text.words for text in training.labelled_texts(messages, seed=1)}
    assert [ends for _, ends in texts["What is the capital of France?"]][:5:2] == [False] * 3
    assert texts["How long is it now?"][3] == ("it", None)
    assert texts["How long is it?"][-1] == ("it", True)


def test_a_rule_is_learned_from_hidden_states(model: LoadedModel, tiny_qwen2: Path) -> None:
    """With a random model and the rule that a text is complete if it ends with `you`."""
    draw = random.Random(2)
    texts = []
    for number in range(400):
        words = [draw.choice(("hello", "to", "you", "Paris", "is")) for _ in range(draw.randrange(2, 6))]
        texts.append(training.LabelledText(str(number), [(word, word == "you") for word in words]))
    training_texts, held_out = training.split_by_origin(texts, 0.25, seed=1)
    assert len(held_out) == 100
    weight, bias = training.fit_logistic_regression(*training.hidden_states_of(model, training_texts), 1e-3)
    states, complete = training.hidden_states_of(model, held_out)
    metrics = training.measure(TurnCompletionClassifier(weight, bias, "base", {})(states), complete)
    assert metrics.auc > 0.99 and metrics.accuracy > 0.95 and metrics.recall > 0.95


def test_the_hidden_states_of_many_texts_match_those_of_each_text_alone(model: LoadedModel) -> None:
    texts = [
        training.LabelledText("", [(word, True) for word in "the capital of france".split()[:n]]) for n in (1, 3, 4)
    ] * 40
    states, complete = training.hidden_states_of(model, texts)
    assert len(states) == len(complete) == 8 * 40
    ids = user_turn_prefix(model.template) + model.tokenizer.encode("the capital of france")
    (alone,) = model.decoder.run([text_input(model.decoder.new_cache(), ids, 1, return_hidden_states=True)])
    torch.testing.assert_close(states[7], alone[0])
    torch.testing.assert_close(states[-1], alone[0])


def test_training_uses_user_messages_and_measures_the_classifier(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.convert.spoken_templates._USES", 1)
    messages = [Message("system", "Paris"), Message("user", "(1) no"), Message("assistant", "Is it?")]
    messages.append(Message("user", "Paris is\nIs hello to you the capital of France?"))
    ids = model.template.encode(messages, add_generation_prompt=False)
    corpus = Corpus((TrainingText(tuple(ids), (), "chat"),), "base", {})
    assert training.user_sentences(corpus, model) == ["Is hello to you the capital of France?"]
    without_chatml = Corpus((TrainingText(tuple(model.tokenizer.encode("Is it Paris?")), (), "chat"),), "base", {})
    assert training.user_sentences(without_chatml, model) == []
    classifier, metrics = training.train_classifier(model, corpus, "base", seed=3)
    assert 0.5 < metrics.auc < 1 and metrics.places > 100
    assert classifier.base == "base" and classifier.metadata["trained_on"].endswith("seed 3")

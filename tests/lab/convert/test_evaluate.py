"""The evaluation of an adapter."""

from __future__ import annotations

from dataclasses import replace

from lab.convert.evaluate import EvaluationPrompt, evaluate, evaluation_prompts
from model.decode.speculative import DraftSettings
from model.engine.loader import LoadedModel
from model.nn.adapter import random_adapter


def test_the_evaluation_has_prompts_of_every_kind_without_duplicates() -> None:
    prompts = evaluation_prompts()
    assert len(prompts) >= 200
    assert {prompt.kind for prompt in prompts} == {"chat", "list", "numbers", "json", "tool", "passage"}
    assert len({prompt.text for prompt in prompts}) == len(prompts)


def test_an_evaluation_measures_acceptance_and_identical_text(model: LoadedModel) -> None:
    adapter = random_adapter(model.decoder.config, 4, 3, seed=5)
    prompts = [EvaluationPrompt("chat", "hello to you"), EvaluationPrompt("json", "the capital of France")]
    metrics = evaluate(replace(model, adapter=adapter), prompts, "hello", lambda: DraftSettings(1), max_tokens=12)
    assert metrics["all"].prompts == 2
    assert metrics["all"].identical == 2
    assert len(metrics["all"].slot_acceptance) == 3
    assert metrics["chat"].tokens_per_forward >= 1 or metrics["chat"].loops

"""Training a request classifier: labelled requests, what the model computes for them, and the fit."""

from __future__ import annotations

import json
import lzma
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chat.types import Message, Tool
from lab.convert import known_facts
from lab.convert import train_request_classifier as training
from lab.convert.requests import LabelledRequest, labelled_requests
from model.engine.loader import LoadedModel
from model.engine.request_classifier import KINDS, VERDICTS, RequestClassifier, classified_states, verdict_odds
from model.nn.forward_batch import text_input

INSTRUCTIONS = "hello to you"
TIMER = Tool("set_timer", parameters={})


def test_labels_depend_on_what_was_said_before() -> None:
    requests = labelled_requests(seed=1)
    kinds: dict[str, set[str]] = {}
    for request in requests:
        kinds.setdefault(request.messages[-1].content.lower().rstrip(".?!"), set()).add(request.kind)
    assert {"unclear", "answerable"} in kinds.values(), "a reference is only clear after what it refers to"
    timers = [request for request in requests if request.origin == "timers and alarms"]
    assert {request.kind for request in timers} == {"answerable", "action"}
    assert {request.kind for request in requests} == {*KINDS} - {"unsure"}
    assert all(request.messages[-1].role == "user" and request.messages[-1].content for request in requests)


def test_tasks_are_also_asked_in_conversations_of_other_kinds() -> None:
    requests = labelled_requests(seed=1)
    elsewhere = [request for request in requests if request.tools or request.instructions]
    assert {request.kind for request in elsewhere} == {"answerable", "action", "sum"}
    assert any(request.tools for request in elsewhere) and any(request.instructions for request in elsewhere)
    assert any("quotations" in request.messages[-2].content for request in requests if len(request.messages) > 1)


def test_a_question_and_its_look_alike_are_held_out_together() -> None:
    requests = labelled_requests(seed=1)
    for kind in ("mistaken", "unknowable"):
        origins = {request.origin for request in requests if request.kind == kind}
        kinds = [{request.kind for request in requests if request.origin == origin} for origin in sorted(origins)[:40]]
        assert all(kind in pair and len(pair) == 2 for pair in kinds)


def test_what_is_read_in_batches_is_what_each_prompt_gives_alone(model: LoadedModel) -> None:
    requests = [
        LabelledRequest("", (Message("user", "the capital of France " * count),), "answerable", tools)
        for count in (1, 2, 3, 2) * 12
        for tools in ((), (TIMER,))
    ]
    states = training.request_states(model, INSTRUCTIONS, requests)
    assert states.shape == (len(requests), model.decoder.config.hidden)
    for number in (0, 6, 90):
        prompt = training._prompt(model, INSTRUCTIONS, requests[number])
        alone: list[torch.Tensor] = []
        rows = text_input(model.decoder.new_cache(), prompt, 1)
        model.decoder.run([replace(rows, on_features=alone.append)])
        expected = classified_states(alone[0][0], states.shape[1])
        torch.testing.assert_close(states[number], expected, atol=1e-4, rtol=1e-4)


def test_what_a_model_answers_wrongly_is_what_it_is_unsure_of(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [{"ask": "the capital of France", "accept": ["."]}, {"ask": "hello to you", "accept": ["^Never$"]}]
    (tmp_path / "facts.xz").write_bytes(lzma.compress("\n".join(map(json.dumps, facts)).encode()))
    monkeypatch.setattr(known_facts, "_FILE", tmp_path / "facts.xz")
    requests = known_facts.fact_requests(model, INSTRUCTIONS)
    assert [(one.messages[0].content, one.kind) for one in requests] == [
        ("the capital of France", "answerable"), ("hello to you", "unsure"),
    ]  # fmt: skip
    assert len({one.origin for one in requests}) == 2
    assert known_facts.Fact("", ("^sao paulo",)).is_right(" São Paulo.")


def test_facts_are_told_with_doubt_as_often_as_wanted() -> None:
    odds, kinds = torch.full((200, len(KINDS) - 1), -9.0), torch.zeros(200, dtype=torch.int64)
    odds[:, KINDS.index("unsure") - 1] = torch.arange(200.0)
    own, facts = torch.ones(200, dtype=torch.bool), torch.arange(200) < 100
    thresholds = training.choose_thresholds(odds, kinds, own, facts)
    known = odds[facts][:, KINDS.index("unsure") - 1]
    assert float((known > thresholds[VERDICTS.index("unsure")]).float().mean()) == pytest.approx(0.25, abs=0.02)


def requests_told_by_last_word(**last_words: str) -> list[LabelledRequest]:
    """240 requests of 24 origins, each of the kind that its last word tells."""
    draw, requests = random.Random(2), []
    for number in range(240):
        kind, last = draw.choice(tuple(last_words.items()))
        words = [*(draw.choice(("hello", "to", "is")) for _ in range(3)), last]
        requests.append(LabelledRequest(str(number % 24), (Message("user", " ".join(words)),), kind))  # type: ignore[arg-type]
    return requests


def test_a_rule_is_learned_and_measured_on_held_out_topics(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a random model and the rule that `Paris` says what cannot be done, and `France` what a tool does."""
    requests = requests_told_by_last_word(answerable="you", unable="Paris", action="France")
    monkeypatch.setattr(training, "labelled_requests", lambda seed: requests)
    monkeypatch.setattr(training, "fact_requests", lambda model, instructions: [])
    classifier, metrics = training.train_request_classifier(model, INSTRUCTIONS, "base")
    assert metrics.recall["unable"] > 0.9 and metrics.recall["action"] > 0.9
    assert metrics.false_task_rate <= 0.03 and metrics.false_positive_rate <= 0.01
    assert classifier.is_valid_for(INSTRUCTIONS)
    scores = classifier.scores(training.request_states(model, INSTRUCTIONS, requests))
    odds = verdict_odds(scores, may_be_task=True)
    wanted = {"answerable": None, "unable": "unable", "action": "task"}
    right = [
        (VERDICTS[int(best)] if float(highest) > 0 else None) == wanted[request.kind]
        for highest, best, request in zip(*odds.max(1), requests, strict=True)
    ]
    assert sum(right) / len(right) > 0.9


def test_one_kind_is_learned_anew_and_the_others_stay(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule that `Paris` is an emergency."""
    requests = requests_told_by_last_word(answerable="you", unable="is", emergency="Paris")
    monkeypatch.setattr(training, "labelled_requests", lambda seed: requests)
    before = RequestClassifier(
        torch.randn(len(KINDS) - 1, model.decoder.config.hidden), torch.zeros(len(KINDS) - 1),
        torch.zeros(len(VERDICTS)), "", "", {"trained_on": "others"},
    )  # fmt: skip
    after, metrics = training.train_kind(before, INSTRUCTIONS, "emergency", model, "base")
    assert metrics.recall["emergency"] > 0.9 and metrics.false_positive_rate <= 0.02
    assert after.metadata["trained_on"] == "others; then emergency alone with 240 requests"
    row = KINDS.index("emergency") - 1
    others = [n for n in range(len(KINDS) - 1) if n != row]
    assert torch.equal(after.weight[others], before.weight[others])
    assert not torch.equal(after.weight[row], before.weight[row])
    columns = [n for n, verdict in enumerate(VERDICTS) if verdict != "emergency"]
    assert torch.equal(after.thresholds[columns], before.thresholds[columns])
    scores = after.scores(training.request_states(model, INSTRUCTIONS, requests))[:, row]
    is_over = scores > after.thresholds[VERDICTS.index("emergency")]
    right = [bool(over) == (request.kind == "emergency") for over, request in zip(is_over, requests, strict=True)]
    assert sum(right) / len(right) > 0.9

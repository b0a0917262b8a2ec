"""What is measured on held-out conversations, with a tiny model that has something to lose."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from chat.types import Message
from lab.convert.conversations import Conversation, encode_conversations
from lab.convert.tuning_evaluation import measure_held_out, response_loss
from model.engine.loader import LoadedModel
from model.engine.request_classifier import KINDS, VERDICTS, RequestClassifier, instructions_checksum
from model.engine.turn_completion import TurnCompletionClassifier
from model.nn.adapter import random_adapter
from model.nn.forward_batch import text_input

INSTRUCTIONS = "hello to you"
CONVERSATIONS = [
    Conversation(n, (Message("user", f"what is the capital of {place} and of"), Message("assistant", f"{place} " * 40)))
    for n, place in enumerate(("France", "Paris", "hello"))
]


def test_the_loss_is_the_cross_entropy_of_the_assistants_tokens(model: LoadedModel) -> None:
    texts = encode_conversations(CONVERSATIONS, INSTRUCTIONS, model)
    losses, right = [], []
    for text in texts:
        [logits] = model.decoder.run([text_input(model.decoder.new_cache(), text.tokens, len(text.tokens))])
        for begin, end in text.spans:
            targets = torch.tensor(text.tokens[begin:end])
            losses.append(cross_entropy(logits[begin - 1 : end - 1], targets, reduction="none"))
            right.append(logits[begin - 1 : end - 1].argmax(-1) == targets)
    loss, accuracy = response_loss(model, texts)
    assert loss == pytest.approx(float(torch.cat(losses).mean()), rel=1e-3)
    assert accuracy == pytest.approx(float(torch.cat(right).float().mean()))


def test_what_nothing_drafts_or_classifies_for_is_not_measured(model: LoadedModel) -> None:
    metrics = measure_held_out(model, CONVERSATIONS, INSTRUCTIONS)
    assert metrics.perplexity > 1
    assert (metrics.first_draft, metrics.tokens_per_forward) == (None, None)
    assert (metrics.turn_completion, metrics.declined) == (None, None)


def test_drafts_and_classifiers_are_measured(model: LoadedModel) -> None:
    hidden = model.decoder.config.hidden
    weight, bias = torch.zeros(len(KINDS) - 1, hidden), torch.full((len(KINDS) - 1,), 2.0)
    requests = RequestClassifier(weight, bias, torch.ones(len(VERDICTS)), instructions_checksum(INSTRUCTIONS), "", {})
    weight = torch.randn(hidden, generator=torch.Generator().manual_seed(1))
    full = replace(
        model,
        adapter=random_adapter(model.decoder.config, 2, 3, seed=1),
        turn_completion=TurnCompletionClassifier(weight, 0.0, "", {}),
        request_classifier=requests,
    )
    metrics = measure_held_out(full, CONVERSATIONS, INSTRUCTIONS)
    assert metrics.first_draft is not None and 0 <= metrics.first_draft <= 1
    assert metrics.tokens_per_forward is not None and metrics.tokens_per_forward >= 1
    assert metrics.turn_completion is not None and 0 <= metrics.turn_completion <= 1
    assert metrics.declined == 1
    others = replace(requests, instructions="others")
    assert measure_held_out(replace(full, request_classifier=others), CONVERSATIONS, INSTRUCTIONS).declined is None

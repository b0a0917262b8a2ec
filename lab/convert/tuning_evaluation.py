"""What tuning gains and loses, on held-out conversations: the loss, the drafts of what was trained for the base model,
and its classifiers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from lab.convert.conversations import Conversation, encode_conversations
from lab.convert.corpus import TrainingText
from lab.convert.evaluate import all_drafts, generate_greedily
from lab.convert.requests import LabelledRequest
from lab.convert.train_request_classifier import request_states
from lab.convert.train_turn_completion import hidden_states_of, labelled_texts, measure
from model.engine.loader import LoadedModel
from model.engine.request_classifier import verdict_odds
from model.nn.forward_batch import PREFILL_CHUNK, prefill, text_input

_RESPONSES = 20
"""Responses that are generated, at most, to count accepted drafts."""

_MAX_TOKENS = 64
"""Tokens of such a response, at most."""


@dataclass(frozen=True)
class HeldOutMetrics:
    """Figures of a model on held-out conversations.

    Attributes:
        loss: mean cross-entropy of the assistant's tokens.
        accuracy: share of them that are the most likely token.
        first_draft: how often the first draft is accepted in responses that the model generates itself.
        tokens_per_forward: in these responses.
        turn_completion: AUC of the turn-completion classifier on the users' messages.
        declined: share of the users' messages that the request classifier takes for requests to decline or ask about.
            The last four are None where nothing drafts or classifies, or there is too little to measure.
    """

    loss: float
    accuracy: float
    first_draft: float | None
    tokens_per_forward: float | None
    turn_completion: float | None
    declined: float | None

    @property
    def perplexity(self) -> float:
        """e to the loss."""
        return math.exp(self.loss)


def measure_held_out(model: LoadedModel, conversations: Sequence[Conversation], instructions: str) -> HeldOutMetrics:
    """Measure a model on conversations, as it runs in a server."""
    texts = encode_conversations(conversations, instructions, model)
    loss, accuracy = response_loss(model, texts)
    return HeldOutMetrics(
        loss,
        accuracy,
        *_drafting(model, texts),
        _turn_completion(
            model, [each.content for one in conversations for each in one.messages if each.role == "user"]
        ),
        _declined(model, conversations, instructions),
    )


def response_loss(model: LoadedModel, texts: Sequence[TrainingText]) -> tuple[float, float]:
    """The mean cross-entropy of the tokens in the texts' spans, and the share of them that are the most likely ones."""
    decoder, loss, right, count = model.decoder, 0.0, 0, 0
    for text in texts:
        cache, tokens = decoder.new_cache(), torch.tensor(text.tokens)
        trained = torch.zeros(len(tokens), dtype=torch.bool)
        for begin, end in text.spans:
            trained[begin:end] = True
        first = text.spans[0][0] - 1
        for chunk in prefill(cache, text.tokens[:first]):
            decoder.run([chunk])
        for start in range(first, len(tokens) - 1, PREFILL_CHUNK):
            rows = text.tokens[start : min(start + PREFILL_CHUNK, len(tokens) - 1)]
            [logits] = decoder.run([text_input(cache, rows, len(rows))])
            cache.commit(rows)
            after = slice(start + 1, start + 1 + len(rows))
            wanted, predicted = tokens[after][trained[after]], logits.cpu()[trained[after]]
            loss += float(cross_entropy(predicted, wanted, reduction="sum"))
            right += int((predicted.argmax(-1) == wanted).sum())
            count += len(wanted)
    return loss / count, right / count


def _drafting(model: LoadedModel, texts: Sequence[TrainingText]) -> tuple[float | None, float | None]:
    if model.adapter is None and model.draft_head is None:
        return None, None
    settings, _ = all_drafts(model)
    prompts = [[*text.tokens[: text.spans[0][0]]] for text in texts[:_RESPONSES]]
    responses = [generate_greedily(model, prompt, lambda: settings, _MAX_TOKENS) for prompt in prompts]
    verified = [accepted for response in responses for _, accepted in response.accepted]
    tokens, steps = (sum(values) for values in zip(*((len(one.tokens), one.steps) for one in responses), strict=True))
    return sum(accepted > 0 for accepted in verified) / max(1, len(verified)), tokens / steps


def _turn_completion(model: LoadedModel, messages: Sequence[str]) -> float | None:
    texts = [text for text in labelled_texts(messages, seed=1) if text.origin in set(messages)]
    if model.turn_completion is None or not texts:
        return None
    states, complete = hidden_states_of(model, texts)
    return measure(model.turn_completion(states), complete).auc if 0 < complete.sum() < len(complete) else None


def _declined(model: LoadedModel, conversations: Sequence[Conversation], instructions: str) -> float | None:
    """The classifier is only asked in conversations with the instructions that it was trained with."""
    classifier = model.request_classifier
    requests = [
        LabelledRequest("own", one.messages[: n + 1], "answerable")
        for one in conversations
        if one.messages[0].role != "system"
        for n, message in enumerate(one.messages)
        if message.role == "user"
    ]
    if classifier is None or not requests or not classifier.is_valid_for(instructions):
        return None
    scores = classifier.scores(request_states(model, instructions, requests))
    return float((verdict_odds(scores, may_be_task=False) > classifier.thresholds).any(1).float().mean())

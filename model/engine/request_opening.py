"""How responses begin to requests that the assistant cannot fulfil. A small model that has begun to decline, or to ask
back, goes on to do so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from chat.types import Message, OfferedTools, Tool
from model.decode.conditional_opening import ConditionalOpening
from model.decode.constraint import GrammarConstraint
from model.engine.loader import LoadedModel
from model.engine.request_classifier import RequestClassifier, RequestKind
from model.engine.response_form import ResponseForm

OPENINGS: Mapping[RequestKind, str] = {
    "answerable": "",
    "unable": "Sorry, I can't",
    "unclear": "Sorry, could you tell me what you",
    "unsafe": "I can't help with that.",
    "crisis": "I'm sorry, I can't help with that. Please talk to somebody you trust, or call a crisis line.",
}
"""The beginning of a response to each kind of request. Chosen by the tuning half of `rejoinder bench answers`."""


def with_opening(
    model: LoadedModel,
    form: ResponseForm,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    offered: OfferedTools | None,
) -> ResponseForm:
    """The form of a response to `messages`, with an opening if the model's request classifier demands one and no tool
    is called.

    Nothing changes without a classifier, with other instructions or tools than it was trained with, where the user's
    words suit a tool, and for a response to anything but a user's message.
    """
    classifier = model.request_classifier
    if classifier is None or (offered is not None and offered.expected):
        return form
    if not messages or messages[0].role != "system" or messages[-1].role != "user":
        return form
    if not classifier.is_valid_for(messages[0].content, [tool.name for tool in tools]):
        return form
    choose = partial(_opening, model, classifier)
    return replace(form, constraint=ConditionalOpening(form.constraint or GrammarConstraint(), choose))


def _opening(model: LoadedModel, classifier: RequestClassifier, features: Tensor) -> list[int]:
    return model.tokenizer.encode(OPENINGS[classifier.classify(features)])

"""How responses begin to requests that the assistant cannot fulfil, and to false premises. A small model that has begun
to decline, to ask back or to correct goes on to do so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from torch import Tensor

from chat.types import Ask
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
    "unknowable": "Sorry, I can't",
    "mistaken": "Actually,",
}
"""The beginning of a response to each kind of request. The first five were chosen by the tuning half of
`rejoinder bench answers`."""


def with_opening(model: LoadedModel, form: ResponseForm, ask: Ask) -> ResponseForm:
    """The form of a response, with what the model's request classifier demands if no tool is called: that it ends at
    once, if what the user said is a task for others (`Ask.task`), or that it begins with an opening.

    Nothing changes without a classifier, and for a response to anything but a user's message. Openings are for the
    instructions that the classifier was trained with, where no tools are declared.
    """
    classifier, messages = model.request_classifier, ask.messages
    if classifier is None or not messages or messages[-1].role != "user":
        return form
    knows = messages[0].role == "system" and classifier.is_valid_for(messages[0].content) and not ask.tools
    opens = knows and ask.grammar is None
    if not opens and ask.task != "maybe":
        return form
    opening = _Opening(model, classifier, ask.task, opens=opens)
    constraint = ConditionalOpening(form.constraint or GrammarConstraint(), opening.choose)
    return replace(form, constraint=constraint, is_task=lambda: opening.is_task)


class _Opening:
    """The opening of one response. `is_task` is set once it is chosen."""

    def __init__(
        self, model: LoadedModel, classifier: RequestClassifier, task: Literal["", "maybe", "no"], *, opens: bool
    ) -> None:
        self._model, self._classifier, self._task, self._opens = model, classifier, task, opens
        self.is_task = False

    def choose(self, features: Tensor) -> list[int]:
        """The tokens that the response begins with; its end, if the request is a task."""
        kind = self._classifier.classify(features, may_be_task=bool(self._task))
        if kind == "task":
            self.is_task = self._task == "maybe"
            return [min(self._model.stop_tokens)] if self.is_task else []
        return self._model.tokenizer.encode(OPENINGS[kind]) if self._opens else []

"""How responses begin to requests that the assistant cannot fulfil, and to false premises. A small model that has begun
to decline, to ask back or to correct goes on to do so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Literal, get_args

from torch import Tensor

from chat.types import Ask, Handed, HandedOver
from model.checkpoint.tokenizer import TextTokenizer
from model.decode.conditional_opening import Beginning, ConditionalOpening
from model.decode.constraint import Constraint
from model.engine.loader import LoadedModel
from model.engine.request_classifier import RequestClassifier, RequestKind, refusal_odds
from model.engine.response_form import ResponseForm

OPENINGS: Mapping[RequestKind, str] = {
    "answerable": "",
    "unable": "Sorry, I can't",
    "unclear": "Sorry, could you tell me what you",
    "unsafe": "I can't help with that.",
    "crisis": "I'm sorry, I can't help with that. Please talk to somebody you trust, or call a crisis line.",
    "unknowable": "Sorry, I can't",
    "mistaken": "Actually,",
    "unsure": "I think",
}
"""The beginning of a response to each kind of request. The first five were chosen by the tuning half of
`rejoinder bench answers`."""

REFUSALS = (
    "I'm sorry,",
    "I'm sorry but",
    "I am sorry,",
    "Sorry,",
    "I can't",
    "I cannot",
    "I'm unable",
    "I'm not able",
    "I don't have",
)
"""Beginnings of the model's own refusals. It has them for remarks as well: "I think the earth is flat.", "You suck."
The last word of each is not allowed where the classifier sees nothing to refuse."""

_NOTHING_TO_REFUSE = 1.0
"""Log odds of a refusal below which there is nothing to refuse."""


def with_opening(model: LoadedModel, form: ResponseForm, ask: Ask) -> ResponseForm:
    """The form of a response, with what the model's request classifier demands if no tool is called: that it ends at
    once, if what the user said is for others to answer (`Ask.task`, `Ask.verdicts`), or that it begins with an opening.

    Nothing changes without a classifier, and for a response to anything but a user's message. Verdicts and openings are
    for the instructions that the classifier was trained with, where no tools are declared; openings are not added to
    what a grammar describes.
    """
    classifier, messages = model.request_classifier, ask.messages
    if classifier is None or not messages or messages[-1].role != "user":
        return form
    knows = messages[0].role == "system" and classifier.is_valid_for(messages[0].content) and not ask.tools
    opens = knows and ask.grammar is None
    if not opens and not (knows and ask.verdicts) and ask.task != "maybe":
        return form
    opening = _Opening(model, classifier, ask, ask.verdicts if knows else (), opens=opens)
    constraint = ConditionalOpening(form.constraint or Constraint(), opening.choose)
    return replace(form, constraint=constraint, verdict=lambda: opening.ended)


class _Opening:
    """The opening of one response. `ended` is set once it is chosen, if the response ends instead.

    Args:
        verdicts: the kinds of requests, besides tasks, at which the response ends.
        opens: whether it begins with one of `OPENINGS` otherwise.
    """

    def __init__(
        self, model: LoadedModel, classifier: RequestClassifier, ask: Ask, verdicts: Collection[Handed], *, opens: bool
    ) -> None:
        self._model, self._classifier, self._ask = model, classifier, ask
        self._verdicts, self._opens = verdicts, opens
        self.ended: HandedOver | Literal[""] = ""

    def choose(self, features: Tensor) -> Beginning:
        """How the response begins; with its end, if others answer the request."""
        ask = self._ask
        useless = [kind for kind in get_args(Handed) if kind not in self._verdicts]
        scores = self._classifier.scores_of(features)
        kind = self._classifier.verdict(scores, may_be_task=bool(ask.task), leaving_out=useless)
        if kind == "task":
            self.ended = "task" if ask.task == "maybe" else ""
        elif kind in ("emergency", "danger", "dismissal"):
            self.ended = kind
        if self.ended or kind == "task" or not self._opens:
            return Beginning([min(self._model.stop_tokens)] if self.ended else [])
        if kind == "answerable" and ask.spoken and refusal_odds(scores) < _NOTHING_TO_REFUSE:
            return Beginning(avoided=_refusals(self._model.tokenizer))
        return Beginning(self._model.tokenizer.encode(OPENINGS[kind]))


@lru_cache(maxsize=1)  # of the newest model only
def _refusals(tokenizer: TextTokenizer) -> tuple[tuple[int, ...], ...]:
    """The tokens of `REFUSALS`."""
    return tuple(tuple(tokenizer.encode(text)) for text in REFUSALS)

"""`/v1/decide`: a yes or no, one of several choices, or a number, with probabilities. Nothing is generated."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from model.engine.decision import Decider
from model.engine.engine import Engine
from server.chat_completions.errors import read_json
from server.chat_completions.generation import CompletionLimit, TokenUsage, api_errors
from server.chat_completions.requests import check_model, conversation_messages
from server.chat_completions.schema import ChatMessage, StrictModel
from server.chat_completions.streaming import unless_disconnected
from voice.language_model import Message

MAX_CHOICES = 64
MAX_NUMBERS = 256
"""Numbers of a range: more would take too long to score."""


class DecideRequest(StrictModel):
    """The body of `/v1/decide`."""

    type: Literal["boolean", "choice", "number"]
    input: str | None = Field(None, min_length=1)
    messages: list[ChatMessage] | None = Field(None, min_length=1)
    instructions: str | None = None
    choices: list[str] | None = Field(None, min_length=1, max_length=MAX_CHOICES)
    minimum: float | None = None
    maximum: float | None = None
    step: float = Field(1.0, gt=0)
    model: str | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> DecideRequest:
        if (self.input is None) == (self.messages is None):
            raise ValueError("give either 'input' or 'messages'")
        if (self.choices is not None) != (self.type == "choice"):
            raise ValueError("the type 'choice', and no other, needs the field 'choices'")
        if self.choices is not None and len({choice.strip() for choice in self.choices} - {""}) < len(self.choices):
            raise ValueError("the choices must be different, and not empty")
        has_range = self.minimum is not None and self.maximum is not None
        if has_range != (self.type == "number"):
            raise ValueError("the type 'number', and no other, needs the fields 'minimum' and 'maximum'")
        if self.minimum is not None and self.maximum is not None:
            if not (math.isfinite(self.minimum) and math.isfinite(self.maximum) and self.minimum <= self.maximum):
                raise ValueError("'minimum' must not be above 'maximum'")
            if (self.maximum - self.minimum) / self.step >= MAX_NUMBERS:
                raise ValueError(f"the range has more than {MAX_NUMBERS} numbers: choose a larger 'step'")
        return self


@dataclass(frozen=True)
class DecisionPrompt:
    """What the model is asked, and what its answers mean.

    Attributes:
        messages: the conversation.
        values: the possible results.
        spellings: of each value, how the model may write it.
    """

    messages: list[Message]
    values: list[Any]
    spellings: list[list[str]]

    @property
    def options(self) -> list[str]:
        """All spellings, to be scored."""
        return [spelling for spellings in self.spellings for spelling in spellings]

    def probabilities(self, scores: Sequence[float]) -> list[float]:
        """Of each value, from those of the options."""
        of_options = iter(scores)
        return [sum(next(of_options) for _ in spellings) for spellings in self.spellings]

    def best(self, scores: Sequence[float]) -> Any:
        """The most likely value."""
        probabilities = self.probabilities(scores)
        return self.values[max(range(len(probabilities)), key=probabilities.__getitem__)]


def decision_prompt(body: DecideRequest) -> DecisionPrompt:
    """The prompt of a request."""
    values, spellings, request = _answers(body)
    return DecisionPrompt(_messages(body, request), values, spellings)


class Decisions:
    """Answers decision requests.

    Args:
        engine: shared with the voice conversations. A decision does not wait for them: it may route a call.
        model: the name that requests may give.
        limit: shared with the other endpoints.
    """

    def __init__(self, engine: Engine, model: str, limit: CompletionLimit) -> None:
        self._engine, self._model, self._limit = engine, model, limit

    async def handle(self, request: Request) -> Response:
        """One request. Raises APIError, ClientDisconnect."""
        body = await read_json(request, DecideRequest)
        check_model(body.model, self._model)
        prompt = decision_prompt(body)
        with self._limit.slot(), api_errors():
            decider = Decider(self._engine, keep_all_messages=True)
            scores = await unless_disconnected(request, decider.score(prompt.messages, prompt.options))
        probabilities, value = prompt.probabilities(scores.probabilities), prompt.best(scores.probabilities)
        decision: dict[str, Any] = {
            "id": f"decision_{uuid.uuid4().hex}",
            "object": "decision",
            "model": self._model,
            "type": body.type,
            "value": value,
            "probability": max(probabilities),
            "probabilities": [
                {"value": value, "probability": probability}
                for value, probability in zip(prompt.values, probabilities, strict=True)
            ],
        }
        if body.type == "number":
            decision["mean"] = sum(v * p for v, p in zip(prompt.values, probabilities, strict=True))
        usage = TokenUsage(scores.prompt_tokens, scores.cached_tokens, forward_passes=1)
        return JSONResponse({**decision, "usage": usage.body()})


def _messages(body: DecideRequest, request: str) -> list[Message]:
    messages = [] if body.instructions is None else [Message("system", body.instructions)]
    if body.messages is not None:
        messages += conversation_messages(body.messages)
    if body.input is not None:
        messages.append(Message("user", body.input))
    if messages[-1].role == "user":
        return [*messages[:-1], Message("user", f"{messages[-1].content}\n\n{request}")]
    return [*messages, Message("user", request)]


def _answers(body: DecideRequest) -> tuple[list[Any], list[list[str]], str]:
    """The values, the spellings of each, and what asks the model for one of them."""
    if body.type == "boolean":
        return [True, False], [["yes", "Yes"], ["no", "No"]], "Answer yes or no."
    if body.choices is not None:
        choices = [choice.strip() for choice in body.choices]
        listed = "; ".join(choices)
        return choices, [[choice] for choice in choices], f"Answer with one of these, and nothing else: {listed}."
    assert body.minimum is not None and body.maximum is not None
    count = int((body.maximum - body.minimum) / body.step + 1e-9) + 1
    numbers = [_tidy(body.minimum + n * body.step) for n in range(count)]
    ends = f"{numbers[0]} to {numbers[-1]}"
    return numbers, [[str(number)] for number in numbers], f"Answer with a number from {ends}, and nothing else."


def _tidy(number: float) -> int | float:
    """3.0 → 3, and 0.30000000000000004 → 0.3."""
    rounded = round(number, 9)
    return int(rounded) if rounded == int(rounded) else rounded

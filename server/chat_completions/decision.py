"""`/v1/decide`: a yes or no, one of several choices, or a number, with probabilities. Nothing is generated.

In Python: `await DecisionMaker(engine).decide(DecisionRequest(type="boolean", instructions=…, input=…))`.
"""

from __future__ import annotations

import math
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chat.types import Message
from model.engine.decision import Decider, OptionScores
from model.engine.engine import Engine
from server.chat_completions.generation import TokenUsage, api_errors, count, in_bulk
from server.chat_completions.requests import RequestLimit, TextEndpoint, conversation_messages
from server.chat_completions.schema import ChatMessage, ModelRequest
from server.chat_completions.streaming import unless_disconnected

MAX_CHOICES = 64
MAX_NUMBERS = 256
"""Numbers of a range: more would take too long to score."""

_BLANKS = ("N/A", "", "...")
"""Inputs that say nothing. Small models are inclined to some answers whatever they are asked; what they answer to these
inputs is taken as that inclination, and divided out (Zhao et al. 2021, "Calibrate Before Use", section 5). Not where
the answer is yes or no: of an empty message, "no" is right."""

_PRIOR_FLOOR = 0.05
"""Share of the inclination that is spread evenly: an answer that is never expected must not win by a trace."""

_MAX_PRIORS = 256
"""Kinds of decisions whose inclination is remembered."""


class DecisionRequest(ModelRequest):
    """What to decide: the body of `/v1/decide`."""

    type: Literal["boolean", "choice", "number"]
    input: str | None = Field(None, min_length=1)
    messages: list[ChatMessage] | None = Field(None, min_length=1)
    instructions: str | None = None
    choices: list[str] | None = Field(None, min_length=1, max_length=MAX_CHOICES)
    minimum: float | None = None
    maximum: float | None = None
    step: float = Field(1.0, gt=0, allow_inf_nan=False)
    calibrate: bool = True

    @model_validator(mode="after")
    def _is_complete(self) -> DecisionRequest:
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
class Decision:
    """The result.

    Attributes:
        values: the possible results.
        probabilities: of each of them; they sum to 1.
        scores: of the model, with the length of the prompt.
    """

    values: Sequence[Any]
    probabilities: Sequence[float]
    scores: OptionScores

    @property
    def value(self) -> Any:
        """The most likely result."""
        return self.values[max(range(len(self.values)), key=self.probabilities.__getitem__)]

    @property
    def mean(self) -> float:
        """The expected number, if the values are numbers."""
        return float(sum(value * share for value, share in zip(self.values, self.probabilities, strict=True)))


@dataclass(frozen=True)
class _Question:
    """What the model is asked, and what its answers mean.

    Attributes:
        instructions: all decisions of one kind begin with them, so they are read once.
        values: the possible results.
        spellings: of each value, how the model may write it.
        reminder: ends a conversation that is decided about.
        question: follows an input; empty if the instructions are enough.
    """

    instructions: str
    values: Sequence[Any]
    spellings: Sequence[Sequence[str]]
    reminder: str
    question: str = ""

    def about(self, text: str) -> list[Message]:
        """The prompt for an input."""
        if self.question:
            text = f'Message: "{text}"\nQuestion: {self.question}'
        return [Message("system", self.instructions), Message("user", text)]

    def about_conversation(self, messages: list[Message]) -> list[Message]:
        """The prompt for a conversation."""
        if messages[-1].role == "user":
            messages = [*messages[:-1], Message("user", f"{messages[-1].content}\n\n{self.reminder}")]
        else:
            messages = [*messages, Message("user", self.reminder)]
        return [Message("system", self.instructions), *messages]

    def shares(self, scores: OptionScores) -> list[float]:
        """The probability of each value."""
        of_options = iter(scores.probabilities)
        return [sum(next(of_options) for _ in spellings) for spellings in self.spellings]


class DecisionMaker:
    """Makes decisions with a language model.

    Args:
        engine: shared with the voice conversations. A decision does not wait for them: it may route a call.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._priors: OrderedDict[tuple[str, tuple[Any, ...]], list[float]] = OrderedDict()

    async def decide(self, request: DecisionRequest) -> Decision:
        """Make a decision. The first one of its kind, with the same instructions and answers, takes longer.

        Raises:
            PromptTooLong: the input does not fit.
            ValueError: a choice is too long, there are too many, or the model denoises blocks.
            RuntimeError: the forward pass failed, or the engine was closed.
        """
        question = _question(request)
        if request.messages is not None:
            prompt = question.about_conversation(conversation_messages(request.messages))
        else:
            prompt = question.about(request.input or "")
        scores = await self._score(question, prompt)
        shares = question.shares(scores)
        if request.calibrate and request.type != "boolean":
            prior = await self._prior(question)
            shares = [share / inclination for share, inclination in zip(shares, prior, strict=True)]
        total = sum(shares)
        return Decision(question.values, [share / total for share in shares], scores)

    async def _score(self, question: _Question, prompt: list[Message]) -> OptionScores:
        options = [spelling for spellings in question.spellings for spelling in spellings]
        return await Decider(self._engine, bulk=in_bulk.get(), keep_all_messages=True).score(prompt, options)

    async def _prior(self, question: _Question) -> list[float]:
        """How inclined the model is to each value, whatever it is asked."""
        key = (question.instructions, tuple(question.values))
        if key not in self._priors:
            answers = [question.shares(await self._score(question, question.about(blank))) for blank in _BLANKS]
            even = 1 / len(question.values)
            self._priors[key] = [
                (1 - _PRIOR_FLOOR) * sum(shares) / len(answers) + _PRIOR_FLOOR * even
                for shares in zip(*answers, strict=True)
            ]
            if len(self._priors) > _MAX_PRIORS:
                self._priors.popitem(last=False)
        self._priors.move_to_end(key)
        return self._priors[key]


class Decisions(TextEndpoint):
    """Answers decision requests."""

    def __init__(self, engine: Engine, model: str, limit: RequestLimit) -> None:
        super().__init__(engine, model, limit)
        self._maker = DecisionMaker(engine)

    async def handle(self, request: Request) -> Response:
        """One request. Raises APIError, ClientDisconnect."""
        body = await self._read(request, DecisionRequest)
        with self._limit.slot(), api_errors():
            decision = await unless_disconnected(request, self._maker.decide(body))
        result: dict[str, Any] = {
            "id": f"decision_{uuid.uuid4().hex}",
            "object": "decision",
            "model": self._model,
            "type": body.type,
            "value": decision.value,
            "probability": max(decision.probabilities),
            "probabilities": [
                {"value": value, "probability": probability}
                for value, probability in zip(decision.values, decision.probabilities, strict=True)
            ],
        }
        if body.type == "number":
            result["mean"] = decision.mean
        usage = TokenUsage(decision.scores.prompt_tokens, decision.scores.cached_tokens, forward_passes=1)
        count(usage)
        return JSONResponse({**result, "usage": usage.body()})


def _question(request: DecisionRequest) -> _Question:
    if request.type == "boolean":
        asked = request.instructions or "Is this right?"
        instructions, reminder = "You answer questions about messages with yes or no.", f"{asked} Answer yes or no."
        return _Question(instructions, (True, False), (("yes", "Yes"), ("no", "No")), reminder, asked)
    values: list[Any]
    if request.choices is not None:
        values = [choice.strip() for choice in request.choices]
        rule = f"Answer with one of these, and nothing else: {'; '.join(values)}."
    else:
        values = _numbers(request)
        rule = f"Answer with a number from {values[0]} to {values[-1]}, and nothing else."
    return _Question(f"{request.instructions or ''} {rule}".strip(), values, [[str(value)] for value in values], rule)


def _numbers(request: DecisionRequest) -> list[Any]:
    assert request.minimum is not None and request.maximum is not None
    count = int((request.maximum - request.minimum) / request.step + 1e-9) + 1
    return [_tidy(request.minimum + n * request.step) for n in range(count)]


def _tidy(number: float) -> int | float:
    """3.0 → 3, and 0.30000000000000004 → 0.3."""
    rounded = round(number, 9)
    return int(rounded) if rounded == int(rounded) else rounded

"""The form that a response must have: text, tool calls, or what a grammar describes. Built for each request, before it
is queued; read by `conversation.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from model.checkpoint.tool_call_parser import CALL_START, ToolCallParser
from model.decode.constraint import Constraint, GrammarConstraint
from model.decode.grammar import Grammar, InvalidGrammar, JSONSchema
from model.decode.output import Progress
from model.decode.tool_calls import Tool, ToolCallConstraint, arguments_schema, call_matcher
from model.engine.loader import LoadedModel


class NamedTool(Protocol):
    """The choice of one function, which must be called."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


class OfferedTools(Protocol):
    """The tools that a response may call, of those that its prompt declares."""

    @property
    def names(self) -> Sequence[str]:
        """Their names."""
        ...

    @property
    def expected(self) -> bool:
        """Whether a call is likely, by what the user said."""
        ...


ToolChoice = Literal["auto", "none", "required"] | NamedTool


@dataclass(frozen=True)
class ResponseForm:
    """The form of one response.

    Attributes:
        constraint: what decoding is held to, if anything.
        parser: separates text and calls; None without tools.
        calls_allowed: whether calls that the model makes count.
    """

    constraint: Constraint | None = None
    parser: ToolCallParser | None = None
    calls_allowed: bool = True

    def read(self, progress: Progress) -> Progress:
        """Progress with its tool calls separated from its text. Calls have no draft."""
        if self.parser is None:
            return progress
        enforced = isinstance(self.constraint, ToolCallConstraint) and self.constraint.in_call
        text, calls = self.parser.push(progress.committed, enforced=enforced)
        if progress.finished is not None:
            held, last = self.parser.finish()
            text, calls = text + held, [*calls, *last]
        finished = progress.finished
        if not self.calls_allowed:
            calls = []
        elif finished == "stop" and self.parser.num_calls:
            finished = "tool_calls"
        hidden = enforced or self.parser.is_holding
        draft, confidence = ("", ()) if hidden else (progress.draft, progress.confidence)
        return replace(
            progress,
            committed=text,
            draft=draft,
            confidence=confidence,
            tool_calls=tuple(calls),
            finished=finished,
        )


def response_form(
    model: LoadedModel,
    grammar: Grammar | None,
    tools: Sequence[Tool],
    tool_choice: ToolChoice,
    *,
    parallel: bool = False,
    after_output: bool = False,
    offered: OfferedTools | None = None,
) -> ResponseForm:
    """The form of a response. Takes about a millisecond, the first time in a process about a second.

    Args:
        after_output: whether the response follows the output of a tool.
        offered: the tools that may be called; None for all.

    Raises:
        InvalidGrammar: the grammar, or a tool's parameters, cannot be enforced.
        ValueError: the choice is not possible with these tools.
    """
    text = None if grammar is None else model.grammars.compile(grammar)
    if not tools:
        if tool_choice not in ("auto", "none"):
            raise ValueError("tool_choice asks for a call, and there are no tools")
        return ResponseForm(None if text is None else GrammarConstraint(text))
    named = None if isinstance(tool_choice, str) else tool_choice.name
    callable_tools = [tool for tool in tools if named in (None, tool.name)]
    if tool_choice == "auto" and offered is not None:
        suitable = [tool for tool in tools if tool.name in offered.names]
        tool_choice, callable_tools = ("auto", suitable) if suitable else ("none", callable_tools[:1])
    if not callable_tools:
        raise ValueError(f"tool_choice names {named!r}, and the tools are {', '.join(tool.name for tool in tools)}")
    matcher = call_matcher(model.grammars, model.tokenizer, callable_tools, parallel=parallel)
    start_token = None if tool_choice == "none" else model.tokenizer.token_id(CALL_START)
    expected = offered is not None and offered.expected
    decision = CallDecision(model, after_output=after_output, expected=expected, code=offered is None)
    decide: Callable[[Tensor], bool] | None = None
    if tool_choice in ("auto", "none"):
        decide = decision if tool_choice == "auto" else _never
    constraint = ToolCallConstraint(matcher, decide, start_token, text, decision.text_start, model.call_habit)
    return ResponseForm(constraint, ToolCallParser(_validator(model, tools)), tool_choice != "none")


def check_tools(model: LoadedModel, tools: Sequence[Tool]) -> None:
    """Raises InvalidGrammar if a tool cannot be enforced; its path begins with `tools[n]`."""
    names = [tool.name for tool in tools]
    for n, name in enumerate(names):
        if name in names[:n]:
            raise InvalidGrammar(f"there are two tools named {name!r}", f"tools[{n}].name")
    if tools:
        call_matcher(model.grammars, model.tokenizer, tools, parallel=False)


_THRESHOLD = -2.6
"""Log probability of a call from which a response is one. On the questions `tune` of benchmarks/tool_calls it has the
best mean of calls made where one is needed and none made elsewhere, over both Qwen2.5-Coder."""

_EXPECTED_THRESHOLD = -3.5
"""The same where the user's words suit a tool. Of the questions in docs/benchmarks/tool-calls.md#built-in-tools, the
1.5B then misses none that asks for notes or reminders."""

_FENCE = "```"
_CALL_STARTS = (CALL_START, "<tools>", _FENCE, "{", '{"', "{\n", "{{", '{{"')
"""How models begin a call. Qwen2.5-Coder was not taught the tag (log probability -22) and writes bare JSON, at times
with two braces, as its template shows it."""


class CallDecision:
    """Decides from the first token's distribution whether a response is a call: whether the tokens that calls begin
    with are likely enough together.

    After a tool's output a response is a call only if the tag is the most likely token. Models that were not taught the
    tag repeat their call then, instead of answering.

    Args:
        after_output: whether the response follows the output of a tool.
        expected: whether a call is likely, by what the user said.
        code: whether a text may begin with code.

    Attributes:
        text_start: what a response may begin with if it is no call: [vocabulary] bool. After a tool's output that is a
            word: small models like to repeat the output, or their call, as it is.
    """

    def __init__(
        self, model: LoadedModel, *, after_output: bool = False, expected: bool = False, code: bool = True
    ) -> None:
        self._threshold = _EXPECTED_THRESHOLD if expected else _THRESHOLD
        first = {start: model.tokenizer.encode_template(start)[0] for start in _CALL_STARTS}
        self._tokens = sorted(set(first.values()))
        self._tag = model.tokenizer.token_id(CALL_START)
        self._after_output = after_output
        if after_output:
            self.text_start = model.grammars.word_starts
        else:
            self.text_start = np.ones(model.grammars.vocabulary, np.bool_)
            self.text_start[sorted(set(first.values()) - ({first[_FENCE]} if code else set()))] = False
            if not code:  # it is spoken: a model that wants to call what is not offered would end at once
                self.text_start[[token for token in model.stop_tokens if token < len(self.text_start)]] = False

    def score(self, logits: Tensor) -> float:
        """Log probability of a call: [vocabulary] → nats."""
        return float(torch.logsumexp(logits[self._tokens], 0) - torch.logsumexp(logits, 0))

    def __call__(self, logits: Tensor) -> bool:
        """Whether the response is a call."""
        if self._after_output:
            return int(logits.argmax()) == self._tag
        return self.score(logits) > self._threshold


def _never(logits: Tensor) -> bool:
    return False


def _validator(model: LoadedModel, tools: Sequence[Tool]) -> Callable[[str, str], bool]:
    by_name = {tool.name: tool for tool in tools}

    def is_valid(name: str, arguments: str) -> bool:
        if name not in by_name:
            return False
        schema = arguments_schema(by_name[name])
        try:
            given = json.loads(arguments)
        except ValueError:
            return False
        return isinstance(given, dict) and model.grammars.follows(_in_order(given, schema), JSONSchema(schema))

    return is_valid


def _in_order(arguments: dict[str, Any], schema: dict[str, Any]) -> str:
    """Arguments in the order of their schema, as a grammar has them."""
    known = {name: arguments[name] for name in schema["properties"] if name in arguments}
    return json.dumps({**known, **arguments}, ensure_ascii=False)

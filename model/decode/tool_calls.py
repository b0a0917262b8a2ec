"""Tool calls: the grammar that enforces them, and the decision whether a response is one.

Small models call too often, or in a form that they were not taught, so both are taken from them: the decision is a
likelihood compared with a threshold, and the envelope and the arguments follow a grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from model.checkpoint.tokenizer import TextTokenizer
from model.checkpoint.tool_call_parser import CALL_END, CALL_START
from model.decode.constraint import GrammarConstraint, mask_logits
from model.decode.grammar import InvalidGrammar, lark_string
from model.decode.grammar_compiler import Allowed, GrammarCompiler, GrammarMatcher
from model.decode.sampling import Sampler

_MAX_CALLS = 8
"""Calls of one response, where several are allowed."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Tool(Protocol):
    """A function that may be called."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def description(self) -> str:
        """What it does, for the model."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments, which are an object."""
        ...


@dataclass(frozen=True)
class FunctionTool:
    """A `Tool` with plain values."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


def declaration(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates expect it."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """The schema that a tool's arguments follow: its parameters, which are an object whether they say so or not.

    Raises:
        InvalidGrammar: they are something else.
    """
    schema = dict(tool.parameters)
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    if schema["type"] != "object":
        raise InvalidGrammar(f"the arguments of a function are an object, not {schema['type']!r}", "parameters.type")
    return schema


def call_matcher(
    compiler: GrammarCompiler, tokenizer: TextTokenizer, tools: Sequence[Tool], *, parallel: bool
) -> GrammarMatcher:
    """A matcher for one call of one of the tools, or for several calls. The model chooses whether they are in tags:
    models that were not taught tags write the JSON alone.

    Raises:
        InvalidGrammar: a tool cannot be enforced; the path begins with `tools[n]`.
    """
    options = []
    for n, tool in enumerate(tools):
        if not _NAME.fullmatch(tool.name):
            raise InvalidGrammar(
                f"{tool.name!r} is not a function's name: use 1 to 64 letters, digits, '_', '-', '.' and ':'",
                f"tools[{n}].name",
            )
        try:
            source = compiler.schema_source(arguments_schema(tool))
        except InvalidGrammar as error:
            path = error.path if error.path.startswith("parameters") else f"parameters.{error.path}".rstrip(".")
            raise InvalidGrammar(error.reason, f"tools[{n}].{path}") from None
        head = lark_string(f'{tool.name}", "arguments": ')
        options.append(f"{head} arguments_{n}\narguments_{n}: %json {json.dumps(source)}")
    rules = "".join(f"option_{n}: {option}\n" for n, option in enumerate(options))
    body = " | ".join(f"option_{n}" for n in range(len(options)))
    start, end = (_tag(tokenizer, tag) for tag in (CALL_START, CALL_END))
    tagged, bare = (
        (f'{form} ("\\n" {form}){{0,{_MAX_CALLS - 1}}}' if parallel else form) for form in ("tagged", "bare")
    )
    head = lark_string('{"name": "')
    grammar = f'start: {tagged} | {bare}\ntagged: {start} "\\n" bare "\\n" {end}\nbare: {head} ({body}) "}}"\n{rules}'
    return compiler.matcher(grammar, is_json=True)


def _tag(tokenizer: TextTokenizer, tag: str) -> str:
    token = tokenizer.token_id(tag)
    return lark_string(tag) if token is None else f"<[{token}]>"


@dataclass
class CallHabit:
    """How a model writes its calls.

    Attributes:
        start: the token that its last call began with; None if it has made none.
    """

    start: int | None = None


class ToolCallConstraint(GrammarConstraint):
    """Lets a response be text or a call, and holds calls to their grammar.

    Args:
        calls: follows calls from their start.
        decide: from the logits [vocabulary] of the first token, whether the response is a call; None if it must be one.
        start_token: the token that begins a call, if the tokenizer has one. It begins a call within text, too.
        text: what text must follow, if anything.
        text_start: what a free text may begin with.
        habit: how the model writes its calls, shared by all responses.
    """

    def __init__(
        self,
        calls: GrammarMatcher,
        decide: Callable[[Tensor], bool] | None,
        start_token: int | None,
        text: GrammarMatcher | None = None,
        text_start: Allowed | None = None,
        habit: CallHabit | None = None,
    ) -> None:
        super().__init__(calls if decide is None else None)
        self._habit, self._has_begun = habit or CallHabit(), False
        self._text_start = text_start
        self._calls, self._decide, self._start_token, self._text = calls, decide, start_token, text
        self.in_call = decide is None
        """Whether a call is being written."""

    @property
    def active(self) -> bool:
        """Whether the next tokens are restricted, or it is not decided yet whether they are."""
        return super().active or self._decide is not None

    def restrict(self, logits: Tensor, draft: Sequence[int], copied: Sequence[int] = ()) -> None:
        """Decide in the first step; mask the logits of a call."""
        self._settle(logits[0])
        super().restrict(logits, draft, copied)

    def accepted_length(self, tokens: Sequence[int]) -> int:
        """All of them, but nothing after the start of a call: what follows has not been restricted."""
        if self._matcher is not None or self._start_token is None or self._start_token not in tokens:
            return len(tokens)
        return tokens.index(self._start_token) + 1

    def commit(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Follow the grammar; the start of a call within text begins its grammar."""
        if tokens and not self._has_begun:
            self._has_begun = True
            if self.in_call:
                self._habit.start = tokens[0]
        if self._matcher is None and tokens and tokens[-1] == self._start_token:
            self._matcher, self.in_call = self._calls, True
            return super().commit(tokens[-1:])
        return super().commit(tokens)

    def guess(self, limit: int) -> tuple[int, ...]:
        """Before anything is written, the head of a call: verified with the end of the prompt, it saves a forward pass
        if the response is one."""
        if self._has_begun or self._habit.start is None:
            return super().guess(limit)
        return self._calls.continuation(self._habit.start, limit)

    def advance(self, token: int | None, logits: Tensor, sampler: Sampler) -> int | None:
        """Commit the next token of a block."""
        self._settle(logits)
        if self._matcher is None and token is not None and token == self._start_token:
            self._matcher, self.in_call = self._calls, True
        return super().advance(token, logits, sampler)

    def _settle(self, logits: Tensor) -> None:
        """Decide whether the response is a call, if that is open."""
        if self._decide is None:
            return
        self.in_call, self._decide = self._decide(logits), None
        self._matcher = self._calls if self.in_call else self._text
        if self._matcher is None and self._text_start is not None:
            with torch.inference_mode():  # the logits were computed in it
                mask_logits(logits, self._text_start)

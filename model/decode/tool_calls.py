"""Tool calls: how tools are declared, the grammar of calls, and the constraint that lets a response be text or calls.

Small models call too often, or in a form that they were not taught, so both are taken from them: `call_decision.py`
decides, and the envelope and the arguments follow a grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from chat.types import Tool
from model.checkpoint.tokenizer import TextTokenizer
from model.checkpoint.tool_call_parser import CALL_END, CALL_START
from model.decode.call_decision import CallDecision
from model.decode.call_margins import CallMargins
from model.decode.constraint import Constraint, RowRule, mask_logits
from model.decode.draft import Path
from model.decode.grammar import InvalidGrammar, lark_string
from model.decode.grammar_compiler import Allowed, GrammarCompiler, GrammarMatcher
from model.decode.option_tree import OptionTree
from model.decode.sampling import Sampler

_MAX_CALLS = 8
"""Calls of one response, where several are allowed."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")

_OPTIONAL = "Optional: leave it out unless the user says it."
"""What the prompt says about optional parameters. Small models overlook `required`."""


def declaration(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates expect it: optional parameters come last, and say that they are optional."""
    parameters = dict(tool.parameters)
    properties, required = parameters.get("properties"), parameters.get("required", [])
    if isinstance(properties, Mapping) and isinstance(required, list):
        parameters["properties"] = {
            name: schema if name in required or not isinstance(schema, Mapping) else _as_optional(schema)
            for name, schema in _required_first(properties, required).items()
        }
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _as_optional(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "description": f"{_OPTIONAL} {schema.get('description', '')}".rstrip()}


def _required_first(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return dict(sorted(properties.items(), key=lambda entry: entry[0] not in required))


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """The schema that a tool's arguments follow: its parameters, which are an object whether they say so or not, the
    required ones first.

    Raises:
        InvalidGrammar: they are something else.
    """
    schema = dict(tool.parameters)
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    if schema["type"] != "object":
        raise InvalidGrammar(f"the arguments of a function are an object, not {schema['type']!r}", "parameters.type")
    if isinstance(schema["properties"], Mapping) and isinstance(schema.get("required", []), list):
        schema["properties"] = _required_first(schema["properties"], schema.get("required", []))
    return schema


def most_calls(*, parallel: bool, most: int | None) -> int:
    """How many calls one response may make, if so many are asked for."""
    return min(most or _MAX_CALLS, _MAX_CALLS) if parallel else 1


def call_matcher(
    compiler: GrammarCompiler,
    tokenizer: TextTokenizer,
    tools: Sequence[Tool],
    *,
    parallel: bool,
    most: int | None = None,
) -> GrammarMatcher:
    """A matcher for one call of one of the tools, or, if they may be parallel, for several: at most so many, or 8. The
    model chooses whether they are in tags: models that were not taught tags write the JSON alone.

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
    more = most_calls(parallel=parallel, most=most) - 1
    tagged, bare = ((f'{form} ("\\n" {form}){{0,{more}}}' if more else form) for form in ("tagged", "bare"))
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


class ToolCallConstraint(Constraint):
    """Lets a response be text or a call, and holds calls to their grammar.

    Args:
        calls: follows calls from their start.
        decision: whether the response is a call; None if it must be one, or must not be.
        required: whether it must be one, without a decision.
        start_token: the token that begins a call, if the tokenizer has one. It begins a call within text, too.
        text: what text must follow, if anything.
        text_start: what a free text may begin with.
        margins: for the choices within calls.
        habit: how the model writes its calls, shared by all responses.
    """

    in_call = False

    def __init__(
        self,
        calls: GrammarMatcher,
        decision: CallDecision | None,
        start_token: int | None,
        text: GrammarMatcher | None = None,
        text_start: Allowed | None = None,
        *,
        required: bool = False,
        margins: CallMargins | None = None,
        habit: CallHabit | None = None,
    ) -> None:
        super().__init__(calls if required else None)
        self._habit, self._has_begun = habit or CallHabit(), False
        self._calls, self._decision, self._start_token, self._text = calls, decision, start_token, text
        self._text_start, self._margins = text_start, margins
        self._options: OptionTree | None = None
        self._is_open = not required
        self._written: list[int] = []
        self.in_call = required

    @property
    def active(self) -> bool:
        """Whether the next tokens are restricted, or it is not decided yet whether they are."""
        return super().active or self._is_open

    @property
    def observes(self) -> bool:
        """See `Constraint`: whether the decision takes the features of the first step."""
        return self._is_open and self._decision is not None and self._decision.observes

    def observe(self, features: Tensor) -> None:
        if self._decision is not None:
            self._decision.observe(features)

    @property
    def options(self) -> OptionTree | None:
        """The beginnings of calls that are to be scored, if the response may be one."""
        return self._options

    def choose(self, logits: Tensor) -> int | None:
        """Decide by the options' probabilities whether the response is a call, and which."""
        assert self._options is not None and self._decision is not None
        chosen = self._decision.choose(self._options, logits)
        self._options = None
        self._settle(chosen is not None)
        return chosen

    def restrict(self, logits: Tensor, paths: Sequence[Path]) -> None:
        """Decide in the first step, unless there are options to score first; mask the logits of a call."""
        self._decide(logits[0])
        if self._options is None:
            if self._matcher is None and self._text_start is not None and not self._has_begun:
                mask_logits(logits[0], self._text_start)
            super().restrict(logits, paths)

    def _mask(self, logits: Tensor, allowed: Allowed, drafted: Sequence[int]) -> None:
        if self.in_call and self._margins is not None and not isinstance(allowed, int):
            bonus = self._decision.several_bonus if self._decision is not None else 0.0
            self._margins.mask(logits, allowed, [*self._written, *drafted], bonus)
        else:
            super()._mask(logits, allowed, drafted)

    def rules(self, draft: Sequence[int]) -> list[RowRule]:
        """See `Constraint`. The decision is made by logits."""
        return [] if self._is_open else super().rules(draft)

    def _rule(self, allowed: Allowed, drafted: Sequence[int]) -> RowRule | None:
        if self.in_call and self._margins is not None and not isinstance(allowed, int):
            return self._margins.rule(allowed, [*self._written, *drafted])
        return super()._rule(allowed, drafted)

    def accepted_length(self, tokens: Sequence[int]) -> int:
        """All of them, but nothing after the start of a call: what follows has not been restricted."""
        if self._matcher is not None or self._start_token is None or self._start_token not in tokens:
            return len(tokens)
        return tokens.index(self._start_token) + 1

    def allowed_length(self, tokens: Sequence[int]) -> int:
        """See `Constraint`. Nothing after the start of a call would be committed with it."""
        return super().allowed_length(tokens[: self.accepted_length(tokens)])

    def commit(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Follow the grammar; the start of a call within text begins its grammar."""
        if tokens and not self._has_begun:
            self._has_begun = True
            if self.in_call:
                self._habit.start = tokens[0]
        if self._matcher is None and tokens and tokens[-1] == self._start_token:
            self._matcher, self.in_call, tokens = self._calls, True, tokens[-1:]
        following = super().commit(tokens)
        if self.in_call:
            self._written += [*tokens, *following]
        return following

    def guess(self, limit: int) -> tuple[int, ...]:
        """Before anything is written, the head of a call that is required: verified with the end of the prompt, it
        saves a forward pass."""
        if self._has_begun or self._is_open or self._habit.start is None:
            return super().guess(limit)
        return self._calls.continuation(self._habit.start, limit)

    def advance(self, token: int | None, logits: Tensor, sampler: Sampler) -> int | None:
        """Commit the next token of a block. The decision is made by its first stage alone."""
        if self._is_open:
            self._settle(self._decision is not None and self._decision.may_call(logits))
        if self._matcher is None and token is not None and token == self._start_token:
            self._matcher, self.in_call = self._calls, True
        return super().advance(token, logits, sampler)

    def _decide(self, logits: Tensor) -> None:
        """Decide whether the response is a call, if that is open and needs no further scores."""
        if not self._is_open or self._options is not None:
            return
        if self._decision is None or not self._decision.may_call(logits):
            self._settle(False)
            return
        self._options = self._decision.options(logits)
        if self._options is None:
            self._settle(True)

    def _settle(self, is_call: bool) -> None:
        self.in_call, self._is_open = is_call, False
        self._matcher = self._calls if is_call else self._text

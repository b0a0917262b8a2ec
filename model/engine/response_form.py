"""The form that a response must have: text, tool calls, or what a grammar describes. Built for each request, before it
is queued; read by `conversation.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from chat.progress import Progress
from chat.types import Ask, HandedOver, Message, Opening, Tool
from model.checkpoint.tool_call_parser import CALL_START, ToolCallParser
from model.decode.call_decision import FENCE, CallDecision, start_tokens
from model.decode.constraint import Constraint, OpeningConstraint
from model.decode.grammar import InvalidGrammar, JSONSchema
from model.decode.grammar_compiler import Allowed
from model.decode.token_set import packed
from model.decode.tool_calls import ToolCallConstraint, arguments_schema, call_matcher, most_calls
from model.engine.loader import LoadedModel


@dataclass(frozen=True)
class ResponseForm:
    """The form of one response.

    Attributes:
        constraint: what decoding is held to, if anything.
        parser: separates text and calls; None without tools.
        calls_allowed: whether calls that the model makes count.
        verdict: the kind of request at which the response has ended (`Ask.task`, `Ask.verdicts`); empty if it has not.
    """

    constraint: Constraint | None = None
    parser: ToolCallParser | None = None
    calls_allowed: bool = True
    verdict: Callable[[], HandedOver | Literal[""]] = lambda: ""

    def read(self, progress: Progress) -> Progress:
        """Progress with its tool calls separated from its text. Calls have no draft."""
        if progress.finished == "stop" and (verdict := self.verdict()):
            return replace(progress, committed="", finished=verdict)
        if self.parser is None:
            return progress
        enforced = self.constraint is not None and self.constraint.in_call
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
        shown = 0 if hidden or not progress.draft else self.parser.text_length(progress.draft)
        return replace(
            progress.with_draft_until(shown),
            committed=text,
            tool_calls=tuple(calls),
            finished=finished,
        )


def response_form(model: LoadedModel, ask: Ask) -> ResponseForm:
    """The form of a response. Takes about a millisecond, the first time in a process about a second.

    Raises:
        InvalidGrammar: the grammar, or a tool's parameters, cannot be enforced.
        ValueError: the choice is not possible with these tools.
    """
    grammar, tools, tool_choice = ask.grammar, ask.tools, ask.tool_choice
    after_output = bool(ask.messages) and ask.messages[-1].role == "tool"
    if isinstance(grammar, Opening):
        return ResponseForm(OpeningConstraint(model.grammars.compile(grammar)))
    text = None if grammar is None else model.grammars.compile(grammar)
    if not tools:
        if tool_choice not in ("auto", "none"):
            raise ValueError("tool_choice asks for a call, and there are no tools")
        return ResponseForm(None if text is None else Constraint(text))
    named = None if isinstance(tool_choice, str) else tool_choice.name
    callable_tools = [tool for tool in tools if named in (None, tool.name)]
    if not callable_tools:
        raise ValueError(f"tool_choice names {named!r}, and the tools are {', '.join(tool.name for tool in tools)}")
    parallel, most = ask.parallel_tool_calls, ask.max_tool_calls
    matcher = call_matcher(model.grammars, model.tokenizer, callable_tools, parallel=parallel, most=most)
    start_token = None if tool_choice == "none" else model.tokenizer.token_id(CALL_START)
    decision = None
    if tool_choice == "auto":
        decision = CallDecision(
            model.tokenizer,
            model.call_thresholds,
            [tool.name for tool in callable_tools],
            matcher,
            expected=_answers_question(ask.messages),
            assistant=ask.assistant,
            after_output=after_output,
            gate=None if model.call_gate is None else model.call_gate.odds,
        )
    # A model whose call was declined by the gate would write it as code. Code may still follow a word.
    declines = decision is not None and decision.is_gated
    may_begin_with_code = not ask.spoken and not declines
    constraint = ToolCallConstraint(
        matcher,
        decision,
        start_token,
        text,
        _text_start(model, after_output=after_output, code=may_begin_with_code),
        required=tool_choice not in ("auto", "none"),
        margins=model.call_margins,
        habit=model.call_habit,
    )
    calls_allowed, limit = tool_choice != "none", most_calls(parallel=parallel, most=most)
    parser = ToolCallParser(_validator(model, tools), most=limit, tags_only=not calls_allowed)
    return ResponseForm(constraint, parser, calls_allowed)


def _answers_question(messages: Sequence[Message]) -> bool:
    """Whether the newest message answers a question of the assistant."""
    if [message.role for message in messages[-2:]] != ["assistant", "user"]:
        return False
    return messages[-2].content.rstrip().endswith("?")


def check_tools(model: LoadedModel, tools: Sequence[Tool]) -> None:
    """Raises InvalidGrammar if a tool cannot be enforced; its path begins with `tools[n]`."""
    names = [tool.name for tool in tools]
    for n, name in enumerate(names):
        if name in names[:n]:
            raise InvalidGrammar(f"there are two tools named {name!r}", f"tools[{n}].name")
    if tools:
        call_matcher(model.grammars, model.tokenizer, tools, parallel=False)


def _text_start(model: LoadedModel, *, after_output: bool, code: bool) -> Allowed:
    """What a response may begin with if it is no call. After a tool's output that is a word: small
    models like to repeat the output, or their call, as it is.

    Args:
        code: whether a text may begin with code.
    """
    if after_output:
        return model.grammars.word_starts
    allowed = np.ones(model.grammars.vocabulary, np.bool_)
    allowed[start_tokens(model.tokenizer, leaving_out=(FENCE,) if code else ())] = False
    if not code:  # it is spoken: a model that wants to call what is not offered would end at once
        allowed[[token for token in model.stop_tokens if token < len(allowed)]] = False
    return packed(allowed)


def _validator(model: LoadedModel, tools: Sequence[Tool]) -> Callable[[str, str], bool]:
    by_name = {tool.name: tool for tool in tools}

    def is_valid(name: str, arguments: str) -> bool:
        if name not in by_name:
            return False
        schema = arguments_schema(by_name[name])
        try:
            given = json.loads(arguments)
        except (ValueError, RecursionError):
            return False
        return isinstance(given, dict) and model.grammars.follows(_in_order(given, schema), JSONSchema(schema))

    return is_valid


def _in_order(arguments: dict[str, Any], schema: dict[str, Any]) -> str:
    """Arguments in the order of their schema, as a grammar has them."""
    known = {name: arguments[name] for name in schema["properties"] if name in arguments}
    return json.dumps({**known, **arguments}, ensure_ascii=False)

"""The request of `/v1/responses`. Source: the openai-python SDK's `types/responses`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from server.chat_completions.schema import (
    ContentPart,
    FunctionDefinition,
    GenerationRequest,
    NamedFunction,
    ReasoningEffort,
    Verbosity,
    check_tool_choice,
)
from server.response_format import AnyFormat, StrictModel


class InputItem(StrictModel):
    """An item of the input: a message, a function call or its output."""

    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[ContentPart] | None = None
    id: str | None = None
    status: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[ContentPart] | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> InputItem:
        needed = {
            "message": ("role", "content"),
            "function_call": ("call_id", "name", "arguments"),
            "function_call_output": ("call_id", "output"),
        }[self.type]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"an item of type {self.type!r} needs {' and '.join(map(repr, missing))}")
        return self


class ResponseFunctionTool(FunctionDefinition):
    """A function that the model may call."""

    type: Literal["function"]


class NamedFunctionChoice(NamedFunction):
    """The one function that must be called."""

    type: Literal["function"]


class TextFormat(AnyFormat):
    """What the text must look like."""

    name: str = "answer"
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None

    NEEDED: ClassVar[dict[str, str]] = {**AnyFormat.NEEDED, "json_schema": "schema_"}
    SCHEMA_PATH: ClassVar[str] = "schema"

    @property
    def schema_given(self) -> dict[str, Any] | None:
        return self.schema_


class TextConfig(StrictModel):
    """What kind of text is wanted."""

    format: TextFormat = Field(default_factory=TextFormat)
    verbosity: Verbosity | None = None


class Reasoning(StrictModel):
    """How much the model thinks before it answers."""

    effort: ReasoningEffort | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponseRequest(GenerationRequest):
    """The body of `/v1/responses`."""

    input: str | list[InputItem]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    store: bool | None = None
    reasoning: Reasoning | None = None
    text: TextConfig = Field(default_factory=TextConfig)
    tools: list[ResponseFunctionTool] = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | NamedFunctionChoice = "auto"
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = Field(None, ge=1)
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, str] | None = None
    background: Literal[False] | None = None
    include: list[str] | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)

    # Accepted and without effect.
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    stream_options: dict[str, Any] | None = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether log probabilities were asked for, in either way."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or ())

    @model_validator(mode="after")
    def _is_consistent(self) -> ResponseRequest:
        check_tool_choice(self.tool_choice, self.tools)
        return self

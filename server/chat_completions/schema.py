"""The request of `/v1/chat/completions`: OpenAI's fields, Inception's and a few of our own.

Types and ranges only. Source: the openai-python SDK's `types/chat` and Inception's API description.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from server.response_format import ResponseFormat, StrictModel, without_nulls

MAX_CHOICES = 8
"""Choices of one request; they are generated at the same time."""

MAX_STOP_SEQUENCES = 16

Verbosity = Literal["low", "medium", "high"]

MAX_BIASED_TOKENS = 1024
"""Entries of `logit_bias`."""

ReasoningEffort = Literal["none", "minimal", "instant", "low", "medium", "high", "xhigh"]


class ContentPart(StrictModel):
    """One part of a message's content. Only text can be read."""

    type: str
    text: str | None = None
    refusal: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_readable(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        kind = fields.get("type", "text")
        if kind not in ("text", "input_text", "output_text", "refusal"):
            raise ValueError(f"content of type {str(kind)[:40]!r} cannot be read: this model reads text only")
        return without_nulls(fields)

    @model_validator(mode="after")
    def _is_text(self) -> ContentPart:
        if self.text is None and self.refusal is None:
            raise ValueError("a part of type 'text' needs the field 'text'")
        return self


def content_text(content: str | Sequence[ContentPart] | None) -> str:
    """Content, as one string with a line for each part."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text or part.refusal or "" for part in content)


class FunctionCall(StrictModel):
    """The function and its arguments, as JSON text."""

    name: str
    arguments: str = "{}"
    parsed_arguments: Any = None  # OpenAI's client sends back what it has parsed


class MessageToolCall(StrictModel):
    """A call that the assistant made earlier."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall
    index: int | None = None


class ChatMessage(StrictModel):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    parsed: Any = None
    audio: None = None
    function_call: None = None

    @model_validator(mode="after")
    def _is_complete(self) -> ChatMessage:
        if self.content is None and not self.tool_calls and not self.refusal:
            raise ValueError("a message needs content")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only a message of the assistant has tool_calls")
        if (self.tool_call_id is not None) != (self.role == "tool"):
            raise ValueError("a message of the role 'tool', and no other, needs tool_call_id")
        return self

    @property
    def text(self) -> str:
        """The content, as one string."""
        return content_text(self.content) or self.refusal or ""


class FunctionDefinition(StrictModel):
    """A function that the model may call."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(StrictModel):
    """A tool. Functions are the only kind."""

    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(StrictModel):
    """The name of a function."""

    name: str


class NamedToolChoice(StrictModel):
    """The one function that must be called."""

    type: Literal["function"]
    function: NamedFunction


def check_tool_choice(choice: str | NamedFunction | None, functions: Sequence[FunctionDefinition]) -> None:
    """Raise ValueError if no function is what the model must call."""
    if isinstance(choice, NamedFunction) and choice.name not in {function.name for function in functions}:
        raise ValueError(f"tool_choice names the function {choice.name!r}, which is not among the tools")
    if choice == "required" and not functions:
        raise ValueError("tool_choice is 'required' and there are no tools")


class StreamOptions(StrictModel):
    """What a stream contains."""

    include_usage: bool = False
    include_obfuscation: bool | None = None  # accepted: there is no obfuscation


class ModelRequest(StrictModel):
    """The body of a request to a language model."""

    model: str | None = None


class GenerationRequest(ModelRequest):
    """The body of a request that generates text."""

    SAMPLING_FIELDS: ClassVar[tuple[str, ...]] = ("temperature", "top_p")
    """Those that `Sampling` has under the same name."""

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    stream: bool | None = None
    # Accepted and without effect.
    user: str | None = None


class SamplingFields(GenerationRequest):
    """What every kind of completion accepts."""

    max_tokens: int | None = Field(None, ge=1)
    top_k: int | None = Field(None, ge=-1)
    seed: int | None = None
    stop: Annotated[str, Field(min_length=1)] | list[Annotated[str, Field(min_length=1)]] | None = None
    stream_options: StreamOptions | None = None

    @field_validator("stop")
    @classmethod
    def _few(cls, stop: str | list[str] | None) -> str | list[str] | None:
        if isinstance(stop, list) and len(stop) > MAX_STOP_SEQUENCES:
            raise ValueError(f"at most {MAX_STOP_SEQUENCES} stop sequences are allowed")
        return stop

    @property
    def stop_sequences(self) -> list[str]:
        """`stop`, as a list."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class ChatCompletionRequest(SamplingFields):
    """The body of `/v1/chat/completions`."""

    SAMPLING_FIELDS: ClassVar[tuple[str, ...]] = (
        *SamplingFields.SAMPLING_FIELDS, "frequency_penalty", "presence_penalty", "logit_bias",
    )  # fmt: skip

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    reasoning_effort: ReasoningEffort | None = None
    max_steps: int | None = Field(None, ge=1)
    diffusing: bool | None = None
    speakable: bool | None = None

    verbosity: Verbosity | None = None
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[Annotated[int, Field(ge=0)], Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        None, max_length=MAX_BIASED_TOKENS
    )

    # Accepted where it asks for nothing: clients send their defaults.
    modalities: list[Literal["text"]] | None = None
    # Accepted and without effect.
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    realtime: bool | None = None
    reasoning_summary: bool | None = None
    reasoning_summary_wait: bool | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> ChatCompletionRequest:
        check_tool_choice(self.chosen_function, self.functions)
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs")
        if self.speakable and (self.logprobs or self.diffusing or self.response_format):
            raise ValueError("speakable text has no logprobs, no drafts and no response_format")
        return self

    @property
    def functions(self) -> list[FunctionDefinition]:
        """The functions that the model may call."""
        return [tool.function for tool in self.tools or ()]

    @property
    def chosen_function(self) -> str | NamedFunction | None:
        """Whether one of them is called, and which."""
        return self.tool_choice.function if isinstance(self.tool_choice, NamedToolChoice) else self.tool_choice

    @property
    def token_limit(self) -> int | None:
        """`max_completion_tokens`, or its older name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

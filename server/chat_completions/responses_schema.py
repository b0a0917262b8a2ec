"""The request of `/v1/responses`. Source: the openai-python SDK's `types/responses`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from agent.tool_loop import MAX_SECONDS
from agent.tools.mcp_tool import McpTool
from server.chat_completions.schema import (
    ContentPart,
    FunctionDefinition,
    GenerationRequest,
    NamedFunction,
    ReasoningEffort,
    Verbosity,
    check_tool_choice,
)
from server.mcp_access import is_wanted
from server.response_format import AnyFormat, StrictModel


class ItemPart(ContentPart):
    """One part of an item's content. Clients send back what a response has said, with what belongs to it."""

    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class InputItem(StrictModel):
    """An item of the input: a message, a function call or its output, or a call of an earlier response."""

    type: Literal["message", "function_call", "function_call_output", "mcp_call", "mcp_list_tools"] = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[ItemPart] | None = None
    id: str | None = None
    status: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[ItemPart] | None = None
    server_label: str | None = None
    error: str | None = None
    tools: list[dict[str, Any]] | None = None
    approval_request_id: str | None = None
    phase: str | None = None
    async_: None = Field(None, alias="async")
    caller: None = None
    namespace: None = None

    @model_validator(mode="after")
    def _is_complete(self) -> InputItem:
        needed = {
            "message": ("role", "content"),
            "function_call": ("call_id", "name", "arguments"),
            "function_call_output": ("call_id", "output"),
            "mcp_call": ("id", "name", "arguments"),
            "mcp_list_tools": (),
        }[self.type]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"an item of type {self.type!r} needs {' and '.join(map(repr, missing))}")
        return self


class ResponseFunctionTool(FunctionDefinition):
    """A function that the model may call."""

    type: Literal["function"]


class McpToolFilter(StrictModel):
    """Selects tools of an MCP server: those with these names, or those that change nothing, or both."""

    tool_names: list[str] | None = None
    read_only: bool | None = None


class McpApproval(StrictModel):
    """Which tools may be called without the client's approval."""

    always: McpToolFilter | None = None
    never: McpToolFilter | None = None


class ResponseMcpTool(StrictModel):
    """An MCP server whose tools the response may call. The server calls them itself."""

    type: Literal["mcp"]
    server_label: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    server_url: str = Field(max_length=2048)
    server_description: str | None = Field(None, max_length=32_768)
    headers: dict[str, str] | None = Field(None, max_length=64, exclude=True)
    authorization: str | None = Field(None, max_length=8192, exclude=True)
    allowed_tools: list[str] | McpToolFilter | None = None
    require_approval: Literal["always", "never"] | McpApproval | None = None

    @model_validator(mode="after")
    def _needs_no_approval(self) -> ResponseMcpTool:
        if self.require_approval in (None, "always") or self._unapproved == []:
            raise ValueError("calls cannot be approved here: allow them by require_approval, 'never' for all tools")
        return self

    @property
    def _unapproved(self) -> list[str] | None:
        """Names of the tools that need no approval; None for all."""
        if not isinstance(self.require_approval, McpApproval):
            return None
        never, always = self.require_approval.never, self.require_approval.always
        names = (never and never.tool_names) or []
        return [name for name in names if name not in ((always and always.tool_names) or [])]

    def allows(self, tool: McpTool) -> bool:
        """Whether a tool may be called. Tools that would need approval may not."""
        return is_wanted(self.allowed_tools, tool) and (self._unapproved is None or tool.name in self._unapproved)


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
    tools: list[Annotated[ResponseFunctionTool | ResponseMcpTool, Field(discriminator="type")]] = Field(
        default_factory=list
    )
    tool_choice: Literal["none", "auto", "required"] | NamedFunctionChoice = "auto"
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = Field(None, ge=1)
    max_tool_seconds: float = Field(MAX_SECONDS, gt=0, le=3600)
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
    def functions(self) -> list[ResponseFunctionTool]:
        """The client's own functions."""
        return [tool for tool in self.tools if isinstance(tool, ResponseFunctionTool)]

    @property
    def mcp_servers(self) -> list[ResponseMcpTool]:
        """The servers whose tools the response may call."""
        return [tool for tool in self.tools if isinstance(tool, ResponseMcpTool)]

    @property
    def wants_logprobs(self) -> bool:
        """Whether log probabilities were asked for, in either way."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or ())

    @model_validator(mode="after")
    def _is_consistent(self) -> ResponseRequest:
        if self.tool_choice != "required" or not self.mcp_servers:
            check_tool_choice(self.tool_choice, self.functions)
        labels = [server.server_label for server in self.mcp_servers]
        if len(set(labels)) < len(labels):
            raise ValueError("two MCP servers have the same server_label")
        return self

"""The types of the OpenAI Realtime protocol (GA names) that Rejoinder supports.

Types only: `conversation.py` implements them. Source: the openai-python SDK's `types/realtime`.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from server.realtime.items import ConversationItem, InputItem
from server.realtime.session_config import (
    OutputAudioFormat,
    Prompt,
    Reasoning,
    ToolChoice,
    Tools,
)
from server.response_format import ResponseFormat, StrictModel, VoiceID


def new_event_id() -> str:
    """A new id for a server event."""
    return f"event_{uuid.uuid4().hex[:20]}"


# Client events.


class ResponseAudioOutput(StrictModel):
    """The audio of one response."""

    format: OutputAudioFormat | None = None
    voice: Annotated[str, Field(max_length=256)] | VoiceID | None = None


class ResponseAudioConfig(StrictModel):
    """The audio of one response."""

    output: ResponseAudioOutput | None = None


MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class ResponseCreateParams(StrictModel):
    """Settings of one response that override those of the session, and what it responds to."""

    audio: ResponseAudioConfig | None = None
    conversation: Literal["auto", "none"] = "auto"
    input: list[InputItem] | None = Field(None, max_length=2000)
    instructions: str | None = Field(None, max_length=32_768)
    max_output_tokens: Annotated[int, Field(ge=1, le=4096)] | Literal["inf"] | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = Field(None, max_length=16)
    output_modalities: list[Literal["audio", "text"]] | None = Field(None, min_length=1, max_length=1)
    parallel_tool_calls: bool | None = None
    prompt: Prompt | None = None
    reasoning: Reasoning | None = None
    response_format: ResponseFormat | None = None
    tool_choice: ToolChoice | None = None
    tools: Tools | None = None


class _ClientEvent(StrictModel):
    event_id: str | None = Field(None, max_length=512)


class SessionUpdate(_ClientEvent):
    type: Literal["session.update"]
    session: dict[str, Any]


class InputAudioBufferAppend(_ClientEvent):
    type: Literal["input_audio_buffer.append"]
    audio: str


class InputAudioBufferCommit(_ClientEvent):
    type: Literal["input_audio_buffer.commit"]


class InputAudioBufferClear(_ClientEvent):
    type: Literal["input_audio_buffer.clear"]


class ConversationItemCreate(_ClientEvent):
    type: Literal["conversation.item.create"]
    item: ConversationItem
    previous_item_id: str | None = None


class ConversationItemDelete(_ClientEvent):
    type: Literal["conversation.item.delete"]
    item_id: str


class ConversationItemRetrieve(_ClientEvent):
    type: Literal["conversation.item.retrieve"]
    item_id: str


class ConversationItemTruncate(_ClientEvent):
    type: Literal["conversation.item.truncate"]
    item_id: str
    content_index: Literal[0]
    audio_end_ms: int = Field(ge=0)


class ResponseCreate(_ClientEvent):
    type: Literal["response.create"]
    response: ResponseCreateParams | None = None


class ResponseCancel(_ClientEvent):
    type: Literal["response.cancel"]
    response_id: str | None = None


class Dtmf(_ClientEvent):
    """Extension: a telephone key was pressed. It is forwarded to clients that include `rejoinder.dtmf`."""

    type: Literal["rejoinder.dtmf"]
    digit: str = Field(pattern="^[0-9A-D*#]$")


ClientEvent = Annotated[
    SessionUpdate
    | InputAudioBufferAppend
    | InputAudioBufferCommit
    | InputAudioBufferClear
    | ConversationItemCreate
    | ConversationItemDelete
    | ConversationItemRetrieve
    | ConversationItemTruncate
    | ResponseCreate
    | ResponseCancel
    | Dtmf,
    Field(discriminator="type"),
]
CLIENT_EVENT: TypeAdapter[ClientEvent] = TypeAdapter(ClientEvent)


# Server events.


class ServerEvent(BaseModel):
    """An event of the protocol, with the fields of its type.

    The code that sends an event sets its fields. A test validates every event of whole conversations against the openai
    SDK's own types.
    """

    model_config = ConfigDict(extra="allow")

    type: str
    event_id: str = Field(default_factory=new_event_id)


def server_event(type: str, **fields: Any) -> ServerEvent:
    """A server event."""
    return ServerEvent(type=type, **fields)


def error_event(
    message: str,
    code: str,
    *,
    type: Literal["invalid_request_error", "server_error"] = "server_error",
    param: str | None = None,
    event_id: str | None = None,
) -> ServerEvent:
    """An `error` event. `param` is the path of the offending field, `event_id` the id that the client gave."""
    error = {"type": type, "code": code, "message": message, "param": param, "event_id": event_id}
    return server_event("error", error=error)

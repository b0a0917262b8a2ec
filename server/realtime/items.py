"""Conversation items: as clients create them, as the history keeps them, and as server events show them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from server.realtime.validation import InvalidEvent
from server.response_format import StrictModel, without_nulls
from voice.history import FunctionCall, FunctionCallOutput, HistoryItem, Item, new_id

MAX_TEXT = 100_000
"""Characters of one part of a message, and of a function's output."""

ItemId = Annotated[str, Field(min_length=1, max_length=64)]
Status = Literal["completed", "incomplete", "in_progress"]


class _Part(StrictModel):
    """A part of a message."""

    _drop_nulls = model_validator(mode="before")(without_nulls)


class Text(_Part):
    """Text of a message."""

    type: Literal["input_text", "output_text"]
    text: str = Field(max_length=MAX_TEXT)


class Audio(_Part):
    """Speech: its transcript, or for the user base64 audio in the session's input format, which is transcribed."""

    type: Literal["input_audio", "output_audio"]
    audio: str | None = None
    transcript: str | None = Field(None, max_length=MAX_TEXT)


class InputImage(_Part):
    """An image, which no language model here can see: always rejected."""

    type: Literal["input_image"]
    image_url: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


Content = Annotated[Text | Audio | InputImage, Field(discriminator="type")]


class _NewItem(StrictModel):
    id: ItemId | None = None
    object: Literal["realtime.item"] | None = None
    status: Status | None = None


class MessageItem(_NewItem):
    """A message to add to the conversation."""

    type: Literal["message"]
    role: Literal["system", "user", "assistant"]
    content: list[Content] = Field(min_length=1, max_length=64)


class FunctionCallItem(_NewItem):
    """A function call that the assistant made earlier."""

    type: Literal["function_call"]
    name: str = Field(max_length=64)
    arguments: str = Field(max_length=MAX_TEXT)
    call_id: str | None = Field(None, min_length=1, max_length=64)


class FunctionCallOutputItem(_NewItem):
    """What a function returned."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1, max_length=64)
    output: str = Field(max_length=MAX_TEXT)


class McpApprovalResponseItem(StrictModel):
    """Whether a call of an MCP server's tool may be made."""

    type: Literal["mcp_approval_response"]
    id: ItemId | None = None
    approval_request_id: str = Field(max_length=64)
    approve: bool
    reason: str | None = Field(None, max_length=4096)


class ItemReference(StrictModel):
    """Stands for an item of the conversation."""

    type: Literal["item_reference"]
    id: str


CreatedItem = MessageItem | FunctionCallItem | FunctionCallOutputItem
ConversationItem = Annotated[CreatedItem | McpApprovalResponseItem, Field(discriminator="type")]
InputItem = Annotated[CreatedItem | ItemReference, Field(discriminator="type")]


def history_item(created: CreatedItem) -> tuple[HistoryItem, str | None]:
    """The history's item for one that a client creates, and its audio if that must be transcribed.

    Raises:
        InvalidEvent: it has an image, more than one recording, or arguments that are no JSON object.
    """
    item_id = created.id or new_id("item")
    match created:
        case FunctionCallItem():
            _check_arguments(created.arguments)
            call_id, complete = created.call_id or new_id("call"), created.status in (None, "completed")
            return FunctionCall(item_id, call_id, created.name, created.arguments, complete), None
        case FunctionCallOutputItem():
            return FunctionCallOutput(item_id, created.call_id, created.output), None
        case MessageItem():
            return _message(item_id, created)


def _message(item_id: str, created: MessageItem) -> tuple[Item, str | None]:
    texts: list[str] = []
    recordings: list[str] = []
    for number, part in enumerate(created.content):
        match part:
            case Text():
                texts.append(part.text)
            case Audio() if part.transcript is not None:
                texts.append(part.transcript)
            case Audio(type="input_audio") if part.audio is not None and created.role == "user":
                recordings.append(part.audio)
            case InputImage():
                raise InvalidEvent(
                    "images are not supported: the language model reads text only, so describe the image in words",
                    param=f"content.{number}.type",
                )
            case _:
                raise InvalidEvent(
                    "audio needs a transcript, or for a message of the user the audio itself",
                    param=f"content.{number}.transcript",
                )
    if len(recordings) > 1:
        raise InvalidEvent("a message may contain one recording: create an item for each", param="content")
    item = Item(item_id, created.role, "\n".join(filter(None, texts)), spoken=bool(recordings), complete=not recordings)
    return item, recordings[0] if recordings else None


def _check_arguments(arguments: str) -> None:
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"the arguments are not JSON ({error})", param="arguments") from None
    if not isinstance(parsed, dict):
        raise InvalidEvent("the arguments must be a JSON object", param="arguments")


def item_object(item: HistoryItem) -> dict[str, Any]:
    """The item in the protocol's format."""
    common = {
        "id": item.id,
        "object": "realtime.item",
        "status": "completed" if item.complete else "in_progress",
    }
    match item:
        case FunctionCall():
            call = {"name": item.name, "call_id": item.call_id, "arguments": item.arguments}
            return {**common, "type": "function_call", **call}
        case FunctionCallOutput():
            return {**common, "type": "function_call_output", "call_id": item.call_id, "output": item.text}
        case Item():
            return {**common, "type": "message", "role": item.role, "content": [_content(item)]}


def _content(item: Item) -> dict[str, str | None]:
    if item.role == "assistant":
        if item.spoken:
            return {"type": "output_audio", "transcript": item.heard_text}
        return {"type": "output_text", "text": item.text}
    if item.spoken:
        return {"type": "input_audio", "transcript": item.text or None}  # @openai/agents requires the null
    return {"type": "input_text", "text": item.text}

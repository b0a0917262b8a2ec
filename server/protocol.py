"""The types of the OpenAI Realtime protocol (GA names), as far as Rejoinder speaks it.

Types only: `realtime.py` says what they mean. Source: the openai-python SDK's `types/realtime`.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from voice.audio import TELEPHONE_RATE, Encoding
from voice.persona import INSTRUCTIONS
from voice.timing import Timing


def new_event_id() -> str:
    """An id for a server event."""
    return f"event_{uuid.uuid4().hex[:20]}"


class Strict(BaseModel):
    """A part of what a client sends: an unknown field is an error that names it."""

    model_config = ConfigDict(extra="forbid")


# The session.


class PCM(Strict):
    """16-bit little-endian mono. 24000 Hz is the protocol's; 8000, 16000 and 48000 are understood too."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[8000, 16000, 24000, 48000] = 24000


class OutputPCM(Strict):
    """16-bit little-endian mono at 24 kHz, or at 16 or 8 kHz."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[8000, 16000, 24000] = 24000


class PCMU(Strict):
    """G.711 µ-law, 8 kHz mono: a byte a sample."""

    type: Literal["audio/pcmu"]

    @property
    def rate(self) -> int:
        """Hz."""
        return TELEPHONE_RATE


class PCMA(Strict):
    """G.711 A-law, 8 kHz mono: a byte a sample."""

    type: Literal["audio/pcma"]

    @property
    def rate(self) -> int:
        """Hz."""
        return TELEPHONE_RATE


ENCODINGS: dict[str, Encoding] = {"audio/pcm": "pcm", "audio/pcmu": "pcmu", "audio/pcma": "pcma"}
"""How each format writes its samples."""


class ServerVAD(Strict):
    """Silence alone ends a turn, always as much."""

    type: Literal["server_vad"] = "server_vad"
    threshold: float = Field(0.5, ge=0.0, le=1.0)
    prefix_padding_ms: int = Field(Timing.prefix_ms, ge=0, le=2000)
    silence_duration_ms: int = Field(Timing.end_silence_ms, ge=100, le=10_000)
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: None = None


class SemanticVAD(Strict):
    """Silence ends a turn, and what was said and how decides how much of it."""

    type: Literal["semantic_vad"] = "semantic_vad"
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True


class Transcription(Strict):
    """Wanted transcription; the session echoes what is in force."""

    model: str = "whisper-base"
    language: str = Field("en", max_length=16)
    prompt: str = Field("", max_length=4096)


class NoiseReduction(Strict):
    """Accepted so that clients which ask for it still connect; none is done, and the session echoes null."""

    type: Literal["near_field", "far_field"]


class AudioInput(Strict):
    """How sound comes in."""

    format: Annotated[PCM | PCMU | PCMA, Field(discriminator="type")] = PCM()
    noise_reduction: NoiseReduction | None = None
    transcription: Transcription | None = Transcription()
    turn_detection: Annotated[ServerVAD | SemanticVAD, Field(discriminator="type")] | None = SemanticVAD()


class AudioOutput(Strict):
    """How sound goes out."""

    format: Annotated[OutputPCM | PCMU | PCMA, Field(discriminator="type")] = OutputPCM()
    voice: str | dict[str, str] = "default"
    speed: float = Field(1.0, ge=0.25, le=1.5)


class Audio(Strict):
    """Sound, both ways."""

    input: AudioInput = AudioInput()
    output: AudioOutput = AudioOutput()


Include = Literal[
    "rejoinder.draft",
    "rejoinder.dtmf",
    "rejoinder.phase",
    "rejoinder.transcript",
    "rejoinder.turn",
    "item.input_audio_transcription.logprobs",
]
"""What a client may ask for besides; those of ours are extension events, which clients that do not know them never
see. The last is accepted and has no effect."""


class SessionConfig(Strict):
    """The whole configuration of a conversation. A `session.update` is merged into it field by field."""

    type: Literal["realtime"] = "realtime"
    model: str = Field("", max_length=256)
    instructions: str = Field(INSTRUCTIONS, max_length=32_768)
    output_modalities: list[Literal["audio", "text"]] = Field(["audio"], min_length=1, max_length=1)
    max_output_tokens: Annotated[int, Field(ge=1, le=4096)] | Literal["inf"] = "inf"
    audio: Audio = Audio()
    include: list[Include] | None = None
    # Not there yet: an empty value is accepted, anything else is an error that names the field.
    tools: list[Any] = Field([], max_length=0)
    tool_choice: Literal["auto", "none"] = "auto"
    parallel_tool_calls: bool = True
    # Meaningful only to OpenAI's own service; accepted and without effect.
    tracing: Any = None
    truncation: Any = "auto"
    prompt: None = None
    reasoning: Any = None


# What clients send.


class InputText(Strict):
    """Written words of the user or of the system."""

    type: Literal["input_text"]
    text: str = Field(max_length=100_000)


class OutputText(Strict):
    """Words of the assistant."""

    type: Literal["output_text"]
    text: str = Field(max_length=100_000)


Content = Annotated[InputText | OutputText, Field(discriminator="type")]


class NewItem(Strict):
    """A message to add to the conversation."""

    type: Literal["message"]
    id: str | None = Field(None, min_length=1, max_length=64)
    object: Literal["realtime.item"] | None = None
    status: Literal["completed", "incomplete", "in_progress"] | None = None
    role: Literal["system", "user", "assistant"]
    content: list[Content] = Field(min_length=1, max_length=64)


class ResponseConfig(Strict):
    """What one answer does differently from the session."""

    instructions: str | None = Field(None, max_length=32_768)
    output_modalities: list[Literal["audio", "text"]] | None = Field(None, min_length=1, max_length=1)
    max_output_tokens: Annotated[int, Field(ge=1, le=4096)] | Literal["inf"] | None = None
    metadata: dict[str, str] | None = None
    conversation: Literal["auto"] = "auto"
    tools: list[Any] = Field([], max_length=0)
    tool_choice: Literal["auto", "none"] = "auto"


class _ClientEvent(Strict):
    event_id: str | None = Field(None, max_length=512)


class SessionUpdate(_ClientEvent):
    type: Literal["session.update"]
    session: dict[str, Any]


class AudioAppend(_ClientEvent):
    type: Literal["input_audio_buffer.append"]
    audio: str


class AudioCommit(_ClientEvent):
    type: Literal["input_audio_buffer.commit"]


class AudioClear(_ClientEvent):
    type: Literal["input_audio_buffer.clear"]


class ItemCreate(_ClientEvent):
    type: Literal["conversation.item.create"]
    item: NewItem
    previous_item_id: str | None = None


class ItemDelete(_ClientEvent):
    type: Literal["conversation.item.delete"]
    item_id: str


class ItemRetrieve(_ClientEvent):
    type: Literal["conversation.item.retrieve"]
    item_id: str


class ItemTruncate(_ClientEvent):
    type: Literal["conversation.item.truncate"]
    item_id: str
    content_index: Literal[0]
    audio_end_ms: int = Field(ge=0)


class ResponseCreate(_ClientEvent):
    type: Literal["response.create"]
    response: ResponseConfig | None = None


class ResponseCancel(_ClientEvent):
    type: Literal["response.cancel"]
    response_id: str | None = None


class Dtmf(_ClientEvent):
    """An extension: somebody pressed a key of a telephone. Clients that ask for `rejoinder.dtmf` are told."""

    type: Literal["rejoinder.dtmf"]
    digit: str = Field(pattern="^[0-9A-D*#]$")


ClientEvent = Annotated[
    SessionUpdate
    | AudioAppend
    | AudioCommit
    | AudioClear
    | ItemCreate
    | ItemDelete
    | ItemRetrieve
    | ItemTruncate
    | ResponseCreate
    | ResponseCancel
    | Dtmf,
    Field(discriminator="type"),
]
CLIENT_EVENT: TypeAdapter[ClientEvent] = TypeAdapter(ClientEvent)


# What the server sends.


class ErrorDetail(BaseModel):
    """What was wrong. `param` is the path of the offending field, `event_id` the client's own id of its event."""

    type: Literal["invalid_request_error", "server_error"] = "invalid_request_error"
    code: str | None = None
    message: str
    param: str | None = None
    event_id: str | None = None


class ServerEvent(BaseModel):
    """An event to the client, of a type of the protocol with the fields that belong to it.

    The fields of each type are written where it is sent, and a test validates every event of whole conversations
    against the openai SDK's own types.
    """

    model_config = ConfigDict(extra="allow")

    type: str
    event_id: str = Field(default_factory=new_event_id)


def event(type: str, **fields: Any) -> ServerEvent:
    """A server event."""
    return ServerEvent(type=type, **fields)


def error(detail: ErrorDetail) -> ServerEvent:
    """An `error` event."""
    return event("error", error=detail.model_dump())

"""The types of the OpenAI Realtime protocol (GA names) that Rejoinder supports.

Types only: `conversation.py` implements them. Source: the openai-python SDK's `types/realtime`.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from voice.audio.codec import TELEPHONE_RATE, Encoding
from voice.instructions import INSTRUCTIONS
from voice.timing import Timing


def new_event_id() -> str:
    """A new id for a server event."""
    return f"event_{uuid.uuid4().hex[:20]}"


class StrictModel(BaseModel):
    """A part of a client event. An unknown field is an error that names it."""

    model_config = ConfigDict(extra="forbid")


# Session configuration.


class AudioPCM(StrictModel):
    """16-bit little-endian mono. The protocol has 24000 Hz only; 8000, 16000 and 48000 are extensions."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[8000, 16000, 24000, 48000] = 24000


class OutputAudioPCM(StrictModel):
    """16-bit little-endian mono. The protocol has 24000 Hz only; 8000 and 16000 are extensions."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[8000, 16000, 24000] = 24000


class AudioPCMU(StrictModel):
    """G.711 µ-law, 8 kHz mono, one byte per sample."""

    type: Literal["audio/pcmu"]

    @property
    def rate(self) -> int:
        """Hz."""
        return TELEPHONE_RATE


class AudioPCMA(StrictModel):
    """G.711 A-law, 8 kHz mono, one byte per sample."""

    type: Literal["audio/pcma"]

    @property
    def rate(self) -> int:
        """Hz."""
        return TELEPHONE_RATE


ENCODINGS: dict[str, Encoding] = {"audio/pcm": "pcm", "audio/pcmu": "pcmu", "audio/pcma": "pcma"}
"""The sample encoding of each audio format."""


class ServerVAD(StrictModel):
    """A turn ends after a fixed length of silence."""

    type: Literal["server_vad"] = "server_vad"
    threshold: float = Field(0.5, ge=0.0, le=1.0)
    prefix_padding_ms: int = Field(Timing.prefix_ms, ge=0, le=2000)
    silence_duration_ms: int = Field(Timing.end_silence_ms, ge=100, le=10_000)
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: None = None


class SemanticVAD(StrictModel):
    """A turn ends after silence, whose length depends on what the user said and how."""

    type: Literal["semantic_vad"] = "semantic_vad"
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True


class AudioTranscription(StrictModel):
    """Requested transcription. The session object reports the settings in effect."""

    model: str = "whisper-base"
    language: str = Field("en", max_length=16)
    prompt: str = Field("", max_length=4096)


class NoiseReduction(StrictModel):
    """Accepted so that clients which request it can connect. It has no effect, and the session object reports null."""

    type: Literal["near_field", "far_field"]


class AudioConfigInput(StrictModel):
    """Configuration of the input audio."""

    format: Annotated[AudioPCM | AudioPCMU | AudioPCMA, Field(discriminator="type")] = AudioPCM()
    noise_reduction: NoiseReduction | None = None
    transcription: AudioTranscription | None = AudioTranscription()
    turn_detection: Annotated[ServerVAD | SemanticVAD, Field(discriminator="type")] | None = SemanticVAD()


class AudioConfigOutput(StrictModel):
    """Configuration of the output audio."""

    format: Annotated[OutputAudioPCM | AudioPCMU | AudioPCMA, Field(discriminator="type")] = OutputAudioPCM()
    voice: str | dict[str, str] = "default"
    speed: float = Field(1.0, ge=0.25, le=1.5)


class AudioConfig(StrictModel):
    """Configuration of input and output audio."""

    input: AudioConfigInput = AudioConfigInput()
    output: AudioConfigOutput = AudioConfigOutput()


Include = Literal[
    "rejoinder.draft",
    "rejoinder.dtmf",
    "rejoinder.phase",
    "rejoinder.transcript",
    "rejoinder.turn",
    "item.input_audio_transcription.logprobs",
]
"""Values of `include`. The `rejoinder.*` extension events are sent only to clients that include them. The last value is
accepted and has no effect."""


class SessionConfig(StrictModel):
    """The complete configuration of a conversation. A `session.update` is merged into it field by field."""

    type: Literal["realtime"] = "realtime"
    model: str = Field("", max_length=256)
    instructions: str = Field(INSTRUCTIONS, max_length=32_768)
    output_modalities: list[Literal["audio", "text"]] = Field(["audio"], min_length=1, max_length=1)
    max_output_tokens: Annotated[int, Field(ge=1, le=4096)] | Literal["inf"] = "inf"
    audio: AudioConfig = AudioConfig()
    include: list[Include] | None = None
    # Not implemented yet: an empty value is accepted, anything else is an error that names the field.
    tools: list[Any] = Field([], max_length=0)
    tool_choice: Literal["auto", "none"] = "auto"
    parallel_tool_calls: bool = True
    # Specific to OpenAI's service: accepted, without effect.
    tracing: Any = None
    truncation: Any = "auto"
    prompt: None = None
    reasoning: Any = None


# Client events.


class InputText(StrictModel):
    """Text of the user or of the system."""

    type: Literal["input_text"]
    text: str = Field(max_length=100_000)


class OutputText(StrictModel):
    """Text of the assistant."""

    type: Literal["output_text"]
    text: str = Field(max_length=100_000)


Content = Annotated[InputText | OutputText, Field(discriminator="type")]


class ConversationItem(StrictModel):
    """A message to add to the conversation."""

    type: Literal["message"]
    id: str | None = Field(None, min_length=1, max_length=64)
    object: Literal["realtime.item"] | None = None
    status: Literal["completed", "incomplete", "in_progress"] | None = None
    role: Literal["system", "user", "assistant"]
    content: list[Content] = Field(min_length=1, max_length=64)


class ResponseCreateParams(StrictModel):
    """Settings of one response that override those of the session."""

    instructions: str | None = Field(None, max_length=32_768)
    output_modalities: list[Literal["audio", "text"]] | None = Field(None, min_length=1, max_length=1)
    max_output_tokens: Annotated[int, Field(ge=1, le=4096)] | Literal["inf"] | None = None
    metadata: dict[str, str] | None = None
    conversation: Literal["auto"] = "auto"
    tools: list[Any] = Field([], max_length=0)
    tool_choice: Literal["auto", "none"] = "auto"


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


class ErrorDetail(BaseModel):
    """An error. `param` is the path of the offending field, `event_id` the id that the client gave its event."""

    type: Literal["invalid_request_error", "server_error"] = "invalid_request_error"
    code: str | None = None
    message: str
    param: str | None = None
    event_id: str | None = None


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


def error_event(detail: ErrorDetail) -> ServerEvent:
    """An `error` event."""
    return server_event("error", error=detail.model_dump())

"""The configuration of a Realtime session, as clients send it and as the session object reports it.

Types only. Source: the openai-python SDK's `types/realtime`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from agent.instructions import INSTRUCTIONS
from server.response_format import ResponseFormat, StrictModel, VoiceID
from voice.audio.codec import TELEPHONE_RATE, Encoding
from voice.timing import Timing
from voice.tts import DEFAULT_VOICE

MAX_TOOLS = 128
"""Functions of one session or response."""


T = TypeVar("T")

WithoutEffect = Annotated[T | None, AfterValidator(lambda _: None)]
"""A field that means something to OpenAI's service only. It is checked, so that clients learn of mistakes, but not
kept."""


class SparseModel(StrictModel):
    """A part of the session in which null stands for an unset field. Those are not reported: some clients reject fields
    that are newer than they are."""

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None or name not in cls.model_fields}

    @model_serializer(mode="wrap")
    def _without_unset_fields(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = serialize(self)
        return {name: value for name, value in dumped.items() if value is not None}


class AudioPCM(StrictModel):
    """16-bit little-endian mono. The protocol has 24000 Hz only; 8000, 16000 and 48000 are extensions."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[8000, 16000, 24000, 48000] = 24000


class OutputAudioPCM(StrictModel):
    """16-bit little-endian mono. The protocol has 24000 Hz only; 8000 and 16000 are extensions."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[8000, 16000, 24000] = 24000


class AudioG711(StrictModel):
    """G.711, µ-law or A-law: 8 kHz mono, one byte per sample."""

    type: Literal["audio/pcmu", "audio/pcma"]
    rate: ClassVar[int] = TELEPHONE_RATE


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
    idle_timeout_ms: int | None = Field(None, ge=5000, le=30_000)


class SemanticVAD(StrictModel):
    """A turn ends after silence, whose length depends on what the user said and how."""

    type: Literal["semantic_vad"] = "semantic_vad"
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True


class AudioTranscription(SparseModel):
    """How the user is transcribed. The language is used; the model is reported as the client named it."""

    model: str = Field("whisper-base", max_length=256)
    language: str = Field("en", max_length=16)
    prompt: Annotated[str, Field(max_length=4096), AfterValidator(lambda _: "")] = ""
    languages: WithoutEffect[list[str]] = Field(None, max_length=64)
    keywords: WithoutEffect[list[str]] = Field(None, max_length=256)
    delay: WithoutEffect[Literal["minimal", "low", "medium", "high", "xhigh"]] = None
    clean: bool | None = None
    """Extension: a transcription session cleans up what is dictated, and sends `rejoinder.clean`."""


class NoiseReduction(SparseModel):
    """What clients may request of OpenAI's service."""

    type: Literal["near_field", "far_field"] | None = None
    strength: float | None = Field(None, ge=0.0, le=1.0)


InputAudioFormat = Annotated[AudioPCM | AudioG711, Field(discriminator="type")]
OutputAudioFormat = Annotated[OutputAudioPCM | AudioG711, Field(discriminator="type")]


class AudioConfigInput(StrictModel):
    """Configuration of the input audio."""

    format: InputAudioFormat = AudioPCM()
    noise_reduction: WithoutEffect[NoiseReduction] = None
    transcription: AudioTranscription | None = AudioTranscription()
    turn_detection: Annotated[ServerVAD | SemanticVAD, Field(discriminator="type")] | None = SemanticVAD()


class AudioConfigOutput(StrictModel):
    """Configuration of the output audio."""

    format: OutputAudioFormat = OutputAudioPCM()
    voice: Annotated[str, Field(max_length=256)] | VoiceID = DEFAULT_VOICE
    speed: float = Field(1.0, ge=0.25, le=1.5)

    @property
    def voice_name(self) -> str:
        """The name of the voice."""
        return self.voice.id if isinstance(self.voice, VoiceID) else self.voice


class AudioConfig(StrictModel):
    """Configuration of input and output audio."""

    input: AudioConfigInput = AudioConfigInput()
    output: AudioConfigOutput = AudioConfigOutput()


Include = Literal[
    "rejoinder.alarms",
    "rejoinder.caption",
    "rejoinder.draft",
    "rejoinder.dtmf",
    "rejoinder.listeners",
    "rejoinder.phase",
    "rejoinder.remote",
    "rejoinder.resume",
    "rejoinder.sources",
    "rejoinder.transcript",
    "rejoinder.turn",
    "rejoinder.visemes",
    "rejoinder.words",
    "item.input_audio_transcription.logprobs",
]
"""Values of `include`. The `rejoinder.*` extension events are sent only to clients that include them."""

WORD_DETAILS = frozenset(["rejoinder.words", "item.input_audio_transcription.logprobs"])
"""Values of `include` that need the words of a transcript."""

CAPTIONS = frozenset(["rejoinder.caption", "rejoinder.listeners"])
"""Values of `include` that need captions, which transcription sessions have."""


class FunctionTool(SparseModel):
    """A function that a response may call. The client runs it and adds its output to the conversation."""

    type: Literal["function"] = "function"
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = Field(None, max_length=32_768)
    parameters: dict[str, Any] | None = None


class McpToolFilter(SparseModel):
    """Selects tools of an MCP server: those with these names, or those that change nothing, or both."""

    tool_names: list[str] | None = None
    read_only: bool | None = None


class McpApprovalFilter(SparseModel):
    """Which tools of an MCP server need the client's approval for each call."""

    always: McpToolFilter | None = None
    never: McpToolFilter | None = None


class McpServer(SparseModel):
    """An MCP server whose tools a response may call. The server calls them itself."""

    type: Literal["mcp"]
    server_label: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    server_url: str | None = Field(None, max_length=2048)
    server_description: str | None = Field(None, max_length=32_768)
    headers: dict[str, str] | None = Field(None, max_length=64)
    authorization: str | None = Field(None, max_length=8192)
    allowed_tools: list[str] | McpToolFilter | None = None
    require_approval: Literal["always", "never"] | McpApprovalFilter | None = None
    # Specific to OpenAI's service: a connector or a tunnel is rejected.
    connector_id: str | None = Field(None, max_length=256)
    tunnel_id: str | None = Field(None, max_length=256)
    allowed_callers: WithoutEffect[list[Literal["direct", "programmatic"]]] = None
    defer_loading: WithoutEffect[bool] = None


class ToolChoiceMcp(StrictModel):
    """A response must call a tool of this MCP server."""

    type: Literal["mcp"]
    server_label: str = Field(max_length=64)
    name: str | None = Field(None, max_length=64)


class ToolChoiceFunction(StrictModel):
    """A response must call this function."""

    type: Literal["function"]
    name: str = Field(max_length=64)


def _type_of(value: Any) -> str:
    """The type of a tool or a tool choice, which clients may leave out of a function."""
    if isinstance(value, dict):
        return str(value.get("type", "function"))
    return str(getattr(value, "type", "function"))


def _choice(value: Any) -> str:
    return "mode" if isinstance(value, str) else _type_of(value)


ToolChoice = Annotated[
    Annotated[Literal["auto", "none", "required"], Tag("mode")]
    | Annotated[ToolChoiceFunction, Tag("function")]
    | Annotated[ToolChoiceMcp, Tag("mcp")],
    Discriminator(_choice),
]
AnyTool = Annotated[
    Annotated[FunctionTool, Tag("function")] | Annotated[McpServer, Tag("mcp")], Discriminator(_type_of)
]
Tools = Annotated[list[AnyTool], Field(max_length=MAX_TOOLS)]


class Reasoning(SparseModel):
    """How much the language model reasons."""

    effort: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


class Prompt(SparseModel):
    """A prompt template that OpenAI stores."""

    id: str = Field(max_length=256)
    variables: dict[str, Any] | None = None
    version: str | None = None


class Tracing(SparseModel):
    """Names for OpenAI's traces."""

    group_id: str | None = None
    metadata: dict[str, Any] | None = None
    workflow_name: str | None = None


class TokenLimits(SparseModel):
    """How long the conversation may become."""

    post_instructions: int | None = Field(None, ge=0)


class RetentionRatio(SparseModel):
    """How much of the context remains when the oldest messages are dropped."""

    type: Literal["retention_ratio"]
    retention_ratio: float = Field(ge=0.0, le=1.0)
    token_limits: TokenLimits | None = None


class TranscriptionAudioConfig(StrictModel):
    """The audio of a session that only transcribes."""

    input: AudioConfigInput = AudioConfigInput()


class TranscriptionSessionConfig(StrictModel):
    """The complete configuration of a session that only transcribes."""

    type: Literal["transcription"] = "transcription"
    audio: TranscriptionAudioConfig = TranscriptionAudioConfig()
    include: list[Include] | None = None


class SessionConfig(StrictModel):
    """The complete configuration of a conversation. A `session.update` is merged into it field by field. The type is
    `transcription` for the settings that a `TranscriptionSessionConfig` stands for."""

    type: Literal["realtime", "transcription"] = "realtime"
    model: str = Field("", max_length=256)
    instructions: str = Field(INSTRUCTIONS, max_length=32_768)
    output_modalities: list[Literal["audio", "text"]] = Field(["audio"], min_length=1, max_length=1)
    max_output_tokens: Annotated[int, Field(ge=1, le=4096)] | Literal["inf"] = "inf"
    audio: AudioConfig = AudioConfig()
    include: list[Include] | None = None
    tools: Tools = Field(default_factory=list)
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = False
    truncation: Literal["auto", "disabled"] | RetentionRatio = "auto"
    response_format: ResponseFormat | None = None
    """Extension: the form of every response."""
    tracing: WithoutEffect[Literal["auto"] | Tracing] = None
    prompt: WithoutEffect[Prompt] = None
    reasoning: Reasoning | None = None

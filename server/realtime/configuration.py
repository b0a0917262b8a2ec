"""Changes of a session's configuration, and what it means for the voice session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from agent.language_model import LanguageModel
from chat.types import Effort, NamedTool, Tool, ToolChoice, Truncation
from server.budgets import SESSION_CONFIG
from server.realtime.events import ResponseCreateParams
from server.realtime.session_config import (
    CAPTIONS,
    WORD_DETAILS,
    AudioConfig,
    FunctionTool,
    McpServer,
    RetentionRatio,
    SemanticVAD,
    ServerVAD,
    SessionConfig,
    ToolChoiceFunction,
    ToolChoiceMcp,
    TranscriptionSessionConfig,
)
from server.realtime.validation import InvalidEvent, schema_path
from server.response_format import ResponseFormat
from voice.captions import caption_timing
from voice.playback import SessionSettings
from voice.speech_models import SpeechModels
from voice.timing import Timing
from voice.tts import UnknownVoice
from voice.turn_machine import TurnRules

_EAGERNESS = {
    "low": Timing(
        shortest_wait_ms=500, longest_wait_ms=1200, statement_wait_ms=900, doubtful_wait_ms=1500, patient_wait_ms=2000
    ),
    "medium": Timing(),
    "auto": Timing(),
    "high": Timing(
        shortest_wait_ms=160, longest_wait_ms=450, statement_wait_ms=300, doubtful_wait_ms=600, patient_wait_ms=800
    ),
}
"""How long the end of a turn is awaited at each eagerness of `semantic_vad`."""


_EFFORTS: dict[str, Effort] = {"minimal": "instant", "low": "low", "medium": "medium", "high": "high", "xhigh": "high"}
"""Nothing is worked out at `minimal`, as in the text API."""


def default_config(model: str, voice: str) -> SessionConfig:
    """The configuration that a session starts with."""
    config = SessionConfig(model=model)
    config.audio.output.voice = voice
    return config


def updated_config(config: SessionConfig, patch: dict[str, Any]) -> SessionConfig:
    """The configuration after a `session.update`, which is merged into it field by field. A field that is null gets its
    default.

    Raises:
        InvalidEvent: the result is not valid.
    """
    try:
        if patch.get("type", config.type) == "transcription":
            return _transcription_config(config, patch)
        current = config.model_dump() if config.type == "realtime" else _default_realtime(config)
        defaults = SessionConfig().model_dump()
        patch = {name: defaults.get(name) if value is None else value for name, value in patch.items()}
        if "response_format" in patch:
            current["response_format"] = None  # the properties of two schemas are not to be merged
        updated = SessionConfig.model_validate(_merge(current, patch))
    except ValidationError as error:
        raise InvalidEvent.from_validation(error) from None
    _check_tool_names(updated)
    _check_no_transcription_fields(updated)
    return updated


def config_bytes(config: SessionConfig) -> int:
    """The size of a configuration as JSON. Raises InvalidEvent if it is too large."""
    size = len(config.model_dump_json())
    if size > SESSION_CONFIG.bytes:
        raise InvalidEvent(
            f"the session's configuration has {size >> 10} KiB, more than {SESSION_CONFIG.bytes >> 10}: shorten its "
            "tools or instructions",
            code="session_too_large",
        )
    return size


def check_speech(config: SessionConfig, models: SpeechModels) -> None:
    """Check that the recognizer knows the language, and that the voice exists. Raises InvalidEvent."""
    transcription, languages = config.audio.input.transcription, models.recognizer.languages
    if transcription is not None and transcription.language not in languages:
        raise InvalidEvent(
            f"the speech recognizer does not know the language {transcription.language!r}: use one of "
            f"{', '.join(languages)}",
            param="audio.input.transcription.language",
        )
    try:
        models.voices.find(config.audio.output.voice_name)
    except UnknownVoice as error:
        raise InvalidEvent(str(error), param="audio.output.voice") from None


async def check_generation(
    config: SessionConfig,
    earlier: SessionConfig,
    language_model: LanguageModel,
    refusal: Callable[[McpServer], tuple[str, str] | None],
) -> None:
    """Check what a new configuration changes of the tools and the response format: that the language model can write
    calls and responses of this form, and that the MCP servers are allowed.

    Args:
        refusal: returns why an MCP server cannot be used, and the field that says so; None if it can.

    Raises:
        InvalidEvent: one of them is not possible.
    """
    if config.tools != earlier.tools:
        await _check_tools(config, language_model, refusal)
    if config.response_format is not None and config.response_format != earlier.response_format:
        await _check_format(config.response_format, language_model)


async def _check_tools(
    config: SessionConfig, language_model: LanguageModel, refusal: Callable[[McpServer], tuple[str, str] | None]
) -> None:
    for number, tool in enumerate(config.tools):
        if isinstance(tool, McpServer) and (refused := refusal(tool)) is not None:
            message, field = refused
            raise InvalidEvent(message, code="mcp_server_not_allowed", param=f"tools.{number}.{field}")
    try:
        await asyncio.to_thread(language_model.check_tools, session_settings(config).tools)
    except ValueError as error:
        raise InvalidEvent(str(error), param=schema_path(error) or "tools") from None


async def _check_format(wanted: ResponseFormat, language_model: LanguageModel) -> None:
    if (grammar := wanted.as_grammar) is None:
        return
    try:
        await asyncio.to_thread(language_model.check_grammar, grammar)
    except ValueError as error:
        path = wanted.path_of(schema_path(error))
        raise InvalidEvent(str(error), param=f"response_format.{path}") from None


def _default_realtime(config: SessionConfig) -> dict[str, Any]:
    """What a transcription session becomes when the client makes a conversation of it."""
    return default_config(config.model, config.audio.output.voice_name).model_dump()


def _transcription_config(config: SessionConfig, patch: dict[str, Any]) -> SessionConfig:
    current = {"type": "transcription", "audio": {"input": config.audio.input.model_dump()}, "include": config.include}
    updated = TranscriptionSessionConfig.model_validate(_merge(current, patch))
    if updated.audio.input.turn_detection is None and not CAPTIONS.isdisjoint(updated.include or ()):
        message = "captions need turn detection: their times count from the audio in which a turn was detected"
        raise InvalidEvent(message, param="audio.input.turn_detection")
    transcription = updated.audio.input.transcription
    if transcription is not None and transcription.clean and transcription.language != "en":
        message = (
            f"only English can be cleaned up, not {transcription.language!r}: leave clean out, or change the language"
        )
        raise InvalidEvent(message, param="audio.input.transcription.clean")
    audio = AudioConfig(input=updated.audio.input, output=config.audio.output)
    return SessionConfig(type="transcription", model=config.model, audio=audio, include=updated.include)


def session_object(config: SessionConfig) -> dict[str, Any]:
    """The configuration as the session object reports it, without the secrets of MCP servers."""
    if config.type == "realtime":
        dumped = config.model_dump(
            exclude={"tools": {"__all__": {"headers", "authorization"}}, "response_format": True}
        )
        if config.response_format is not None:  # an extension, which only clients that use it need to know
            dumped["response_format"] = config.response_format.model_dump(exclude_none=True)
        return dumped
    audio = {"input": config.audio.input.model_dump()}
    return {"type": "transcription", "audio": audio, "include": config.include}


def response_patch(params: ResponseCreateParams) -> dict[str, Any]:
    """What is different in the configuration of one response."""
    return params.model_dump(exclude_none=True, exclude={"conversation", "input", "metadata", "prompt"})


def after_output(config: SessionConfig) -> SessionConfig:
    """The configuration of a response to a function's output, if its request does not choose. A session that requires
    calls does not require one here: the output would never be spoken."""
    return config if config.tool_choice == "auto" else config.model_copy(update={"tool_choice": "none"})


def session_settings(config: SessionConfig, mcp_tools: Mapping[str, Sequence[Tool]] | None = None) -> SessionSettings:
    """What the configuration means for the voice session.

    Args:
        mcp_tools: by the label of their server.
    """
    detection, captions = config.audio.input.turn_detection, not CAPTIONS.isdisjoint(config.include or ())
    rules = TurnRules()
    if isinstance(detection, ServerVAD):
        timing = Timing(end_silence_ms=detection.silence_duration_ms, prefix_ms=detection.prefix_padding_ms)
        create, interrupt = detection.create_response, detection.interrupt_response
        idle = detection.idle_timeout_ms
        rules = TurnRules(timing, detection.threshold, create, interrupt, silence_only=True, idle_timeout_ms=idle)
    elif isinstance(detection, SemanticVAD):
        create, interrupt = detection.create_response, detection.interrupt_response
        rules = TurnRules(_EAGERNESS[detection.eagerness], 0.5, create, interrupt)
    if config.type == "transcription":
        rules = replace(rules, create_response=False, timing=caption_timing(rules.timing) if captions else rules.timing)
    transcription = config.audio.input.transcription
    tools, choice = _tools(config, mcp_tools or {})
    effort = config.reasoning.effort if config.reasoning is not None else None
    return SessionSettings(
        instructions=config.instructions,
        rules=rules,
        language=transcription.language if transcription is not None else "en",
        word_details=captions or not WORD_DETAILS.isdisjoint(config.include or ()),
        captions=captions,
        detect_turns=detection is not None,
        read_ahead=config.type == "realtime",
        speak=config.output_modalities == ["audio"],
        voice=config.audio.output.voice_name,
        speed=config.audio.output.speed,
        max_tokens=None if config.max_output_tokens == "inf" else config.max_output_tokens,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=config.parallel_tool_calls,
        effort=None if effort is None else _EFFORTS[effort],
        grammar=None if config.response_format is None else config.response_format.as_grammar,
        truncation=_truncation(config),
    )


def _truncation(config: SessionConfig) -> Truncation:
    settings = config.truncation
    if not isinstance(settings, RetentionRatio):
        return Truncation(keep_all=settings == "disabled")
    limits = settings.token_limits
    return Truncation(
        retention_ratio=settings.retention_ratio, max_tokens=limits.post_instructions if limits is not None else None
    )


def _tools(config: SessionConfig, mcp_tools: Mapping[str, Sequence[Tool]]) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The functions that the language model may call, and its choice."""
    choice, tools = config.tool_choice, list[Tool]()
    for tool in config.tools:
        if isinstance(tool, McpServer):
            tools += mcp_tools.get(tool.server_label, ())
        else:
            declared = Tool(tool.name, tool.description or "")
            tools.append(declared if tool.parameters is None else replace(declared, parameters=tool.parameters))
    if not tools:
        return (), "auto"  # nothing can be required
    if isinstance(choice, ToolChoiceFunction):
        return tuple(tools), NamedTool(choice.name)
    if not isinstance(choice, ToolChoiceMcp):
        return tuple(tools), choice
    listed = tuple(mcp_tools.get(choice.server_label, ()))
    if choice.name is not None and any(tool.name == choice.name for tool in listed):
        return tuple(tools), NamedTool(choice.name)
    return (listed, "required") if listed else (tuple(tools), "none")


def _check_no_transcription_fields(config: SessionConfig) -> None:
    """Check that a conversation asks for nothing that transcription sessions alone have. Raises InvalidEvent."""
    transcription, advice = config.audio.input.transcription, "send session.type 'transcription'"
    if not CAPTIONS.isdisjoint(config.include or ()):
        raise InvalidEvent(f"only transcription sessions have captions: {advice}", param="include")
    if transcription is not None and transcription.clean:
        message = f"only what is dictated to a transcription session is cleaned up: {advice}"
        raise InvalidEvent(message, param="audio.input.transcription.clean")


def _check_tool_names(config: SessionConfig) -> None:
    names = [
        ("name", tool.name) if isinstance(tool, FunctionTool) else ("server_label", tool.server_label)
        for tool in config.tools
    ]
    for number, (field, name) in enumerate(names):
        if (field, name) in names[:number]:
            raise InvalidEvent(f"there are two tools named {name!r}", param=f"tools.{number}.{field}")
    functions = [name for field, name in names if field == "name"]
    labels = [name for field, name in names if field == "server_label"]
    choice = config.tool_choice
    if isinstance(choice, ToolChoiceFunction) and choice.name not in functions:
        raise InvalidEvent(
            f"tool_choice names {choice.name!r}, which is not one of the functions ({', '.join(functions) or 'none'})",
            param="tool_choice.name",
        )
    if isinstance(choice, ToolChoiceMcp) and choice.server_label not in labels:
        raise InvalidEvent(
            f"tool_choice names {choice.server_label!r}, which is not one of the MCP servers "
            f"({', '.join(labels) or 'none'})",
            param="tool_choice.server_label",
        )


def _merge(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Merge `patch` into `current`, objects field by field. An object of another `type` replaces the old one."""
    merged = dict(current)
    for key, value in patch.items():
        old = merged.get(key)
        merged[key] = value
        if isinstance(old, dict) and isinstance(value, dict) and value.get("type", old.get("type")) == old.get("type"):
            merged[key] = _merge(old, value)
    return merged

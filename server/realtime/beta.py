"""Translates between the beta shape of the Realtime protocol and the GA shape. Pure functions.

A client asks for the beta with the header `OpenAI-Beta: realtime=v1`. Source: OpenAI's migration guide, and the types
under `openai.types.beta.realtime`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from server.realtime.events import ServerEvent, server_event

_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
_BETA_FORMATS = {ga: beta for beta, ga in _FORMATS.items()}

_SESSION_PATHS: dict[str, tuple[str, ...]] = {
    "input_audio_transcription": ("audio", "input", "transcription"),
    "input_audio_noise_reduction": ("audio", "input", "noise_reduction"),
    "turn_detection": ("audio", "input", "turn_detection"),
    "voice": ("audio", "output", "voice"),
    "speed": ("audio", "output", "speed"),
    "max_response_output_tokens": ("max_output_tokens",),
}
"""Where the fields of a beta session are in a GA session."""

_FORMAT_PATHS: dict[str, tuple[str, ...]] = {
    "input_audio_format": ("audio", "input", "format"),
    "output_audio_format": ("audio", "output", "format"),
}

_DROPPED = frozenset(["temperature", "client_secret"])
"""Fields that the GA protocol has no more."""

_RENAMED = {"output_audio": "audio", "output_audio_transcript": "audio_transcript", "output_text": "text"}
"""`response.*` events whose names were longer in GA than in the beta."""

_CONTENT = {"text": "output_text", "audio": "output_audio"}
"""Content types of the assistant, beta to GA."""


def is_beta(headers: Mapping[str, str], subprotocols: list[str]) -> bool:
    """Whether a client asks for the beta shape when it connects."""
    return "realtime=v1" in headers.get("openai-beta", "") or "openai-beta.realtime-v1" in subprotocols


def from_beta(payload: dict[str, Any]) -> dict[str, Any]:
    """The GA client event for a beta client event. What is not recognized is passed on, for the GA types to reject."""
    match payload:
        case {"type": "session.update" | "transcription_session.update" as event_type, "session": dict() as session}:
            kind = "realtime" if event_type == "session.update" else "transcription"
            return {**payload, "type": "session.update", "session": {"type": kind, **session_from_beta(session)}}
        case {"type": "conversation.item.create", "item": dict() as item}:
            return {**payload, "item": _item_from_beta(item)}
        case {"type": "response.create", "response": dict() as response}:
            translated = session_from_beta(response)
            if isinstance(translated.get("input"), list):
                translated["input"] = [_item_from_beta(item) for item in translated["input"]]
            return {**payload, "response": translated}
        case _:
            return payload


def session_from_beta(session: Mapping[str, Any]) -> dict[str, Any]:
    """The GA configuration for a flat one. Fields that already are in the GA shape stay."""
    translated: dict[str, Any] = {}
    for name, value in session.items():
        if name == "modalities":
            translated["output_modalities"] = ["audio"] if isinstance(value, list) and "audio" in value else ["text"]
        elif name in _FORMAT_PATHS:
            _put(translated, _FORMAT_PATHS[name], {"type": _FORMATS.get(str(value), value)})
        elif name in _SESSION_PATHS:
            _put(translated, _SESSION_PATHS[name], value)
        elif name not in _DROPPED:
            translated[name] = value
    return translated


def to_beta(event: ServerEvent) -> ServerEvent | None:
    """The beta server event for a GA server event; None if the beta has none."""
    fields = dict(event.model_extra or {})
    prefix, _, rest = event.type.partition(".")
    name, _, suffix = rest.partition(".")
    if event.type == "conversation.item.done":
        return None
    event_type = event.type
    if prefix == "response" and name in _RENAMED:
        event_type = f"response.{_RENAMED[name]}.{suffix}"
    elif event.type == "conversation.item.added":
        event_type = "conversation.item.created"
    if "session" in fields:
        fields["session"] = session_to_beta(fields["session"])
    if "response" in fields:
        fields["response"] = _response_to_beta(fields["response"])
    if "item" in fields:
        fields["item"] = _item_to_beta(fields["item"])
    return server_event(event_type, event_id=event.event_id, **fields)


def session_to_beta(session: Mapping[str, Any]) -> dict[str, Any]:
    """The flat configuration for a GA one."""
    flat = {name: value for name, value in session.items() if name not in ("audio", "type", "output_modalities")}
    flat.pop("max_output_tokens", None)
    if "output_modalities" in session:
        flat["modalities"] = _modalities(session)
    for name, path in _FORMAT_PATHS.items():
        if (audio_format := _get(session, path)) is not None:
            flat[name] = _BETA_FORMATS[audio_format["type"]]
    for name, path in _SESSION_PATHS.items():
        if _get(session, path[:-1]) is not None:
            flat[name] = _get(session, path)
    return flat


def _response_to_beta(response: Mapping[str, Any]) -> dict[str, Any]:
    output = _get(response, ("audio", "output")) or {}
    flat = {name: value for name, value in response.items() if name not in ("audio", "output_modalities")}
    flat["modalities"] = _modalities(response)
    flat["voice"] = output.get("voice")
    flat["output_audio_format"] = _BETA_FORMATS[output["format"]["type"]] if "format" in output else None
    flat["output"] = [_item_to_beta(item) for item in response["output"]]
    return flat


def _modalities(configuration: Mapping[str, Any]) -> list[str]:
    return ["text", "audio"] if configuration["output_modalities"] == ["audio"] else ["text"]


def _item_from_beta(item: Any) -> Any:
    if not isinstance(item, dict) or item.get("role") != "assistant" or not isinstance(item.get("content"), list):
        return item
    return {**item, "content": [_renamed(part, _CONTENT) for part in item["content"]]}


def _item_to_beta(item: dict[str, Any]) -> dict[str, Any]:
    if "content" not in item:
        return item
    return {
        **item,
        "content": [_renamed(part, {ga: beta for beta, ga in _CONTENT.items()}) for part in item["content"]],
    }


def _renamed(part: Any, names: Mapping[str, str]) -> Any:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        return part
    return {**part, "type": names.get(part["type"], part["type"])}


def _put(target: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        if not isinstance(target.get(name), dict):
            target[name] = {}
        target = target[name]
    target[path[-1]] = value


def _get(source: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = source
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def beta_sender(send: Callable[[ServerEvent], None]) -> Callable[[ServerEvent], None]:
    """Sends events as clients of the beta protocol know them."""

    def send_beta(event: ServerEvent) -> None:
        if (translated := to_beta(event)) is not None:
            send(translated)

    return send_beta

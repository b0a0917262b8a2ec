"""The table of the Realtime protocol's coverage: made from the types of OpenAI's SDK and from what the server does.

`REJOINDER_WRITE_DOCS=1 pytest tests/test_realtime_coverage.py` writes docs/reference/realtime-coverage.md.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openai.types.realtime import (
    RealtimeClientEvent,
    RealtimeResponseCreateParams,
    RealtimeServerEvent,
    RealtimeSessionCreateRequest,
    RealtimeTranscriptionSessionCreateRequest,
)
from pydantic import BaseModel

from agent.tools.mcp_tool import McpError
from server.realtime.session_config import MAX_TOOLS
from tests.coverage_pages import check_page, table
from tests.server.realtime.conversation_client import Client, hold_conversation, one_turn
from tests.server.realtime.test_items import recording
from tests.server.realtime.test_mcp_tools import URL, McpConversation, connect, converse
from tests.server.realtime.test_response_writer import WEATHER, answer, calling

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "realtime-coverage.md"

UNSUPPORTED_EVENTS = {
    "output_audio_buffer.clear": "WebRTC and SIP only",
    "output_audio_buffer.started": "WebRTC and SIP only",
    "output_audio_buffer.stopped": "WebRTC and SIP only",
    "output_audio_buffer.cleared": "WebRTC and SIP only",
    "input_audio_buffer.dtmf_event_received": "SIP only; [`rejoinder.dtmf`](events.md#rejoinderdtmf) instead",
    "conversation.created": "no longer sent by OpenAI",
    "conversation.item.created": "of the beta, which OpenAI has switched off",
    "conversation.item.input_audio_transcription.segment": "speakers are not told apart",
    "rate_limits.updated": "there are no rate limits",
}
"""Events that are never sent or accepted, and why."""

HOUSE = {"type": "mcp", "server_label": "house", "server_url": URL, "server_description": "The house"}

NO_EFFECT = "no effect, not echoed"

REJECTED_FIELDS = {"tools[].connector_id": "OpenAI's own", "tools[].tunnel_id": "OpenAI's own"}
"""Fields that produce an error."""

SECRETS = ("tools[].headers", "tools[].authorization")

SESSION_SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({}, ""),
    "model": ({"model": "gpt-realtime"}, "the session reports the server's model"),
    "instructions": ({"instructions": "Be brief."}, ""),
    "output_modalities": ({"output_modalities": ["text"]}, ""),
    "max_output_tokens": ({"max_output_tokens": 100}, ""),
    "include": ({"include": ["item.input_audio_transcription.logprobs"]}, ""),
    "parallel_tool_calls": ({"parallel_tool_calls": True}, ""),
    "reasoning.effort": (
        {"reasoning": {"effort": "low"}},
        "numbers and options are worked out from `low` on; bounds denoising steps",
    ),
    "tracing": ({"tracing": {"group_id": "g", "metadata": {"a": "b"}, "workflow_name": "w"}}, NO_EFFECT),
    "prompt": ({"prompt": {"id": "p", "version": "1", "variables": {"a": "b"}}}, NO_EFFECT),
    "truncation": (
        {"truncation": {"type": "retention_ratio", "retention_ratio": 0.8, "token_limits": {"post_instructions": 9}}},
        "by messages; `disabled` makes it an error",
    ),
    "tool_choice": ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "get_weather"}}, ""),
    "tool_choice.server_label": (
        {"tools": [HOUSE], "tool_choice": {"type": "mcp", "server_label": "house"}},
        "",
    ),
    "tools[]": ({"tools": [WEATHER]}, f"up to {MAX_TOOLS}"),
    **{f"tools[].{name}": ({"tools": [HOUSE]}, "") for name in ("server_label", "server_url", "server_description")},
    **{
        f"tools[].{name}": ({"tools": [HOUSE | {name: value}]}, note)
        for name, value, note in (
            ("allowed_tools", {"read_only": True, "tool_names": ["a"]}, ""),
            ("require_approval", {"always": {"read_only": False}, "never": {"tool_names": ["a"]}}, ""),
            ("headers", {"X-Key": "secret"}, "used, not echoed"),
            ("authorization", "secret", "used, not echoed"),
            ("allowed_callers", ["direct"], NO_EFFECT),
            ("defer_loading", True, NO_EFFECT),
        )
    },
    "audio.input.format": (
        {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}}},
        "also 8, 16 and 48 kHz",
    ),
    "audio.input.noise_reduction": (
        {"audio": {"input": {"noise_reduction": {"type": "near_field", "strength": 0.5}}}},
        NO_EFFECT,
    ),
    "audio.input.transcription": (
        {"audio": {"input": {"transcription": {"model": "whisper-1", "language": "en"}}}},
        "the language is used",
    ),
    **{
        f"audio.input.transcription.{name}": ({"audio": {"input": {"transcription": {name: value}}}}, NO_EFFECT)
        for name, value in {"prompt": "p", "delay": "low", "keywords": ["k"], "languages": ["en"]}.items()
    },
    "audio.input.turn_detection": (
        {
            "audio": {
                "input": {
                    "turn_detection": {
                        "type": "server_vad", "create_response": True, "idle_timeout_ms": 6000,
                        "interrupt_response": True, "prefix_padding_ms": 200, "silence_duration_ms": 400,
                        "threshold": 0.6,
                    }
                }
            }
        },
        "",
    ),
    "audio.input.turn_detection.eagerness": (
        {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "low"}}}},
        "",
    ),
    "audio.output.format": ({"audio": {"output": {"format": {"type": "audio/pcmu"}}}}, "also PCM at 8 and 16 kHz"),
    "audio.output.speed": ({"audio": {"output": {"speed": 1.2}}}, ""),
    "audio.output.voice": (
        {"audio": {"output": {"voice": {"id": "other"}}}},
        "one of the server's; OpenAI's names mean the default",
    ),
}  # fmt: skip
"""A value for every field of the SDK's session, by the longest prefix of its path, and a note for the table."""

RESPONSE_SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "conversation": ({"conversation": "none"}, "`auto`, `none`"),
    "input": ({"input": []}, ""),
    "metadata": ({"metadata": {"a": "b"}}, "echoed"),
    "audio.output": ({"audio": {"output": {"format": {"type": "audio/pcmu"}, "voice": "other"}}}, ""),
    **{
        name: SESSION_SAMPLES[name]
        for name in (
            "instructions", "output_modalities", "max_output_tokens", "parallel_tool_calls", "reasoning.effort",
            "prompt", "tool_choice", "tools[]",
        )
    },
    **{name: value for name, value in SESSION_SAMPLES.items() if name.startswith(("tools[].", "tool_choice."))},
}  # fmt: skip


def models(annotation: Any) -> list[type[BaseModel]]:
    """The pydantic models that an annotation mentions."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in models(argument)]


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The paths of a model's fields, in order, without repetitions."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}[]" if name == "tools" else f"{prefix}{name}"
        nested = [] if path in ("input", "prompt") else models(field.annotation)
        inner = [one for sub in nested for one in fields(sub, f"{path}.")]
        yield from dict.fromkeys(inner or [path])


def sample(path: str, samples: Mapping[str, tuple[dict[str, Any], str]]) -> tuple[dict[str, Any], str]:
    """The sample of the longest prefix of a path."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in samples:
            return samples[".".join(parts[:length])]
    raise AssertionError(f"the SDK has a new field {path}: support it, and add a sample")


def contains(whole: Any, part: Any) -> bool:
    """Whether `whole` has all fields of `part`."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(contains(whole.get(name), value) for name, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


def session_rows() -> Iterator[tuple[str, str, str]]:
    """Field, whether it is supported, and a note, for `session.update`."""
    for path in fields(RealtimeSessionCreateRequest):
        if path in REJECTED_FIELDS:
            yield path, "no", REJECTED_FIELDS[path]
            continue
        patch, note = sample(path, SESSION_SAMPLES)

        async def scenario(client: Client, patch: dict[str, Any] = patch) -> None:
            await client.configure(**patch)

        client = converse(scenario)
        updated = client.last("session.updated")["session"]
        echoed = path != "model" and path not in SECRETS and note != NO_EFFECT
        assert contains(updated, patch) or not echoed, (path, updated)
        assert note != NO_EFFECT or not contains(updated, patch), f"{path} is kept"
        yield path, "yes", note


def response_rows() -> Iterator[tuple[str, str, str]]:
    """The same for `response.create`."""
    for path in fields(RealtimeResponseCreateParams):
        if path in REJECTED_FIELDS:
            yield path, "no", REJECTED_FIELDS[path]
            continue
        patch, note = sample(path, RESPONSE_SAMPLES)

        async def scenario(client: Client, patch: dict[str, Any] = patch) -> None:
            await connect(client)
            await client.send("response.create", response=patch)
            await asyncio.sleep(5)

        client = converse(scenario)
        assert client.last("response.done")["response"]["status"] in ("completed", "incomplete"), path
        yield path, "yes", note


async def everything(client: Client) -> None:
    """A conversation in which every server event occurs that the server can send."""
    await client.configure(tools=[WEATHER])
    await one_turn(client)
    calling(client)
    await one_turn(client)
    await answer(client)
    await client.send("response.create", response={"output_modalities": ["text"]})
    await asyncio.sleep(3)
    message = next(e["item"] for e in client.events if e["type"] == "response.output_item.done")
    await client.send("conversation.item.retrieve", item_id=message["id"])
    await client.send("conversation.item.truncate", item_id=message["id"], content_index=0, audio_end_ms=100)
    await client.send("conversation.item.delete", item_id=message["id"])
    await client.send("input_audio_buffer.append", audio=recording(0.2))
    await client.send("input_audio_buffer.clear")
    await client.send("input_audio_buffer.append", audio=recording(0.2))
    await client.send("input_audio_buffer.commit")
    await client.send("response.cancel")
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
    await client.send("conversation.item.create", item=item)
    detection = {"type": "server_vad", "idle_timeout_ms": 5000}
    await client.configure(audio={"input": {"turn_detection": detection}})
    await one_turn(client)
    await client.speak(6.0, 0.0)
    client.conversation.session._speech_models.recognizer.failing = True  # type: ignore[attr-defined]
    await client.send("input_audio_buffer.append", audio=recording(0.2))
    await client.send("input_audio_buffer.commit")
    await asyncio.sleep(3)


async def mcp_events(client: McpConversation) -> None:
    """A conversation with the events of MCP tools."""
    await connect(client)
    await one_turn(client)
    client.servers[0].error = McpError("http_error", "HTTP status 500", 500)
    await one_turn(client)
    await client.configure(tools=[])
    await client.configure(tools=[HOUSE])
    client.servers[1].error = McpError("http_error", "HTTP status 500", 500)
    await asyncio.sleep(1)


def event_types(union: Any) -> list[str]:
    return sorted({typing.get_args(model.model_fields["type"].annotation)[0] for model in models(union)})


def accepted(event_type: str) -> bool:
    """Whether a client event is known."""

    async def scenario(client: Client) -> None:
        await client.send(event_type)

    codes = [e["error"]["code"] for e in hold_conversation(scenario).events if e["type"] == "error"]
    return "unknown_event" not in codes


def event_rows(known: Mapping[str, bool]) -> Iterator[tuple[str, str, str]]:
    for event_type, supported in known.items():
        if supported:
            assert event_type not in UNSUPPORTED_EVENTS, f"{event_type} is supported by now"
            yield event_type, "yes", ""
            continue
        yield event_type, "no", UNSUPPORTED_EVENTS[event_type]


def page() -> str:
    sent = set(hold_conversation(everything).types()) | set(converse(mcp_events).types())
    server_events = {name: name in sent for name in event_types(RealtimeServerEvent)}
    client_events = {name: accepted(name) for name in event_types(RealtimeClientEvent)}
    return f"""# Coverage of the Realtime protocol

A test makes this page from the types of OpenAI's Python SDK and from what the server does
(`tests/test_realtime_coverage.py`). [Realtime protocol](realtime.md) describes the behaviour.

## Client events

{table("event", event_rows(client_events))}

## Server events

{table("event", event_rows(server_events))}

## Session fields

{table("field", session_rows())}

## Fields of `response.create`

{table("field", response_rows())}
"""


def test_the_coverage_page_is_up_to_date() -> None:
    check_page(PAGE, page())


def test_a_transcription_session_has_the_fields_of_the_sdk() -> None:
    for path in fields(RealtimeTranscriptionSessionCreateRequest):
        patch, note = sample(path, SESSION_SAMPLES)

        async def scenario(client: Client, patch: dict[str, Any] = patch) -> None:
            await client.send("session.update", session={"type": "transcription", **patch})

        client = hold_conversation(scenario)
        updated = client.last("session.updated")["session"]
        assert contains(updated, patch) != (note == NO_EFFECT), json.dumps(client.events[-1])

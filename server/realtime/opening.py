"""Opens conversations with the server's models, and accounts for what they use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agent.tools.user_data import owner_id
from server.access.admission import Slot
from server.access.usage import Usage
from server.context import ServerContext
from server.observability.observers import TurnObservers
from server.observability.turn_log import TurnRecord
from server.realtime.conversation import RealtimeConversation
from server.realtime.events import ServerEvent
from server.realtime.session_config import SessionConfig
from server.realtime.session_record import SessionRecord


def open_conversation(
    context: ServerContext,
    send: Callable[[ServerEvent], None],
    config: SessionConfig | None = None,
    *,
    slot: Slot,
    resume_token: str = "",
    restored: SessionRecord | None = None,
) -> RealtimeConversation:
    """Start a conversation with the server's models. Its events go to `send`; what it uses is counted for `slot`.

    Args:
        restored: the record of a session that goes on here.
    """
    conversation = RealtimeConversation(
        context.new_language_model(),
        context.speech_models,
        context.model,
        send,
        partial(_record_turn, context.observers, slot),
        config,
        allowed_mcp_servers=context.mcp_servers,
        resume_token=resume_token,
        meter=slot.meter,
        tools=context.tools,
        documents=context.documents,
        remote=context.remote_llm,
        owner=_owner(slot),
        restored=restored,
    )
    slot.phase = lambda: conversation.session.state.phase
    return conversation


def _owner(slot: Slot) -> str:
    """Whose timers and notes these are, if the client does not say: those of a phone number, or of an API key."""
    if slot.caller:
        return owner_id("phone", slot.caller)
    return owner_id("key", slot.key.name) if slot.key is not None else ""


def _record_turn(observers: TurnObservers, slot: Slot, turn: TurnRecord) -> None:
    """Count a turn for its key, and pass it on with its key and caller."""
    read, cached, generated = (
        int(turn.details.get(name) or 0) for name in ("prompt_tokens", "cached_tokens", "tokens")
    )
    remote = turn.details.get("remote") or []
    slot.meter.add(
        Usage(
            turns=1,
            input_tokens=read,
            cached_tokens=cached,
            output_tokens=generated,
            remote_requests=len(remote),
            remote_input_tokens=sum(request["input_tokens"] for request in remote),
            remote_output_tokens=sum(request["output_tokens"] for request in remote),
        )
    )
    observers.record_turn(replace(turn, key=slot.meter.key, caller=slot.caller))

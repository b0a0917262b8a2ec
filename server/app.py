"""The ASGI application: all routes on one port, in one process."""

from __future__ import annotations

import asyncio
import logging
import socket as sockets
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, WebSocketRoute
from starlette.websockets import WebSocket

from agent.background_tasks import cancel, supervised
from agent.instructions import INSTRUCTIONS
from agent.program.prompt import program_messages
from agent.tools.server_tools import ServerTools
from chat.types import Ask, Message
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from server.access.shared_conversations import SharedConversations
from server.api_errors import unknown_route
from server.batches.routes import batch_routes
from server.chat_completions.decoder import RecordingDecoder
from server.chat_completions.routes import completion_routes
from server.context import ServerContext
from server.cross_origin import CrossOrigin
from server.memory import free_ended_conversations
from server.observability.metrics import Reading
from server.operator_routes import operations_routes
from server.page import PageFiles
from server.realtime.caption_writer import captions_route
from server.realtime.client_secrets import ClientSecrets, client_secret_route
from server.realtime.resumptions import Resumptions
from server.realtime.websocket import serve_realtime
from server.search.routes import search_routes
from server.security_headers import SecurityHeaders
from server.telephony.audiosocket_server import audiosocket_server
from server.telephony.routes import Telephony, TelephonySettings, telephony_routes
from voice.audio.codec import RECOGNITION_RATE

_log = logging.getLogger("rejoinder.server")


def build_app(
    context: ServerContext,
    telephony_settings: TelephonySettings | None = None,
    audiosocket: sockets.socket | None = None,
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
) -> Starlette:
    """Build the ASGI application.

    Args:
        context: what all routes share.
        telephony_settings: settings of phone calls; the defaults if None.
        audiosocket: a bound socket for AudioSocket calls, or None.
        background: what else runs until the server stops; it begins again if it fails.
    """
    client_secrets = ClientSecrets(records=context.records)
    context.admission.on_deleted.append(client_secrets.forget)
    resumptions = Resumptions(context.session_limits.resume_s, context.records, lambda: context.admission.limit)

    async def realtime(socket: WebSocket) -> None:
        await serve_realtime(socket, context, client_secrets, resumptions)

    telephony = Telephony(context, telephony_settings or TelephonySettings())
    decoder = RecordingDecoder(RECOGNITION_RATE)
    text_routes = [*completion_routes(context, decoder), *search_routes(context)]
    bulk_routes, batch_runner = batch_routes(context, text_routes)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        works: list[Callable[[], Coroutine[Any, Any, None]]] = [
            context.admission.supervise,
            resumptions.keep_records,
            partial(free_ended_conversations, context.admission),
            batch_runner.run,
            *background,
        ]
        if context.records.exist:
            admission = context.admission
            admission.shared = conversations = SharedConversations(
                context.records, admission.limited_conversations, admission.conversations_by_kind
            )
            works.append(conversations.run)
            help_text = "Open conversations of other replicas when they died."
            lost = Reading("dead_replica_conversations_total", help_text, lambda: dict(conversations.lost), "kind")
            context.observers.metrics.add_readings([lost])
        tasks = [asyncio.create_task(supervised(work)) for work in works]
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(decoder.running())
            if context.tools is not None:
                await stack.enter_async_context(context.tools.running())
                if unknown := context.tool_access.tools - context.tools.registry.keys():
                    # No error: an MCP server may bring them later, and an option may have left them out.
                    _log.warning("[tools] lists %s, which this server does not have now", ", ".join(sorted(unknown)))
            if context.engine is not None:
                await read_ahead(context.engine, context.tools)
            if audiosocket is not None:
                await stack.enter_async_context(audiosocket_server(audiosocket, telephony))
            if context.remote_llm is not None:
                stack.push_async_callback(context.remote_llm.close)
            yield
        await resumptions.close()
        await cancel(tasks)

    return Starlette(
        lifespan=lifespan,
        routes=[
            *operations_routes(context),
            WebSocketRoute("/v1/realtime", realtime),
            client_secret_route(context, client_secrets),
            captions_route(context),
            *text_routes,
            *bulk_routes,
            *telephony_routes(telephony),
            Mount("/", PageFiles()),
        ],
        exception_handlers={404: unknown_route, 405: unknown_route},
        middleware=[Middleware(SecurityHeaders), Middleware(CrossOrigin, context.origins)],
    )


async def read_ahead(engine: Engine, tools: ServerTools | None) -> None:
    """Read the default instructions, and those of programs, before anybody connects. Conversations share what was read,
    and the first ones would otherwise have to wait for it."""
    newest = Message("user", "Hello.")
    asks = [Ask([Message("system", INSTRUCTIONS), newest], max_tokens=1)]
    if tools is not None and (functions := tools.functions):
        declared = tuple(tool.declaration for tool in tools.registry.values())
        programs = Ask(program_messages(functions, (), newest.content), max_tokens=1)
        asks.append(programs if Conversation(engine).recognizes_tasks else replace(asks[0], tools=declared))
    for ask in asks:
        try:
            async for _ in Conversation(engine, keep_instructions=True).reply(ask):
                pass
        except (ValueError, RuntimeError) as error:
            _log.warning("the instructions could not be read before the first conversation: %s", error)

"""`rejoinder serve`: binds the ports, loads the models, then accepts connections."""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import uvicorn
from rich.console import Console

from model.engine.conversation import Conversation
from model.hub.store import cache_folder
from server.app import build_app
from server.context import ServerContext
from server.deploy.model_choice import resolve_model
from server.deploy.runtime import ModelOptions, load_engine, load_speech_models
from server.deploy.tls import addresses, self_signed
from server.observability.turn_log import TurnLog
from server.telephony.routes import TelephonySettings
from server.tools.server_tools import ServerTools, ToolSettings

_log = logging.getLogger("rejoinder.server")

_MAX_FRAME_BYTES = 16 << 20
"""Larger websocket frames close the connection before they are fully read. Events above 1 MiB get an error event."""

_SWITCH_INTERVAL_S = 0.001
"""How long the engine's thread may hold the GIL. The event loop needs the GIL several times per 32 ms audio window; at
Python's default of 5 ms, voice activity detection falls behind while a response is generated."""


@dataclass(frozen=True)
class ServeSettings:
    """Where the server listens, and who may connect.

    Attributes:
        turn_log: SQLite file that records every turn; None records nothing.
        keep_days: older turns are deleted from the turn log.
        keep_text: whether the turn log contains transcripts.
        telephony: call settings and carrier authentication.
        audiosocket: port for AudioSocket calls, or None.
        mcp_servers: URLs of the MCP servers that conversations may use.
        tools: the server's own tools.
    """

    host: str
    port: int
    tls_cert: Path | None
    tls_key: Path | None
    tls_self_signed: bool
    api_keys: frozenset[str]
    origins: frozenset[str]
    max_conversations: int
    turn_log: Path | None = None
    keep_days: float = 30.0
    keep_text: bool = True
    telephony: TelephonySettings = field(default_factory=TelephonySettings)
    audiosocket: int | None = None
    mcp_servers: frozenset[str] = frozenset()
    tools: ToolSettings = field(default_factory=ToolSettings)


def run(model_options: ModelOptions, settings: ServeSettings, console: Console) -> None:
    """Serve until the process is told to stop.

    Raises:
        OSError: a port or file cannot be used, which is raised before any model is loaded; or the GPU failed, and only
            a new process can use it again.
        ModelUnavailable, BadModelFile, ValueError: a model cannot be loaded.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    http_socket = _bind(settings.host, settings.port)
    audiosocket = None if settings.audiosocket is None else _bind(settings.host, settings.audiosocket)
    certificate, key = _certificate(settings)
    tools = ServerTools(settings.tools)
    model_options = resolve_model(model_options)
    turn_log = None
    if settings.turn_log is not None:
        turn_log = TurnLog(settings.turn_log, keep_days=settings.keep_days, keep_text=settings.keep_text)
    engine = load_engine(model_options, console)
    # It holds the interpreter's lock for a second, so it must not happen while anybody speaks.
    grammars = threading.Thread(target=engine.model.grammars.preload, name="rejoinder-grammars", daemon=True)
    grammars.start()
    speech_models = load_speech_models(model_options, console)
    grammars.join()
    context = ServerContext(
        partial(Conversation, engine),
        speech_models,
        model_options.model,
        settings.api_keys,
        settings.origins,
        settings.max_conversations,
        _is_loopback(http_socket),
        turn_log.record if turn_log else None,
        engine,
        settings.mcp_servers,
        tools,
    )
    config = uvicorn.Config(
        build_app(context, settings.telephony, audiosocket),
        ws="websockets-sansio",
        ws_max_size=_MAX_FRAME_BYTES,
        ws_per_message_deflate=False,  # base64 audio hardly compresses; deflate costs more time than it saves
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )
    server = _Server(config, lambda: _print_ready(settings, http_socket, audiosocket, console))
    engine.failure.add_done_callback(lambda _: server.stop())
    try:
        server.run(sockets=[http_socket])
    finally:
        engine.close()
        if turn_log is not None:
            turn_log.close()
    if engine.failure.done():
        raise OSError(str(engine.failure.result()))


class _Server(uvicorn.Server):
    """uvicorn that calls `ready` once it accepts connections."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    def stop(self) -> None:
        """Stop from any thread; open connections get `timeout_graceful_shutdown` seconds."""
        self.should_exit = True


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise OSError(f"{host!r} is not an address of this machine ({error}): choose another --host") from None
    bound = socket.socket(family, kind, proto)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise OSError(
                f"port {port} on {host} is in use: stop what uses it, or choose another with --port"
            ) from None
        if error.errno == errno.EACCES:
            raise OSError(f"port {port} needs root privileges: choose one above 1023 with --port") from None
        raise OSError(
            f"cannot listen on {host} port {port} ({error.strerror}): choose another --host or --port"
        ) from None
    return bound


def _is_loopback(bound: socket.socket) -> bool:
    return str(bound.getsockname()[0]) in ("127.0.0.1", "::1")


def _certificate(settings: ServeSettings) -> tuple[str | None, str | None]:
    if settings.tls_self_signed:
        certificate, key = self_signed(cache_folder() / "tls")
        return str(certificate), str(key)
    for path in (settings.tls_cert, settings.tls_key):
        if path is not None and not path.exists():
            raise OSError(f"there is no TLS file at {path}")
    return (
        None if settings.tls_cert is None else str(settings.tls_cert),
        None if settings.tls_key is None else str(settings.tls_key),
    )


def _print_ready(
    settings: ServeSettings, http_socket: socket.socket, audiosocket: socket.socket | None, console: Console
) -> None:
    wrap = console.is_terminal  # in a log file every message stays on one line

    def say(message: str, style: str | None = None) -> None:
        console.print(message, style=style, highlight=False, soft_wrap=not wrap)

    secure = settings.tls_self_signed or settings.tls_cert is not None
    scheme, port = ("https" if secure else "http"), http_socket.getsockname()[1]
    all_interfaces = settings.host in ("0.0.0.0", "::", "")
    for host in ["localhost", *addresses()] if all_interfaces else [settings.host]:
        say(f"Ready: {scheme}://{host}:{port}/")
    if all_interfaces and not secure:
        say("Browsers on other devices allow no microphone over http: add --tls-self-signed, or use a certificate.")
    if all_interfaces and not settings.api_keys:
        say("Anyone who can reach this port can use the assistant: set --api-key to require a key.")
    carrier_auth = settings.telephony.carrier_auth
    if audiosocket is not None:
        uuid = carrier_auth.audiosocket_uuid or "any UUID"
        say(f"AudioSocket: {settings.host}:{audiosocket.getsockname()[1]}, calls with {uuid}")
    public = not _is_loopback(http_socket) or audiosocket is not None or settings.telephony.public_url
    if public and not carrier_auth.configured:
        say(
            "Anyone who can reach this port can place phone calls: set --twilio-token, --plivo-token, --telnyx-key or "
            "--phone-secret to accept only authenticated ones.",
            style="yellow",
        )

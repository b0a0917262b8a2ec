"""`rejoinder serve`: binds the ports, loads the models, then accepts connections."""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import uvicorn
from rich.console import Console

from model.engine.conversation import Conversation
from model.hub.store import cache_folder
from server.access.admission import Admission
from server.access.keys import KEYS_FILE, ApiKeys, KeyStore
from server.access.usage import USAGE_FILE, UsageLog
from server.app import build_app
from server.context import ServerContext, SessionLimits
from server.deploy.capacity import measured_capacity
from server.deploy.draining import DrainingServer
from server.deploy.failures import Failures, with_accounts
from server.deploy.model_choice import resolve_model
from server.deploy.runtime import ModelOptions, load_engine, load_speech_models
from server.deploy.tls import addresses, self_signed
from server.deploy.watchdog import Heartbeat, Watchdog, Watched, engine_heartbeat
from server.observability.metrics import Reading, stage_readings
from server.observability.observers import TurnObservers
from server.observability.tracing import otlp_tracer
from server.observability.turn_log import TurnLog
from server.remote_llm.language_model import RemoteLLM
from server.telephony.routes import TelephonySettings
from server.tools.server_tools import ServerTools, ToolSettings

_log = logging.getLogger("rejoinder.server")

_MAX_FRAME_BYTES = 16 << 20
"""Larger websocket frames close the connection before they are fully read. Events above 1 MiB get an error event."""

_MAX_CONNECTIONS = 1000
"""Open connections of all kinds. Further ones get HTTP 503, so that idle ones cannot use up the process's files."""

_SWITCH_INTERVAL_S = 0.001
"""How long the engine's thread may hold the GIL. The event loop needs the GIL several times per 32 ms audio window; at
Python's default of 5 ms, voice activity detection falls behind while a response is generated."""


@dataclass(frozen=True)
class ServeSettings:
    """Where the server listens, and who may connect.

    Attributes:
        max_conversations: at the same time, phone calls included; None for what the machine carries, which is measured.
        turn_log: SQLite file that records every turn; None records nothing.
        keep_days: older turns are deleted from the turn log.
        keep_text: whether the turn log contains transcripts.
        telephony: call settings and carrier authentication.
        audiosocket: port for AudioSocket calls, or None.
        mcp_servers: URLs of the MCP servers that conversations may use.
        tools: the server's own tools.
        data: folder of the keys and of the record of usage; None for neither.
        allow_anyone: whether clients beyond this machine may connect without a key.
        session_limits: of Realtime sessions.
        drain_s: how long conversations may finish their turns when the server is told to stop.
        otlp_endpoint: URL of an OpenTelemetry collector; empty for none.
        remote_llm: the bigger model on another server; None if there is none.
        hang_s: how long one step of any model may take before the process counts as hung and ends; 0 for ever.
    """

    host: str
    port: int
    tls_cert: Path | None
    tls_key: Path | None
    tls_self_signed: bool
    api_keys: frozenset[str]
    origins: frozenset[str]
    max_conversations: int | None
    turn_log: Path | None = None
    keep_days: float = 30.0
    keep_text: bool = True
    telephony: TelephonySettings = field(default_factory=TelephonySettings)
    audiosocket: int | None = None
    mcp_servers: frozenset[str] = frozenset()
    tools: ToolSettings = field(default_factory=ToolSettings)
    data: Path | None = None
    allow_anyone: bool = False
    session_limits: SessionLimits = field(default_factory=SessionLimits)
    drain_s: float = 20.0
    otlp_endpoint: str = ""
    hang_s: float = 60.0
    remote_llm: RemoteLLM | None = None


def run(model_options: ModelOptions, settings: ServeSettings, console: Console) -> None:
    """Serve until the process is told to stop. The first SIGTERM or SIGINT lets conversations finish their turns, a
    second one does not.

    Raises:
        ValueError: clients beyond this machine could connect without a key; or see below.
        OSError: a port or file cannot be used, which is raised before any model is loaded; or the GPU failed, and only
            a new process can use it again.
        ModelUnavailable, BadModelFile, ValueError: a model cannot be loaded.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    http_socket = _bind(settings.host, settings.port)
    audiosocket = None if settings.audiosocket is None else _bind(settings.host, settings.audiosocket)
    certificate, key = _certificate(settings)
    keys, usage = _accounts(settings.data)
    api_keys = ApiKeys(settings.api_keys, keys)
    _check_exposure(settings, api_keys, _is_loopback(http_socket))
    tools = ServerTools(settings.tools)
    model_options = resolve_model(model_options)
    turn_log = None
    if settings.turn_log is not None:
        turn_log = TurnLog(settings.turn_log, keep_days=settings.keep_days, keep_text=settings.keep_text)
    engine = load_engine(model_options, console)
    # It holds the interpreter's lock for a second, so it must not happen while anybody speaks.
    grammars = threading.Thread(target=engine.model.grammars.preload, name="rejoinder-grammars", daemon=True)
    grammars.start()
    failures = Failures()
    speech_models, stages = with_accounts(load_speech_models(model_options, console), failures.report)
    grammars.join()
    new_language_model = partial(Conversation, engine)
    max_conversations = settings.max_conversations
    if max_conversations is None:
        with console.status("Measuring how many conversations this machine carries…"):
            names = f"{model_options.model}, {model_options.voices[0]}"
            max_conversations = measured_capacity(speech_models, new_language_model, names, model_options.device)
    admission = Admission(max_conversations, api_keys, usage)
    tracer = otlp_tracer(settings.otlp_endpoint) if settings.otlp_endpoint else None
    more = [*([turn_log.record] if turn_log else []), *([tracer.record_turn] if tracer else [])]
    observers = TurnObservers(more)
    observers.metrics.add_readings(stage_readings(stages))
    if turn_log is not None:
        unrecorded = Reading("dropped_turn_records_total", "Turns missing from the turn log.", turn_log.dropped_reading)
        observers.metrics.add_readings([unrecorded])
    context = ServerContext(
        new_language_model,
        speech_models,
        model_options.model,
        admission,
        settings.origins,
        _is_loopback(http_socket),
        engine,
        settings.mcp_servers,
        settings.session_limits,
        observers,
        tools,
        settings.remote_llm,
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
        limit_concurrency=_MAX_CONNECTIONS,
        server_header=False,
    )
    ready = partial(_print_ready, settings, http_socket, audiosocket, console, max_conversations)
    server = DrainingServer(config, ready, lambda: admission.dismiss_all(settings.drain_s))
    failures.on_failure(server.stop)
    engine.failure.add_done_callback(lambda failure: failures.report(str(failure.result())))
    watchdog = None
    if settings.hang_s:
        watched: list[Watched] = [*stages, engine_heartbeat(engine), Heartbeat("the event loop", server.call_soon)]
        watchdog = Watchdog(watched, settings.hang_s, failures.report_hang)
        watchdog.start()
    try:
        server.run(sockets=[http_socket])
    finally:
        if watchdog is not None:
            watchdog.stop()
        engine.close()
        for log in (turn_log, usage, tracer):
            if log is not None:
                log.close()
    if failures.reason:
        raise OSError(failures.reason)


def _accounts(data: Path | None) -> tuple[KeyStore | None, UsageLog]:
    """The keys and the record of usage in a folder. Raises OSError if there are keys and they cannot be read."""
    if data is None:
        return None, UsageLog()
    try:
        return KeyStore(data / KEYS_FILE), UsageLog(data / USAGE_FILE)
    except OSError as error:
        if (data / KEYS_FILE).exists():
            raise
        _log.warning("%s; keys of `rejoinder keys` are unknown, and usage is not recorded", error)
        return None, UsageLog()


def _check_exposure(settings: ServeSettings, keys: ApiKeys, local: bool) -> None:
    """Raise ValueError if anyone who can reach the server could use it, and the operator has not asked for that."""
    if local or settings.allow_anyone:
        return
    if not keys.required:
        raise ValueError(
            f"anyone who can reach {settings.host} could use the assistant: make a key with `rejoinder keys add NAME` "
            "(or set --api-key), or add --allow-anyone"
        )
    if settings.audiosocket is not None and settings.telephony.carrier_auth.audiosocket_uuid is None:
        raise ValueError("AudioSocket calls carry no key: set --phone-secret, or add --allow-anyone")


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
    settings: ServeSettings,
    http_socket: socket.socket,
    audiosocket: socket.socket | None,
    console: Console,
    max_conversations: int,
) -> None:
    wrap = console.is_terminal  # in a log file every message stays on one line

    def say(message: str, style: str | None = None) -> None:
        console.print(message, style=style, highlight=False, soft_wrap=not wrap)

    secure = settings.tls_self_signed or settings.tls_cert is not None
    scheme, port = ("https" if secure else "http"), http_socket.getsockname()[1]
    all_interfaces = settings.host in ("0.0.0.0", "::", "")
    for host in ["localhost", *addresses()] if all_interfaces else [settings.host]:
        say(f"Ready: {scheme}://{host}:{port}/")
    say(f"Up to {max_conversations} conversations at the same time.")
    if all_interfaces and not secure:
        say("Browsers on other devices allow no microphone over http: add --tls-self-signed, or use a certificate.")
    if settings.allow_anyone:
        say("Anyone who can reach this port can use the assistant (--allow-anyone).", style="yellow")
    carrier_auth = settings.telephony.carrier_auth
    if audiosocket is not None:
        uuid = carrier_auth.audiosocket_uuid or "any UUID"
        say(f"AudioSocket: {settings.host}:{audiosocket.getsockname()[1]}, calls with {uuid}")
    public = settings.allow_anyone or audiosocket is not None or settings.telephony.public_url
    if public and not carrier_auth.configured:
        say(
            "Anyone who can reach this port can place phone calls: set --twilio-token, --plivo-token, --telnyx-key or "
            "--phone-secret to accept only authenticated ones.",
            style="yellow",
        )

"""`rejoinder serve`: takes the port, loads the models, then answers."""

from __future__ import annotations

import errno
import logging
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from rich.console import Console

from model.store import cache_folder
from server.app import ServerState, build_app
from server.loading import Choice, load_engine, load_voice_stages
from server.phone.routes import PhoneSettings
from server.timelines import TimelineStore
from server.tls import addresses, self_signed

_log = logging.getLogger("rejoinder.server")

_BIGGEST_FRAME = 16 << 20
"""Bytes of one websocket frame before the connection is closed. Events above 1 MiB get an error event; a frame this
big is not even read to its end."""


_SWITCH_INTERVAL_S = 0.001
"""How long the engine's thread may keep Python to itself. The event loop asks for it several times a 32 ms window of
sound; at the default of 5 ms the voice detector falls behind while an answer is being thought."""


@dataclass(frozen=True)
class Serving:
    """How to listen, and for whom.

    Attributes:
        phone: how phone calls are held, and who may call.
        audiosocket: a port for AudioSocket calls, or None.
        timelines: an SQLite file to keep turns in, for so many days, with or without what was said; or None.
    """

    host: str
    port: int
    tls_cert: Path | None
    tls_key: Path | None
    tls_self_signed: bool
    api_keys: frozenset[str]
    origins: frozenset[str]
    most_conversations: int
    timelines: Path | None = None
    keep_days: float = 30.0
    keep_text: bool = True
    phone: PhoneSettings = field(default_factory=PhoneSettings)
    audiosocket: int | None = None


def run(choice: Choice, serving: Serving, console: Console) -> None:
    """Serve until told to stop.

    Raises:
        OSError: the port cannot be had; said before any model is loaded.
        ModelUnavailable, BadModelFile, ValueError: a model cannot be loaded.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    taken = _take_port(serving.host, serving.port)
    audiosocket = None if serving.audiosocket is None else _take_port(serving.host, serving.audiosocket)
    certificate, key = _certificate(serving)
    kept = None
    if serving.timelines is not None:
        kept = TimelineStore(serving.timelines, keep_days=serving.keep_days, keep_text=serving.keep_text)
    stages, engine = load_voice_stages(choice, console), load_engine(choice, console)
    state = ServerState(
        engine,
        stages,
        choice.model,
        serving.api_keys,
        serving.origins,
        serving.most_conversations,
        _is_local(taken),
        kept.keep if kept else None,
        serving.phone,
        audiosocket,
    )
    config = uvicorn.Config(
        build_app(state),
        ws="websockets-sansio",
        ws_max_size=_BIGGEST_FRAME,
        ws_per_message_deflate=False,  # base64 audio hardly shrinks, and deflating it costs more than sending it
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_level="warning",
        timeout_graceful_shutdown=5,
    )
    server = _Server(config, lambda: _greet(serving, taken, audiosocket, console))
    try:
        server.run(sockets=[taken])
    finally:
        engine.close()
        if kept is not None:
            kept.close()


class _Server(uvicorn.Server):
    """uvicorn, saying so once it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _take_port(host: str, port: int) -> socket.socket:
    """A socket that holds the port but does not listen yet."""
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise OSError(f"{host!r} is no address of this machine ({error}): choose another --host") from None
    taken = socket.socket(family, kind, proto)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind(where)
    except OSError as error:
        taken.close()
        if error.errno == errno.EADDRINUSE:
            raise OSError(
                f"port {port} on {host} is in use: stop what uses it, or choose another with --port"
            ) from None
        if error.errno == errno.EACCES:
            raise OSError(f"port {port} needs more rights: choose one above 1023 with --port") from None
        raise OSError(
            f"cannot listen on {host} port {port} ({error.strerror}): choose another --host or --port"
        ) from None
    return taken


def _is_local(taken: socket.socket) -> bool:
    return str(taken.getsockname()[0]) in ("127.0.0.1", "::1")


def _certificate(serving: Serving) -> tuple[str | None, str | None]:
    if serving.tls_self_signed:
        certificate, key = self_signed(cache_folder() / "tls")
        return str(certificate), str(key)
    for path in (serving.tls_cert, serving.tls_key):
        if path is not None and not path.exists():
            raise OSError(f"there is no TLS file at {path}")
    return (
        None if serving.tls_cert is None else str(serving.tls_cert),
        None if serving.tls_key is None else str(serving.tls_key),
    )


def _greet(serving: Serving, taken: socket.socket, audiosocket: socket.socket | None, console: Console) -> None:
    secure = serving.tls_self_signed or serving.tls_cert is not None
    scheme, port = ("https" if secure else "http"), taken.getsockname()[1]
    everywhere = serving.host in ("0.0.0.0", "::", "")
    hosts = ["localhost", *addresses()] if everywhere else [serving.host]
    for host in hosts:
        console.print(f"Ready: {scheme}://{host}:{port}/", highlight=False)
    if everywhere and not secure:
        console.print("Other devices get no microphone on http: add --tls-self-signed, or a certificate.")
    if everywhere and not serving.api_keys:
        console.print("Anyone who reaches this port can talk to it: --api-key lets in only who has the key.")
    trust = serving.phone.trust
    if audiosocket is not None:
        name = trust.audiosocket_id or "any UUID"
        port = audiosocket.getsockname()[1]
        console.print(f"AudioSocket: {serving.host}:{port}, calls with {name}", highlight=False, soft_wrap=True)
    if not trust.configured and (not _is_local(taken) or audiosocket is not None or serving.phone.public):
        console.print(
            "Anyone who reaches this port can be a phone call: --twilio-token, --plivo-token, --telnyx-key or "
            "--phone-secret lets in only real ones.",
            style="yellow",
        )

"""`rejoinder serve`: binds the ports, serves the page, and loads the models meanwhile."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from rich.console import Console

from agent.addresses import is_loopback
from model.hub.store import cache_folder
from server.access.admission import Admission
from server.serving.http_server import DrainingServer, http_config
from server.serving.service import Service, checked_access, keys_required, load_service
from server.serving.settings import ServeSettings
from server.serving.starting import StartingApp
from server.serving.tls import addresses, self_signed
from server.serving.trial import Start


def run(settings: ServeSettings, console: Console) -> None:
    """Serve until the process is told to stop. The first SIGTERM or SIGINT lets conversations finish their turns, a
    second one does not.

    Raises:
        ValueError: clients beyond this machine could connect without a key; or see below.
        OSError: a port or file cannot be used, which is raised before any model is loaded; or the GPU failed, and only
            a new process can use it again.
        ModelUnavailable, BadModelFile, ValueError: a model cannot be loaded.
    """
    http_socket = bind(settings.host, settings.port)
    audiosocket = None
    if settings.audiosocket is not None:
        if settings.audiosocket == settings.port != 0:  # both could be bound, and only one could listen
            raise ValueError(f"--port and --audiosocket are both {settings.port}: choose another one")
        audiosocket = bind(settings.host, settings.audiosocket, "--audiosocket")
    certificate, key = certificate_files(settings)
    loopback = listens_on_loopback(http_socket)
    settings = checked_access(settings, loopback=loopback)
    start, stack = Start(), ExitStack()
    load = partial(load_service, settings, console, loopback=loopback, audiosocket=audiosocket, start=start)
    ports = [bound.getsockname()[1] for bound in (http_socket, audiosocket) if bound is not None]

    def loaded(service: Service) -> None:
        service.failures.on_failure(server.stop)
        stack.callback(service.close)
        stack.callback(service.watch())

    def ready(service: Service) -> None:
        print_ready(settings, ports, console, carried(service.context.admission))

    async def drain() -> bool:
        return app.service is None or await app.service.context.admission.dismiss_all(settings.drain_seconds)

    app = StartingApp(load, start, loaded, ready, lambda: server.stop())
    server = DrainingServer(http_config(app, certificate, key), drain)
    with stack:
        server.run(sockets=[http_socket])
    if app.error is not None:
        raise app.error
    if app.service is not None and app.service.failures.reason:
        raise OSError(app.service.failures.reason)


def carried(admission: Admission) -> str:
    """How many conversations there may be, as a sentence."""
    if admission.adaptive is None:
        return f"Up to {admission.capacity} conversations at the same time."
    seconds = admission.adaptive.target_ms / 1000
    number = f"{admission.limit} conversation{'s' if admission.limit > 1 else ''}"
    return f"{number} at the same time for now, more while p95 stays below {seconds:g} s."


def bind(host: str, port: int, option: str = "--port") -> socket.socket:
    """A bound socket that does not listen yet.

    Args:
        option: by which the port was chosen.

    Raises:
        OSError: it cannot be bound, and what to do.
    """
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
                f"port {port} on {host} is in use: stop what uses it, or choose another with {option}"
            ) from None
        if error.errno == errno.EACCES:
            raise OSError(f"port {port} needs root privileges: choose one above 1023 with {option}") from None
        raise OSError(
            f"cannot listen on {host} port {port} ({error.strerror}): choose another --host or {option}"
        ) from None
    return bound


def listens_on_loopback(bound: socket.socket) -> bool:
    """Whether only this machine can connect to a socket."""
    return is_loopback(str(bound.getsockname()[0]))


def certificate_files(settings: ServeSettings) -> tuple[str | None, str | None]:
    """Paths of the TLS certificate and its key; None without TLS. Raises OSError."""
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


def print_ready(settings: ServeSettings, ports: Sequence[int], console: Console, carried: str) -> None:
    """Say where the server listens, how much it carries, and who may come in.

    Args:
        ports: for HTTP, and for AudioSocket calls if there is one.
        carried: a sentence.
    """
    wrap = console.is_terminal  # in a log file every message stays on one line

    def say(message: str, style: str | None = None) -> None:
        console.print(message, style=style, highlight=False, soft_wrap=not wrap)

    secure = settings.tls_self_signed or settings.tls_cert is not None
    scheme, port = ("https" if secure else "http"), ports[0]
    all_interfaces = settings.host in ("0.0.0.0", "::", "")
    for host in ["localhost", *addresses()] if all_interfaces else [settings.host]:
        say(f"Ready: {scheme}://{_in_url(host)}:{port}/")
    say(carried)
    if all_interfaces and not secure:
        say("Browsers on other devices allow no microphone over http: add --tls-self-signed, or use a certificate.")
    carrier_auth = settings.carrier_auth
    if settings.allow_anyone:
        say("Anyone who can reach this port can use the assistant (--allow-anyone).", style="yellow")
    elif settings.start_key and console.is_terminal:
        # A log would keep the key.
        link = f"{scheme}://{_in_url(settings.host)}:{port}/#key={settings.start_key}"
        say(f"On this machine: {link} (until the server stops)")
    elif settings.start_key:
        say("Everybody but carriers needs a key, on this machine as well: make one with `rejoinder keys add NAME`.")
    elif not keys_required(settings):
        say("Only this machine can use it. Make a key (`rejoinder keys add NAME`) before you put a proxy in front.")
    else:
        say("Clients need an API key, on this machine as well: REJOINDER_API_KEY, or one of `rejoinder keys add NAME`.")
    for audiosocket in ports[1:]:
        uuid = carrier_auth.audiosocket_uuid or "any UUID"
        say(f"AudioSocket: {_in_url(settings.host)}:{audiosocket}, calls with {uuid}")
    credentials = "--twilio-token, --plivo-token, --telnyx-key or --phone-secret"
    if settings.allow_anyone and not carrier_auth.configured:
        say(
            f"Anyone who can reach this port can place phone calls: set {credentials} to accept only authenticated "
            "ones.",
            style="yellow",
        )
    elif settings.public_url and not carrier_auth.configured:
        say(f"Phone calls need a key in their URL, or set {credentials}.", style="yellow")


def _in_url(host: str) -> str:
    """A host before a port: addresses of IPv6 have colons of their own."""
    return f"[{host}]" if ":" in host else host

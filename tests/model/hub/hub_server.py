"""A small hub on the loopback interface: the part of the Hugging Face hub's API that downloading models uses.

Large files are redirected to a content-addressed store, as on the real hub, which answers range requests.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret"
"""The token that opens gated repositories."""

_HOST, _STORE_HOST = "127.0.0.1", "localhost"
"""The client follows redirects to the host of the hub itself when it asks for a file's description."""

_LARGE = (".gguf", ".safetensors", ".bin")


@dataclass
class Repository:
    """A repository with all its commits.

    Attributes:
        commits: commit: {path: content}.
        branches: branch: commit.
        info: further fields of its description.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    info: dict[str, Any] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """Replace the files; return the id of the new commit."""
        seed = json.dumps([len(self.commits), {path: sha256(content) for path, content in files.items()}])
        name = hashlib.sha1(seed.encode()).hexdigest()
        self.commits[name], self.branches[branch] = files, name
        return name


@dataclass
class Hub:
    """What the server offers, and what it was asked for.

    Attributes:
        requests: (method, path, Range header) of every request.
        cut_after: after how many bytes the connection is cut, for each of the next responses with a large file.
        failing_after_cut: whether `failing` begins then.
        failing: answer every request for the content of a large file with status 503.
        damaging: send large files with a wrong first byte.
        tokens_at_store: how many requests for the content of a large file contained a token, which is not for that
            host.
    """

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    cut_after: list[int] = field(default_factory=list)
    failing_after_cut: bool = False
    failing: bool = False
    damaging: bool = False
    tokens_at_store: int = 0

    def downloads(self) -> list[str | None]:
        """The Range headers of the requests for the content of large files."""
        return [byte_range for method, path, byte_range in self.requests if method == "GET" and "/cdn/" in path]


def sha256(content: bytes) -> str:
    """The digest of a large file."""
    return hashlib.sha256(content).hexdigest()


def git_sha1(content: bytes) -> str:
    """The digest of a small file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub with its own thread and port."""
    hub = Hub()

    server = ThreadingHTTPServer((_HOST, 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://{_HOST}:{server.server_address[1]}"
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, self.headers.get("Range")))
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            self._describe(*match.groups())
        elif match := re.fullmatch(r"/cdn/(\w+)", path):
            self._send_large(match[1])
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(*match.groups())
        else:
            self._answer(404, {})

    def _describe(self, name: str, revision: str) -> None:
        found = self._find(name, revision)
        if found is None:
            return
        repository, commit = found
        siblings = []
        for path, content in repository.commits[commit].items():
            entry: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": git_sha1(content)}
            if path.endswith(_LARGE):
                entry["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        description = {"id": name, "sha": commit, "siblings": siblings, "cardData": {"license": "mit"}}
        self._answer(200, {"Content-Type": "application/json"}, json.dumps(description | repository.info).encode())

    def _resolve(self, name: str, revision: str, path: str) -> None:
        found = self._find(name, revision)
        if found is None:
            return
        repository, commit = found
        if repository.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, {"X-Error-Code": "GatedRepo"})
            return
        content = repository.commits[commit].get(path)
        if content is None:
            self._answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        headers = {"X-Repo-Commit": commit}
        if path.endswith(_LARGE):
            headers |= {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{sha256(content)}"'}
            self._answer(
                302, {**headers, "Location": f"{self.hub.url.replace(_HOST, _STORE_HOST)}/cdn/{sha256(content)}"}
            )
        else:
            self._answer(200, {**headers, "ETag": f'"{git_sha1(content)}"'}, content)

    def _send_large(self, digest: str) -> None:
        self.hub.tokens_at_store += "Authorization" in self.headers
        if self.hub.failing:
            self._answer(503, {})
            return
        content = self._blob(digest)
        if self.hub.damaging:
            content = bytes([content[0] ^ 1]) + content[1:]
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        headers = {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        limit = self.hub.cut_after.pop(0) if self.hub.cut_after else None
        if limit is not None:
            self.hub.failing = self.hub.failing_after_cut
        self._answer(206 if start else 200, headers, content[start:], limit)

    def _blob(self, digest: str) -> bytes:
        for repository in self.hub.repositories.values():
            for files in repository.commits.values():
                for content in files.values():
                    if sha256(content) == digest:
                        return content
        raise KeyError(digest)

    def _find(self, name: str, revision: str) -> tuple[Repository, str] | None:
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._answer(404, {"X-Error-Code": "RepoNotFound"})
            return None
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            self._answer(404, {"X-Error-Code": "RevisionNotFound"})
            return None
        return repository, commit

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"", limit: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with suppress(ConnectionError):  # the client may have been killed
            self.wfile.write(body if limit is None else body[:limit])
        if limit is not None and limit < len(body):
            self.close_connection = True

"""What all routes share: the models, who may come in, and the open conversations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from agent.dictation.cleaner import DictationCleaner
from agent.language_model import LanguageModel
from agent.tools.server_tools import ServerTools
from model.engine.engine import Engine
from server.access.admission import Admission
from server.access.keys import ApiKey
from server.access.tool_access import ToolAccess
from server.auth import LocalAccess, WrongSecrets, client_address, is_same_site, offered_keys
from server.batch_store import BatchStore
from server.budgets import CONVERSATION
from server.caption_broadcasts import CaptionBroadcasts
from server.embedder import SharedEmbedder
from server.observability.observers import TurnObservers
from server.observability.peers import Peers
from server.shared_store import SharedRecords
from voice.speech_models import SpeechModels

if TYPE_CHECKING:  # features that are off are not imported
    from agent.documents.search import SharedDocuments
    from agent.remote.remote_llm import RemoteLLM


class AccessDenied(Exception):
    """A client may not use the server at all.

    Args:
        status: the HTTP status.
        code: `origin_not_allowed`, `invalid_api_key`, `too_many_wrong_keys`, `api_key_required` or
            `admin_key_required`.
        message: one sentence that says what to do.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(frozen=True)
class SessionLimits:
    """Limits of one Realtime session. Phone calls have their own (`CallSettings`).

    Attributes:
        idle_s: without an event of the client before it is disconnected.
        max_duration_s: length of a session.
        resume_s: how long a session whose connection dropped waits for the client to come back.
    """

    idle_s: float = 900.0
    max_duration_s: float = CONVERSATION.seconds
    resume_s: float = 60.0


@dataclass
class ServerContext:
    """What all connections share.

    Attributes:
        new_language_model: creates the language model of a new conversation.
        speech_models: recognizer, voice and detectors.
        model: name of the language model.
        admission: the keys, the limits and the open conversations, including phone calls.
        origins: origins of other sites whose pages may connect.
        local: which requests come from a user of this machine, and need no key while there is none.
        allow_anyone: whether clients elsewhere need no key either, which the operator insisted on.
        engine: generates the responses of the text API. If None, the API has no language model.
        mcp_servers: URLs of the MCP servers that conversations may use.
        session_limits: of Realtime sessions.
        observers: take note of every turn.
        tools: the server's own tools, which conversations may ask for.
        remote_llm: the bigger model on another server; None if there is none.
        peers: all replicas of the service; None if there is only this one.
        records: what replicas share.
        documents: what conversations that ask for it answer from; None for nothing.
        wrong_secrets: those that clients have sent by now, carriers included.
        tool_access: who may call which of the tools.
        batches: the files and batches of the text API.
        embedder: the embedding model of the text API.
        captions: the sessions whose captions others may read.
    """

    new_language_model: Callable[[], LanguageModel]
    speech_models: SpeechModels
    model: str
    admission: Admission = field(default_factory=Admission)
    origins: frozenset[str] = frozenset()
    local: LocalAccess = field(default_factory=LocalAccess)
    allow_anyone: bool = False
    engine: Engine | None = None
    mcp_servers: frozenset[str] = frozenset()
    session_limits: SessionLimits = field(default_factory=SessionLimits)
    observers: TurnObservers = field(default_factory=TurnObservers)
    tools: ServerTools | None = None
    remote_llm: RemoteLLM | None = None
    peers: Peers | None = None
    records: SharedRecords = field(default_factory=SharedRecords)
    documents: SharedDocuments | None = None
    wrong_secrets: WrongSecrets = field(default_factory=WrongSecrets)
    tool_access: ToolAccess = field(default_factory=ToolAccess)
    batches: BatchStore = field(default_factory=BatchStore)
    embedder: SharedEmbedder = field(default_factory=SharedEmbedder)
    captions: CaptionBroadcasts = field(default_factory=CaptionBroadcasts)

    @cached_property
    def dictation(self) -> DictationCleaner:
        """Cleans up dictations. All of them share what it has read of its instructions."""
        return DictationCleaner(self.new_language_model())

    def check_origin(self, connection: HTTPConnection) -> None:
        """Check that no page of another site is behind a request. Raises AccessDenied."""
        if not is_same_site(connection, self.origins):
            origin = connection.headers.get("origin")
            message = f"pages from {origin} may not connect: start the server with --allow-origin for it"
            raise AccessDenied(403, "origin_not_allowed", message)

    def authenticate(self, connection: HTTPConnection) -> ApiKey | None:
        """The key of a client; None where none is required, which users of this machine alone can count on. Raises
        AccessDenied."""
        self.check_origin(connection)
        keys, offered, address = self.admission.keys, offered_keys(connection), client_address(connection)
        key = keys.find(offered)
        if offered and keys.required and (key is None or keys.is_chosen(key)):
            if self.wrong_secrets.pausing(address):
                message = "too many wrong keys came from this address: wait a minute"
                raise AccessDenied(429, "too_many_wrong_keys", message)
            if key is None:
                self.wrong_secrets.add(address)
        if key is None and keys.required:
            needed = "this server requires an API key: send it as `Authorization: Bearer KEY`"
            message = "this API key is wrong, or was revoked" if offered else needed
            raise AccessDenied(401, "invalid_api_key", message)
        if key is None and not self.allow_anyone and not self.local.includes(connection):
            message = (
                "requests from beyond this machine, or through a proxy or tunnel, need an API key: `rejoinder keys add "
                "NAME` makes one"
            )
            raise AccessDenied(401, "api_key_required", message)
        return key

    def authenticate_admin(self, connection: HTTPConnection) -> ApiKey | None:
        """The operator's key: an admin key, or None from this machine while the server has no keys. Raises
        AccessDenied."""
        key = self.authenticate(connection)
        if not (key.admin if key is not None else self.local.includes(connection)):
            message = "this needs an admin key: `rejoinder keys add NAME --admin` makes one"
            raise AccessDenied(401, "admin_key_required", message)
        return key

    def admits(self, connection: HTTPConnection) -> bool:
        """Whether a client may use the server: what only such clients get to see depends on it."""
        try:
            self.authenticate(connection)
        except AccessDenied:
            return False
        return True

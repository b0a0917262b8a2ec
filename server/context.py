"""What all routes share: the models, the limits and the open connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from model.engine.engine import Engine
from server.observability.turn_log import TurnRecord
from server.tools.server_tools import ServerTools
from voice.language_model import LanguageModel
from voice.speech_models import SpeechModels


@dataclass
class ServerContext:
    """What all connections share.

    Attributes:
        new_language_model: creates the language model of a new conversation.
        speech_models: recognizer, voice and detectors.
        model: name of the language model.
        api_keys: accepted API keys. If empty, no key is required.
        origins: origins of other sites whose pages may connect.
        max_conversations: limit of open conversations. Further clients are rejected.
        local: whether the server listens on this machine only.
        record_turn: called with every completed turn. If None, turns are not recorded.
        engine: generates the responses of the text API. If None, the API has no language model.
        mcp_servers: URLs of the MCP servers that conversations may use.
        tools: the server's own tools, which conversations may ask for.
        connections: every open conversation, including phone calls.
    """

    new_language_model: Callable[[], LanguageModel]
    speech_models: SpeechModels
    model: str
    api_keys: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    max_conversations: int = 16
    local: bool = False
    record_turn: Callable[[TurnRecord], None] | None = None
    engine: Engine | None = None
    mcp_servers: frozenset[str] = frozenset()
    tools: ServerTools | None = None
    connections: set[object] = field(default_factory=set)

    @property
    def full(self) -> bool:
        """Whether the limit of conversations is reached."""
        return len(self.connections) >= self.max_conversations

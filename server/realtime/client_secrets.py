"""Short-lived keys for browsers: `POST /v1/realtime/client_secrets` makes one, with a session's configuration, and a
client that connects with it gets that session."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from server.access.keys import ApiKey, digest
from server.access.usage import key_name
from server.api_errors import APIError, guarded
from server.budgets import CLIENT_SECRETS, Kept, memory
from server.context import ServerContext
from server.realtime.configuration import (
    check_generation,
    check_speech,
    config_bytes,
    default_config,
    session_object,
    updated_config,
)
from server.realtime.mcp_tools import server_refusal
from server.realtime.session_config import SessionConfig
from server.realtime.validation import InvalidEvent, errors_in
from server.request_body import json_body
from server.response_format import StrictModel
from server.shared_store import SharedRecords
from voice.history import new_id

_PREFIX, _RECORD_PREFIX = "ek_", "client_secret/"


class ExpiresAfter(StrictModel):
    """How long a secret is valid."""

    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(600, ge=10, le=7200)


class ClientSecretRequest(StrictModel):
    """The body of a request for a client secret."""

    expires_after: ExpiresAfter = ExpiresAfter()
    session: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class ClientSecret:
    """A key for a browser.

    Attributes:
        expires_at: Unix time in seconds.
        config: of the sessions that it opens.
        key: the API key that made it, whose limits apply to them.
    """

    value: str
    expires_at: int
    config: SessionConfig
    key: ApiKey | None = None


class ClientSecrets:
    """The secrets that are valid now.

    Args:
        clock: Unix time in seconds.
        records: where other replicas find them.
    """

    def __init__(self, clock: Callable[[], float] = time.time, records: SharedRecords | None = None) -> None:
        self._clock, self._records = clock, records or SharedRecords()
        self._secrets = Kept[bytes](CLIENT_SECRETS, clock)

    async def create(self, config: SessionConfig, seconds: int, key: ApiKey | None = None) -> ClientSecret:
        """A new secret."""
        secret = ClientSecret(_PREFIX + secrets.token_urlsafe(24), int(self._clock()) + seconds, config, key)
        encoded = _ADAPTER.dump_json(replace(secret, value=""))
        self._secrets.put(secret.value, encoded, memory(encoded), key_name(key), seconds)
        await self._records.call(lambda store: store.put(_record_key(secret.value), encoded, seconds))
        return secret

    async def find(self, offered: Iterable[str]) -> ClientSecret | None:
        """The first valid secret that a client offers."""
        for value in offered:
            secret = await self._find(value)
            if secret is not None and secret.expires_at > self._clock():
                return secret
        return None

    async def forget(self, key: str) -> None:
        """Forget all secrets that an API key has made here."""
        values = self._secrets.forget(key)
        if values:  # it is asked every two seconds, for every revoked key
            await self._records.call(lambda store: store.delete(*map(_record_key, values)))

    async def _find(self, value: str) -> ClientSecret | None:
        if not value.startswith(_PREFIX):
            return None
        encoded = self._secrets.get(value)
        if encoded is None:
            encoded = await self._records.call(lambda store: store.get(_record_key(value)))
        try:
            return None if encoded is None else replace(_ADAPTER.validate_json(encoded), value=value)
        except ValidationError:  # another version of the server may have written it
            return None


_ADAPTER = TypeAdapter(ClientSecret)


def _record_key(value: str) -> str:
    return _RECORD_PREFIX + digest(value)


def client_secret_route(context: ServerContext, client_secrets: ClientSecrets) -> Route:
    """`POST /v1/realtime/client_secrets`."""

    async def create(request: Request) -> Response:
        body = await json_body(request)
        try:
            wanted = ClientSecretRequest.model_validate_json(body or b"{}")
            default = default_config(context.model, context.speech_models.voices.default.name)
            with errors_in("session"):
                config = updated_config(default, wanted.session)
                config_bytes(config)
                check_speech(config, context.speech_models)
                refusal = partial(server_refusal, allowed_urls=context.mcp_servers)
                await check_generation(config, default, context.new_language_model(), refusal)
            config.model = context.model
        except (ValidationError, InvalidEvent) as error:
            invalid = error if isinstance(error, InvalidEvent) else InvalidEvent.from_validation(error)
            raise APIError(400, str(invalid), invalid.param, invalid.code) from None
        secret = await client_secrets.create(config, wanted.expires_after.seconds, request.state.key)
        session = {"id": new_id("sess"), "object": "realtime.session", **session_object(config)}
        return JSONResponse({"value": secret.value, "expires_at": secret.expires_at, "session": session})

    return Route("/v1/realtime/client_secrets", guarded(context.authenticate, create), methods=["POST"])

"""What `rejoinder serve` can be told, besides the options that other commands have, too (`options.py`)."""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PrivateAttr, SecretStr, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from agent.credentials import credential_file
from server.access.tool_access import ToolAccess
from server.auth import LocalAccess
from server.budgets import CONVERSATION
from server.serving.config_file import ConfigFile
from server.serving.options import AssistantOptions, OptionGroup, option
from server.telephony.settings import CallSettings

if TYPE_CHECKING:
    from server.telephony.auth import CarrierAuth

LOCAL_CLUSTER = "local"
"""The address that stands for a cluster of this machine only."""

_API_KEY = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MCP_URL = re.compile(r"https?://\S+")
_PUBLIC_URL = re.compile(r"((https?|wss?)://[^/\s]+/?)?")
_CAPACITY = re.compile(r"auto|0*([1-9]\d{0,2}|10[01]\d|102[0-4])")


def _matches(pattern: re.Pattern[str], message: str) -> AfterValidator:
    def check(value: Any) -> Any:
        for one in value if isinstance(value, tuple) else (value,):
            if not pattern.fullmatch(one.get_secret_value() if isinstance(one, SecretStr) else one):
                raise ValueError(message)
        return value

    return AfterValidator(check)


def _split(value: Any) -> Any:
    """A variable holds several keys, separated by spaces."""
    return value.split() if isinstance(value, str) else value


class NetworkOptions(OptionGroup, title="Network"):
    """Where the server listens."""

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 for all interfaces.")
    port: int = option(8000, "Port; 0 selects a free one.", ge=0, le=65535)
    tls_cert: Path | None = option(None, "TLS certificate chain (PEM).")
    tls_key: Path | None = option(None, "TLS private key (PEM).")
    tls_self_signed: bool = option(False, "Create a self-signed certificate, to try the page from another device.")

    @model_validator(mode="after")
    def _check_certificate(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("give both --tls-cert and --tls-key, or neither")
        if self.tls_cert is not None and self.tls_self_signed:
            raise ValueError("give either a certificate or --tls-self-signed")
        return self


class AccessOptions(OptionGroup, title="Access"):
    """Who may connect."""

    api_key: Annotated[
        tuple[SecretStr, ...],
        BeforeValidator(_split),
        _matches(
            _API_KEY, "an API key may contain only letters, digits and !#$%&'*+.^_`|~-: browsers cannot send others"
        ),
    ] = option((), "Require clients to send this key; repeatable.", variable="REJOINDER_API_KEY")
    allow_anyone: bool = option(False, "Listen beyond this machine without requiring a key.")
    allow_origin: tuple[str, ...] = option((), "Allow pages of another origin, like https://example.org; repeatable.")
    allow_mcp_server: Annotated[
        tuple[str, ...], _matches(_MCP_URL, "--allow-mcp-server looks like https://tools.example.org/mcp")
    ] = option((), "Let conversations use the tools of this MCP server, by its exact URL; repeatable.")


class LimitOptions(OptionGroup, title="Limits"):
    """How much the server takes on, and for how long."""

    max_conversations: Annotated[
        str, _matches(_CAPACITY, "--max-conversations is auto, or a number from 1 to 1024")
    ] = option("auto", "Conversations at the same time; auto admits as many as are answered in time (--target-p95).")
    target_p95: float = option(
        1.0,
        "Seconds that 19 of 20 turns should not exceed, however many conversations there are.",
        ge=0.2,
        le=30,
    )
    max_session_minutes: float = option(
        CONVERSATION.seconds // 60, "Maximum length of a Realtime session.", ge=0.1, le=1440
    )
    idle_minutes: float = option(15, "Disconnect Realtime clients that send nothing for this long.", ge=0.1, le=1440)
    drain_seconds: float = option(20, "After SIGTERM, how long conversations may finish their turns.", ge=0, le=600)
    hang_seconds: float = option(
        60, "End the process, for a supervisor, when a step of a model takes longer; 0: never.", ge=0
    )


class RecordOptions(OptionGroup, title="Logs and traces"):
    """What the server writes down."""

    log_format: Literal["text", "json"] = option("text", "text, or json: one object a line.")
    turn_log: Path | None = option(None, "Record every turn in this SQLite file, for `rejoinder report --turn-log`.")
    keep_days: float = option(30, "Delete turns that are older than this from the turn log.", ge=0)
    no_text: bool = option(False, "Leave transcripts out of the turn log.")
    otlp_endpoint: str = option("", "Send a trace of each turn to this OpenTelemetry collector (OTLP over HTTP).")


class PhoneOptions(OptionGroup, title="Phone calls"):
    """Which calls are accepted, and how they go."""

    phone_secret: SecretStr = option(
        SecretStr(""), "Accept phone calls with ?token=SECRET.", variable="REJOINDER_PHONE_SECRET"
    )
    twilio_token: SecretStr = option(
        SecretStr(""), "Twilio Auth Token: accept calls that are signed with it.", variable="TWILIO_AUTH_TOKEN"
    )
    plivo_token: SecretStr = option(
        SecretStr(""), "Plivo Auth Token: accept calls that are signed with it.", variable="PLIVO_AUTH_TOKEN"
    )
    telnyx_key: str = option(
        "", "Telnyx public key: accept calls whose webhooks are signed with it.", variable="TELNYX_PUBLIC_KEY"
    )
    public_url: Annotated[
        str, _matches(_PUBLIC_URL, "--public-url looks like https://phone.example.org, without a path")
    ] = option("", "Public URL of this server, https://HOST, if it is behind a proxy.")
    audiosocket: int | None = option(
        None, "Port for AudioSocket calls (Asterisk); 0 selects a free one.", ge=0, le=65535
    )
    max_call_minutes: float = option(60, "Maximum length of a phone call.", ge=0.1, le=1440)
    greeting: str = option(CallSettings.greeting, "Spoken at the start of a call; empty to let the caller speak first.")


class ClusterOptions(OptionGroup, title="Several replicas"):
    """How many servers there are, and what they share."""

    cluster: str = option(
        "",
        "Serve from several replicas, on a Ray cluster of this machine, or on the one at this address "
        "(auto finds one that runs here), where the service then keeps running.",
        metavar="[ADDRESS]",
    )
    replicas: str = option(
        "auto", "With --cluster: auto for as many as fit on this machine, a number, or 1-8 to scale."
    )
    spare_conversations: float = option(
        2, "With --replicas 1-8: start another one when there is room for fewer new ones.", ge=0
    )
    scale_in_minutes: float = option(10, "With --replicas 1-8: stop one that has not been needed for this long.", ge=0)
    records: str = option(
        "",
        "Share open conversations with other servers, so that clients can continue there: a file, or "
        "redis://HOST:6379/0. With --cluster on this machine it is a file in the data folder.",
        variable="REJOINDER_RECORDS",
    )


class ServeSettings(
    NetworkOptions,
    AccessOptions,
    LimitOptions,
    PhoneOptions,
    RecordOptions,
    ClusterOptions,
    AssistantOptions,
    title="Options",
):
    """Everything that `rejoinder serve` can be told: by the command line, else by the environment, else by the file."""

    config: Path | None = option(
        None,
        "A TOML file with options of this command; the command line and the environment come first.",
        variable="REJOINDER_CONFIG",
    )
    _ticket_key: bytes = PrivateAttr(default_factory=lambda: urlsafe_b64encode(secrets.token_bytes(32)))
    _start_key: str = PrivateAttr("")
    _tool_access: ToolAccess = PrivateAttr(default_factory=ToolAccess)

    @model_validator(mode="after")
    def _read_tool_access(self) -> Self:
        """Read it in this process: replicas on other machines do not have the file. Raises BadConfig, OSError."""
        if self.config is not None:
            self._tool_access = ConfigFile(self.config).tools()
        return self

    @property
    def tool_access(self) -> ToolAccess:
        """Who may call which tools."""
        return self._tool_access

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources, the one that decides first: files of secrets come after the environment, as they set the same
        options. Raises BadConfig, OSError, ValueError."""
        path = {**env_settings(), **init_settings()}.get("REJOINDER_CONFIG")
        values = ConfigFile(Path(path)).values(cls) if path else {}
        for name, field in cls.model_fields.items():
            if field.validation_alias and (secret := credential_file(str(field.validation_alias))) is not None:
                values[name] = secret
        return init_settings, env_settings, InitSettingsSource(settings_cls, values)

    @property
    def api_keys(self) -> tuple[str, ...]:
        """The keys themselves."""
        return tuple(key.get_secret_value() for key in self.api_key)

    @property
    def start_key(self) -> str:
        """An admin key that ends with the server; empty for none."""
        return self._start_key

    def with_start_key(self, key: str) -> Self:
        """The same settings with such a key."""
        copy = self.model_copy()
        copy._start_key = key
        return copy

    def local_access(self, *, loopback: bool) -> LocalAccess:
        """Which requests come from a user of this machine.

        Args:
            loopback: whether the server listens on this machine only.
        """
        tunnelled = bool(self.public_url) or self.carrier_auth.configured
        return LocalAccess(loopback and not tunnelled, self.host)

    @property
    def carrier_auth(self) -> CarrierAuth:
        """Which phone calls are accepted. Replicas accept the tickets of each other. Raises ValueError."""
        from server.telephony.auth import CarrierAuth  # brings cryptography, which `--help` does not need

        phone_secret, twilio, plivo = (
            secret.get_secret_value() for secret in (self.phone_secret, self.twilio_token, self.plivo_token)
        )
        shared = (phone_secret,) if phone_secret else self.api_keys
        return CarrierAuth(twilio, plivo, self.telnyx_key, shared, self._ticket_key)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be logged."""
        options = (*self.api_key, self.phone_secret, self.twilio_token, self.plivo_token)
        remote = (self.remote_llm.api_key,) if self.remote_llm is not None else ()
        password = urlsplit(self.records).password or ""
        return (*(option.get_secret_value() for option in options), *remote, password)

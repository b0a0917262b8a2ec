"""`rejoinder serve`: the web page, the Realtime protocol and phone calls on one port."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agent.storage import data_folder
from cli.config_file import apply_config
from cli.errors import user_errors
from cli.logs import LogFormat, log_to_stderr
from cli.options import (
    DataOption,
    DocsOption,
    McpConfigOption,
    NoBuiltinToolsOption,
    ToolsOption,
    with_model_options,
)
from cli.service_options import Services, with_service_options
from server.serving.runtime import ModelOptions
from server.telephony.settings import CallSettings

_GREETING = CallSettings().greeting

_err = Console(stderr=True)


@with_service_options
@with_model_options
def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="REJOINDER_CONFIG",
            is_eager=True,
            callback=apply_config,
            help="A TOML file with options of this command; the command line and the environment come first.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free one.")] = 8000,
    tls_cert: Annotated[Path | None, typer.Option(help="TLS certificate chain (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="TLS private key (PEM).")] = None,
    tls_self_signed: Annotated[
        bool, typer.Option(help="Create a self-signed certificate, to try the page from another device.")
    ] = False,
    api_key: Annotated[
        list[str] | None,
        typer.Option(envvar="REJOINDER_API_KEY", help="Require clients to send this key; repeatable."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Allow pages of another origin, like https://example.org; repeatable.")
    ] = None,
    allow_mcp_server: Annotated[
        list[str] | None,
        typer.Option(help="Let conversations use the tools of this MCP server, by its exact URL; repeatable."),
    ] = None,
    tools: ToolsOption = None,
    mcp_config: McpConfigOption = None,
    no_builtin_tools: NoBuiltinToolsOption = False,
    docs: DocsOption = None,
    data: DataOption = None,
    allow_anyone: Annotated[
        bool, typer.Option("--allow-anyone", help="Listen beyond this machine without requiring a key.")
    ] = False,
    max_conversations: Annotated[
        str,
        typer.Option(help="Conversations at the same time; auto measures how many this machine carries without delay."),
    ] = "auto",
    max_session_minutes: Annotated[
        float, typer.Option(min=0.1, max=1440, help="Maximum length of a Realtime session.")
    ] = 60,
    idle_minutes: Annotated[
        float, typer.Option(min=0.1, max=1440, help="Disconnect Realtime clients that send nothing for this long.")
    ] = 15,
    drain_seconds: Annotated[
        float, typer.Option(min=0, max=600, help="After SIGTERM, how long conversations may finish their turns.")
    ] = 20,
    hang_seconds: Annotated[
        float,
        typer.Option(min=0, help="End the process, for a supervisor, when a step of a model takes longer; 0: never."),
    ] = 60,
    otlp_endpoint: Annotated[
        str, typer.Option(help="Send a trace of each turn to this OpenTelemetry collector (OTLP over HTTP).")
    ] = "",
    log_format: Annotated[LogFormat, typer.Option(help="text, or json: one object a line.")] = LogFormat.text,
    turn_log: Annotated[
        Path | None, typer.Option(help="Record every turn in this SQLite file, for `rejoinder report --turn-log`.")
    ] = None,
    keep_days: Annotated[
        float, typer.Option(min=0, help="Delete turns that are older than this from the turn log.")
    ] = 30,
    no_text: Annotated[bool, typer.Option("--no-text", help="Leave transcripts out of the turn log.")] = False,
    audiosocket: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for AudioSocket calls (Asterisk); 0 selects a free one.")
    ] = None,
    phone_secret: Annotated[
        str, typer.Option(envvar="REJOINDER_PHONE_SECRET", help="Accept phone calls with ?token=SECRET.")
    ] = "",
    twilio_token: Annotated[
        str, typer.Option(envvar="TWILIO_AUTH_TOKEN", help="Twilio Auth Token: accept calls that are signed with it.")
    ] = "",
    plivo_token: Annotated[
        str, typer.Option(envvar="PLIVO_AUTH_TOKEN", help="Plivo Auth Token: accept calls that are signed with it.")
    ] = "",
    telnyx_key: Annotated[
        str,
        typer.Option(
            envvar="TELNYX_PUBLIC_KEY", help="Telnyx public key: accept calls whose webhooks are signed with it."
        ),
    ] = "",
    public_url: Annotated[
        str, typer.Option(help="Public URL of this server, https://HOST, if it is behind a proxy.")
    ] = "",
    max_call_minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="Maximum length of a phone call.")] = 60,
    greeting: Annotated[
        str, typer.Option(help="Spoken at the start of a call; empty to let the caller speak first.")
    ] = _GREETING,
    cluster: Annotated[
        str,
        typer.Option(
            metavar="[ADDRESS]",
            help="Serve from several replicas, on a Ray cluster of this machine, or on the one at this address (auto "
            "finds one that runs here), where the service then keeps running.",
        ),
    ] = "",
    replicas: Annotated[
        str,
        typer.Option(help="With --cluster: auto for as many as fit on this machine, a number, or 1-8 to scale."),
    ] = "auto",
    spare_conversations: Annotated[
        float,
        typer.Option(min=0, help="With --replicas 1-8: start another one when there is room for fewer new ones."),
    ] = 2,
    scale_in_minutes: Annotated[
        float, typer.Option(min=0, help="With --replicas 1-8: stop one that has not been needed for this long.")
    ] = 10,
    records: Annotated[
        str,
        typer.Option(
            envvar="REJOINDER_RECORDS",
            help="Share open conversations with other servers, so that clients can continue there: a file, or "
            "redis://HOST:6379/0. With --cluster on this machine it is a file in the data folder.",
        ),
    ] = "",
    *,
    model_options: ModelOptions,
    services: Services,
) -> None:
    """Serve the web page at /, the Realtime protocol at /v1/realtime and phone calls at /phone."""
    from server.context import SessionLimits
    from server.serving.cluster import ClusterSettings, run_cluster
    from server.serving.run import run
    from server.serving.scaling import ReplicaLimits
    from server.serving.service import ServeSettings
    from server.telephony.auth import CarrierAuth
    from server.telephony.routes import TelephonySettings

    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("give both --tls-cert and --tls-key, or neither")
    if max_conversations != "auto" and not (max_conversations.isdecimal() and 1 <= int(max_conversations) <= 1024):
        raise typer.BadParameter("--max-conversations is auto, or a number from 1 to 1024")
    for key in api_key or ():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key):
            raise typer.BadParameter(
                "an API key may contain only letters, digits and !#$%&'*+.^_`|~-: browsers cannot send others"
            )
    for url in allow_mcp_server or ():
        if not re.fullmatch(r"https?://[^\s]+", url):
            raise typer.BadParameter("--allow-mcp-server looks like https://tools.example.org/mcp")
    if tls_cert is not None and tls_self_signed:
        raise typer.BadParameter("give either a certificate or --tls-self-signed")
    if public_url and not re.fullmatch(r"(https?|wss?)://[^/\s]+/?", public_url):
        raise typer.BadParameter("--public-url looks like https://phone.example.org, without a path")
    shared_secrets = (phone_secret,) if phone_secret else tuple(api_key or ())
    with user_errors():
        carrier_auth = CarrierAuth(twilio_token, plivo_token, telnyx_key, shared_secrets)
    settings = ServeSettings(
        host,
        port,
        tls_cert,
        tls_key,
        tls_self_signed,
        frozenset(api_key or ()),
        frozenset(allow_origin or ()),
        None if max_conversations == "auto" else int(max_conversations),
        turn_log,
        keep_days,
        not no_text,
        TelephonySettings(
            CallSettings(greeting=greeting, max_duration_s=60 * max_call_minutes), carrier_auth, public_url
        ),
        audiosocket,
        frozenset(allow_mcp_server or ()),
        services.tool_settings(tuple(tools or ()), mcp_config, not no_builtin_tools, data),
        data or data_folder(),
        allow_anyone,
        SessionLimits(60 * idle_minutes, 60 * max_session_minutes),
        drain_seconds,
        otlp_endpoint,
        hang_seconds,
        records,
        services.remote_llm,
        tuple(docs or ()),
    )
    secrets = (*(api_key or ()), phone_secret, twilio_token, plivo_token, *services.secrets)
    set_up_logging = partial(log_to_stderr, as_json=log_format is LogFormat.json, secrets=secrets)
    set_up_logging()
    with user_errors():
        if cluster:
            limits = ReplicaLimits.parse(replicas)
            run_cluster(
                model_options,
                settings,
                ClusterSettings(cluster, limits, spare_conversations, 60 * scale_in_minutes),
                _err,
                set_up_logging,
            )
        else:
            run(model_options, settings, _err)

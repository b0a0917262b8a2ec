"""The `rejoinder` command. Each command says what is wrong in one sentence and exits with 1; 2 is for wrong usage."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Column, Table

from model import catalog
from model.store import Store
from server.calling.command import call
from server.converting import convert_app
from server.loading import Bars, Choice
from server.options import with_choice
from server.phone.rules import CallRules
from server.reporting import report
from server.sentences import UserError, sentences

app = typer.Typer(
    help="A voice assistant that you run yourself.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
models_app = typer.Typer(help="The models on this machine.", no_args_is_help=True)
app.add_typer(models_app, name="models")
bench_app = typer.Typer(help="Measure this machine.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
app.add_typer(convert_app, name="convert")
app.command("report")(report)
app.command("call")(call)

_GREETING = CallRules().greeting

_out = Console()
_err = Console(stderr=True)


@app.callback()
def _logging(verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what happens.")] = False) -> None:
    handler = RichHandler(console=_err, show_path=False, rich_tracebacks=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", datefmt="[%X]", handlers=[handler])
    logging.getLogger("rejoinder").setLevel(logging.DEBUG if verbose else logging.INFO)


@app.command()
@with_choice
def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for every one of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    tls_self_signed: Annotated[
        bool, typer.Option(help="Make a certificate, for trying the page from another device.")
    ] = False,
    api_key: Annotated[
        list[str] | None,
        typer.Option(envvar="REJOINDER_API_KEY", help="A key that clients must have; may be repeated."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A page elsewhere that may connect, like https://example.org.")
    ] = None,
    max_conversations: Annotated[int, typer.Option(min=1, max=1024, help="More at once are turned away.")] = 16,
    timelines: Annotated[
        Path | None, typer.Option(help="Keep every turn's timeline in this SQLite file, for `report --live`.")
    ] = None,
    keep_days: Annotated[float, typer.Option(min=0, help="Delete older turns from it.")] = 30,
    no_text: Annotated[bool, typer.Option("--no-text", help="Keep no words in it, only times.")] = False,
    audiosocket: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for Asterisk's AudioSocket calls; 0 picks a free one.")
    ] = None,
    phone_secret: Annotated[
        str, typer.Option(envvar="REJOINDER_PHONE_SECRET", help="A secret that phone calls may bring, ?token=SECRET.")
    ] = "",
    twilio_token: Annotated[
        str, typer.Option(envvar="TWILIO_AUTH_TOKEN", help="The account's Auth Token: only calls signed with it.")
    ] = "",
    plivo_token: Annotated[str, typer.Option(envvar="PLIVO_AUTH_TOKEN", help="The same for Plivo.")] = "",
    telnyx_key: Annotated[
        str, typer.Option(envvar="TELNYX_PUBLIC_KEY", help="The public key that Telnyx signs webhooks with.")
    ] = "",
    public_url: Annotated[
        str, typer.Option(help="Where carriers find this server, https://HOST, when a proxy hides it.")
    ] = "",
    call_minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="A call is ended after so long.")] = 60,
    greeting: Annotated[str, typer.Option(help="What callers hear first; empty to let them begin.")] = _GREETING,
    *,
    choice: Choice,
) -> None:
    """Serve the page at /, the Realtime protocol at /v1/realtime and phone calls at /phone."""
    from server.phone.routes import PhoneSettings
    from server.phone.trust import Trust
    from server.serving import Serving, run

    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("give both --tls-cert and --tls-key, or neither")
    for key in api_key or ():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key):
            raise typer.BadParameter(
                "an API key may hold letters, digits and !#$%&'*+.^_`|~- only: browsers send no other"
            )
    if tls_cert is not None and tls_self_signed:
        raise typer.BadParameter("give a certificate or --tls-self-signed, not both")
    if public_url and not re.fullmatch(r"(https?|wss?)://[^/\s]+/?", public_url):
        raise typer.BadParameter("--public-url looks like https://phone.example.org, without a path")
    shared = (phone_secret,) if phone_secret else tuple(api_key or ())
    with sentences():
        trust = Trust(twilio_token, plivo_token, telnyx_key, shared)
    serving = Serving(
        host,
        port,
        tls_cert,
        tls_key,
        tls_self_signed,
        frozenset(api_key or ()),
        frozenset(allow_origin or ()),
        max_conversations,
        timelines,
        keep_days,
        not no_text,
        PhoneSettings(CallRules(greeting=greeting, longest_s=60 * call_minutes), trust, public_url),
        audiosocket,
    )
    with sentences():
        run(choice, serving, _err)


@app.command()
@with_choice
def ask(
    text: Annotated[str | None, typer.Argument(help="The question, written.")] = None,
    wav: Annotated[Path | None, typer.Option(help="The question, spoken: a WAV file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to put the spoken answer, a WAV file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    *,
    choice: Choice,
) -> None:
    """Ask one question, without a server."""
    from server.ask import Question, run

    if (text is None) == (wav is None):
        raise typer.BadParameter("give a question as text or with --wav FILE, one of the two")
    with sentences():
        asyncio.run(run(Question(text, wav, out, as_json), choice, _out, _err))


@app.command()
@with_choice
def talk(
    headphones: Annotated[
        bool, typer.Option(help="You wear headphones: the microphone stays open while the assistant speaks.")
    ] = False,
    microphone: Annotated[str | None, typer.Option(help="Name or number of the microphone.")] = None,
    loudspeaker: Annotated[str | None, typer.Option(help="Name or number of the loudspeaker.")] = None,
    *,
    choice: Choice,
) -> None:
    """Talk through this machine's microphone and loudspeaker."""
    from server.loading import load_engine, load_voice_stages
    from voice.talk import Devices, Talk

    with sentences():
        devices = Devices.find(microphone, loudspeaker)
        stages, engine = load_voice_stages(choice, _err), load_engine(choice, _err)
        _out.print("Speak when you like; Ctrl-C ends." + ("" if headphones else " I listen while I am silent."))
        asyncio.run(Talk(engine.conversation(), stages, devices, full_duplex=headphones, say=_say).run())


def _say(line: str) -> None:
    _out.print(line, markup=False, highlight=False, soft_wrap=True)


@bench_app.command("model")
@with_choice
def bench_model(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    crowds: Annotated[
        list[int] | None,
        typer.Option("--conversations", min=1, max=256, help="So many at once, too; may be repeated."),
    ] = None,
    *,
    choice: Choice,
) -> None:
    """Measure the language model on this machine."""
    from server.bench import run, show

    with sentences():
        figures = run(choice, _err, crowds or ())
    if as_json:
        _out.print_json(json.dumps(asdict(figures)))
    else:
        show(figures, _out)


@models_app.command("list")
def models_list() -> None:
    """Name the models, their authors and licences, and whether they are here."""
    store = Store()
    table = Table(Column("name", no_wrap=True), "what", "size", "authors", "licence", "here")
    for model in catalog.MODELS:
        size = f"{model.size / 1e6:,.0f} MB"
        table.add_row(model.name, model.title, size, model.authors, model.licence, store.available(model))
    _out.print(table)


@models_app.command("pull")
def models_pull(name: Annotated[str, typer.Argument(help="A name from `rejoinder models list`.")]) -> None:
    """Assemble a model in the cache and check it."""
    with sentences(), Bars(_err) as report:
        folder = Store().pull(_known(name), report)
    _out.print(f"{name} is in {folder}")


@models_app.command("verify")
def models_verify(
    name: Annotated[str | None, typer.Argument(help="One model; all that are here when not given.")] = None,
) -> None:
    """Read every byte of the models that are here and compare checksums."""
    store, wrong = Store(), False
    with sentences():
        chosen = (
            [_known(name)]
            if name
            else [m for m in catalog.MODELS if store.available(m) == "ready" or (store.folder / m.name).exists()]
        )
    if not chosen:
        _out.print("no model is in the cache yet: `rejoinder models pull NAME` puts one there")
    for model in chosen:
        with Bars(_err) as report:
            checks = store.check(model, report)
        for check in checks:
            wrong = wrong or check.state != "ok"
            _out.print(f"{model.name}/{check.file.name}: {check.state}", soft_wrap=True)
    if wrong:
        raise typer.Exit(1)


def _known(name: str) -> catalog.Model:
    try:
        return catalog.find(name)
    except LookupError as error:
        raise UserError(str(error)) from None


def main() -> None:
    """Entry point of the `rejoinder` command."""
    app()


if __name__ == "__main__":
    main()

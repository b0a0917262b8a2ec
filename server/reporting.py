"""`rejoinder report`: how fast a Realtime server answers, spoken to in real time and measured as it is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import onnxruntime
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from model.store import cache_folder
from server.calling.command import CarrierName
from server.calling.reported import TURNS_PER_CALL, phoning
from server.loading import DEFAULT_VOICE, TRANSCRIPTION_MODEL, Choice, locate
from server.options import chosen_options, with_choice
from server.report.child import own_server
from server.report.client import TURNS_PER_CONNECTION, Call, NoServer, calling, speak
from server.report.corpus import SpokenTurn, built_in, choose, from_folder
from server.report.limits import Limit, broken, parse
from server.report.live import measurements
from server.report.measure import Measurement
from server.report.page import write_page
from server.report.run import Run, read
from server.report.show import show
from server.sentences import UserError, sentences
from voice.tts import Voice

_BROKEN = 3
"""Exit status when a limit is broken."""

_CORPUS_VOICE = DEFAULT_VOICE
"""Speaks the built-in corpus whatever voice answers, so that reports can be compared."""

_out = Console()
_err = Console(stderr=True)


@dataclass(frozen=True)
class Wanted:
    """What to measure.

    Attributes:
        url: of another server; ours is started when None.
        options: that pick models for our own server.
        phone: the carrier whose protocol is spoken, or None for the Realtime protocol.
        eagerness: asked of the server, or None for its own.
    """

    url: str | None
    api_key: str | None
    corpus: Path | None
    turns: int | None
    kinds: list[str]
    seed: int
    options: list[str]
    phone: str | None = None
    eagerness: str | None = None


class Eagerness(StrEnum):
    """How soon a turn is taken for over."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@with_choice
def report(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="A Realtime server, ws://HOST:PORT/v1/realtime; without it, one is started.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="REJOINDER_API_KEY", help="A key, if the server wants one.")
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(help="A folder of WAV files, each with a .txt of the same name; the built-in corpus without it."),
    ] = None,
    turns: Annotated[
        int | None, typer.Option(min=1, help="So many turns, of all kinds; the whole corpus without it.")
    ] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only turns of this kind; may be repeated.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write figures and turns to this file.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page to this file.")] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(help="A JSON file of another run, shown beside this one; more of them go into the page's curve."),
    ] = None,
    live: Annotated[
        Path | None, typer.Option(help="Measure nothing: read what `rejoinder serve --timelines FILE` kept.")
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(help="Exit with 3 when a figure is above, like p95=1000; may be repeated.")
    ] = None,
    phone: Annotated[
        CarrierName | None, typer.Option(help="Speak through this phone carrier's protocol, one call a turn.")
    ] = None,
    eagerness: Annotated[
        Eagerness | None,
        typer.Option(help="Ask the server to take turns for over so soon; its own default without it."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the order of turns and of the bootstrap.")] = 0,
    *,
    choice: Choice,
) -> None:
    """Measure how fast a server answers."""
    with sentences():
        limits = [parse(said) for said in limit or ()]
        others = [read(path) for path in compare or ()]
        for path in (json, html):
            if path is not None and not path.absolute().parent.is_dir():
                raise UserError(f"there is no folder {path.absolute().parent} for {path.name}: make it first")
        if live is not None:
            run = Run.now(measurements(live), server=str(live), corpus="real conversations", models={}, seed=seed)
        else:
            if phone is not None and eagerness is not None:
                raise UserError(
                    "--eagerness is asked in the Realtime protocol, and a telephone cannot ask: leave one out"
                )
            wanted = Wanted(
                url, api_key, corpus, turns, kind or [], seed, chosen_options(context), phone and phone.value, eagerness
            )
            run = _measure(wanted, choice)
        show(run, _out, others[0] if others else None)
        if json is not None:
            run.write(json)
        if html is not None:
            write_page(html, run, others)
    _hold(limits, run)


def _measure(wanted: Wanted, choice: Choice) -> Run:
    turns = choose(_corpus(wanted), wanted.kinds, wanted.turns, wanted.seed)
    try:
        measured = asyncio.run(_spoken(wanted, turns))
    except NoServer as error:
        raise UserError(str(error)) from None
    models = {}
    if wanted.url is None:
        models = {"language": choice.model, "transcription": TRANSCRIPTION_MODEL, "voice": choice.voice}
    name = "the built-in corpus" if wanted.corpus is None else wanted.corpus.name
    server = wanted.url.partition("?")[0] if wanted.url else "rejoinder serve"
    server += f" over {wanted.phone}" if wanted.phone else ""
    server += f", eagerness {wanted.eagerness}" if wanted.eagerness else ""
    return Run.now(measured, server=server, corpus=name, models=models, seed=wanted.seed)


def _corpus(wanted: Wanted) -> list[SpokenTurn]:
    if wanted.corpus is not None:
        return from_folder(wanted.corpus)

    def speaker() -> Voice:
        _err.print("Making the corpus, once: a minute.")
        onnxruntime.set_seed(1)  # Piper draws its prosody; the corpus should be the same on every machine
        return Voice(locate(_CORPUS_VOICE, _err))

    return built_in(speaker, cache_folder() / "report", _CORPUS_VOICE)


async def _spoken(wanted: Wanted, turns: Sequence[SpokenTurn]) -> list[Measurement]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_err, transient=True, refresh_per_second=1) as bars:
        task = bars.add_task("starting the server" if wanted.url is None else "turns", total=len(turns))

        def told(turn: Measurement) -> None:
            said = "no answer" if turn.latency_ms is None else f"{turn.latency_ms:.0f} ms"
            bars.update(task, advance=1, description=f"{turn.name}: {'cut off' if turn.cut_off else said}")

        def connected(url: str) -> Callable[[], AbstractAsyncContextManager[Call]]:
            if wanted.phone is not None:
                return partial(phoning, url, wanted.phone)
            return partial(calling, url, wanted.api_key, wanted.eagerness)

        each = TURNS_PER_CONNECTION if wanted.phone is None else TURNS_PER_CALL
        if wanted.url is not None:
            return await speak(connected(wanted.url), turns, each=each, report=told)
        async with own_server(wanted.options, phone=wanted.phone) as url:
            bars.update(task, description="turns")
            return await speak(connected(url), turns, each=each, report=told)


def _hold(limits: list[Limit], run: Run) -> None:
    sentences_ = broken(limits, run.figures)
    for sentence in sentences_:
        _err.print(f"rejoinder: {sentence}", style="red", soft_wrap=True, highlight=False)
    if sentences_:
        raise typer.Exit(_BROKEN)

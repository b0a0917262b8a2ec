"""`rejoinder call`: simulated phone calls, one or many at once, that play recordings and time the responses."""

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
from rich.table import Table

from cli.console import UserError, say, stdout, user_errors
from lab.report.corpus import bounds_ms
from lab.simulator.carriers import CARRIERS, REPORT_FUNCTIONS, CalledFunction
from lab.simulator.errors import ServerUnavailable
from lab.simulator.phone import NetworkConditions, Phone, dial, with_token
from voice.audio.codec import OUTPUT_RATE, Samples
from voice.audio.wav import read_wav, write_wav

app = typer.Typer(add_completion=False)

_RESPONSE_TIMEOUT_S = 15.0
"""A recording without an audible response for this long has none."""

_GREETING_TIMEOUT_S = 3.0
"""A call that was not greeted by then will not be."""

_MAX_SPEECH_S = 60.0
"""The longest greeting or response that is waited for."""

_QUIET_S = 1.0
"""Silence that ends a greeting or a response; between two clauses it may last half as long."""

_MAX_LATENESS_MS = 20
"""If the microphone falls further behind its schedule, the machine is too busy to measure."""

CarrierName = StrEnum("CarrierName", {name: name for name in CARRIERS})  # type: ignore[misc]
_TWILIO = CarrierName("twilio")


@dataclass(frozen=True)
class CallPlan:
    """What every call does.

    Attributes:
        turns: recordings at 24 kHz, each with the time in ms of its last sample of speech.
        digits: keys to press after the greeting.
        abruptly: drop the connection without the carrier's goodbye.
    """

    url: str
    carrier: str
    turns: Sequence[tuple[Samples, float]]
    parameters: dict[str, str] = field(default_factory=dict)
    network: NetworkConditions = field(default_factory=NetworkConditions)
    digits: str = ""
    abruptly: bool = False


@dataclass
class CallOutcome:
    """The result of one call.

    Attributes:
        greeted_ms: from the start of the call to the first audible sound.
        latencies_ms: from the last sample of each recording to the response's first audible one; None if there was no
            response.
        refused: why the call failed, or empty.
        late_ms: how far the caller's own clock fell behind.
        gaps: underruns within a response.
        clears, marks: how many arrived.
        functions: functions that the assistant called, each with the time in s since the call was dialed.
        violations: what the carrier would not have accepted.
        received: all audio that arrived.
    """

    greeted_ms: float | None = None
    latencies_ms: list[float | None] = field(default_factory=list)
    refused: str = ""
    late_ms: float = 0.0
    gaps: int = 0
    clears: int = 0
    marks: int = 0
    functions: list[tuple[float, CalledFunction]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    received: list[Samples] = field(default_factory=list)


async def place_call(plan: CallPlan) -> CallOutcome:
    """Run one call from dialing to hanging up."""
    outcome = CallOutcome()
    carrier = CARRIERS[plan.carrier]({**REPORT_FUNCTIONS, **plan.parameters})
    try:
        dialed_at = time.monotonic()
        async with dial(plan.url, carrier, network=plan.network, abruptly=plan.abruptly) as phone:
            greeted_at = await _wait_for_audible(phone, dialed_at, _GREETING_TIMEOUT_S)
            if greeted_at is not None:
                outcome.greeted_ms = 1000 * (greeted_at - dialed_at)
                await _wait_for_quiet(phone)
            for digit in plan.digits:
                await asyncio.sleep(0.2)
                pressed_at = time.monotonic()
                await phone.press(digit)
            if plan.digits:
                await _wait_for_audible(phone, pressed_at, _RESPONSE_TIMEOUT_S)
                await _wait_for_quiet(phone)
            for samples, end_ms in plan.turns:
                speech_end = await phone.microphone.play(samples) + end_ms / 1000
                timeout_s = speech_end - time.monotonic() + _RESPONSE_TIMEOUT_S
                audible_at = await _wait_for_audible(phone, speech_end, timeout_s)
                outcome.latencies_ms.append(None if audible_at is None else 1000 * (audible_at - speech_end))
                if plan.abruptly:
                    break
                await _wait_for_quiet(phone)
        outcome.late_ms = 1000 * phone.microphone.max_lateness_s - plan.network.jitter_ms
        outcome.gaps = len(phone.player.gaps)
        outcome.clears, outcome.marks, outcome.violations = phone.clears, phone.marks, phone.violations
        outcome.functions = [(at - dialed_at, called) for at, called in phone.functions]
        outcome.received = phone.received
    except ServerUnavailable as error:
        outcome.refused = str(error)
    return outcome


async def _wait_for_audible(phone: Phone, since: float, timeout_s: float) -> float | None:
    """When the first audible sample at or after `since` is played; None after the timeout."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not phone.disconnected.is_set():
        if (at := phone.player.first_audible(since)) is not None:
            return at
        await asyncio.sleep(0.01)
    return phone.player.first_audible(since)


async def _wait_for_quiet(phone: Phone) -> None:
    """Wait until nothing was played for `_QUIET_S`."""
    deadline = time.monotonic() + _MAX_SPEECH_S
    while (now := time.monotonic()) < deadline and not phone.disconnected.is_set():
        if now >= phone.player.end + _QUIET_S:
            return
        await asyncio.sleep(0.02)


@app.command("call")
def call(
    wav: Annotated[list[Path], typer.Argument(help="Recordings to play, one after another.")],
    carrier: Annotated[CarrierName, typer.Option("--as", help="The carrier whose protocol to use.")] = _TWILIO,
    calls: Annotated[int, typer.Option(min=1, max=256, help="Number of simultaneous calls.")] = 1,
    url: Annotated[
        str, typer.Option(help="ws://HOST:PORT/phone, or tcp://HOST:PORT for AudioSocket.")
    ] = "ws://127.0.0.1:8000/phone",
    phone_secret: Annotated[
        str,
        typer.Option(help="The server's, or an API key.", envvar="REJOINDER_PHONE_SECRET", metavar="SECRET"),
    ] = "",
    parameter: Annotated[list[str] | None, typer.Option(help="A call parameter, NAME=VALUE; may be repeated.")] = None,
    digits: Annotated[str, typer.Option(help="Keys to press before speaking.")] = "",
    jitter: Annotated[float, typer.Option(min=0, max=2000, help="Maximum delay of a frame, in ms.")] = 0.0,
    reorder: Annotated[float, typer.Option(min=0, max=1, help="Fraction of frames sent out of order.")] = 0.0,
    loss: Annotated[float, typer.Option(min=0, max=1, help="Fraction of frames lost.")] = 0.0,
    abruptly: Annotated[
        bool, typer.Option("--abruptly", help="Drop the connection as soon as the response begins.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the audio that the first call hears to a WAV file.")] = None,
) -> None:
    """Call a server as a phone carrier would."""
    with user_errors():
        turns = []
        for path in wav:
            samples = read_wav(path, OUTPUT_RATE)
            turns.append((samples, bounds_ms(samples)[1]))
        pairs = [text.partition("=") for text in parameter or ()]
        if invalid := [name for name, sep, _ in pairs if not sep or not name]:
            raise UserError(f"--parameter {invalid[0]}: a parameter looks like greeting=Hello")
        if (carrier.value == "audiosocket") != url.startswith("tcp:"):
            raise UserError("AudioSocket needs a URL tcp://HOST:PORT; other carriers need ws://HOST:PORT/phone")
        parameters = {name: value for name, _, value in pairs}
        network = NetworkConditions(jitter, reorder, loss)
        plan = CallPlan(with_token(url, phone_secret), carrier.value, turns, parameters, network, digits, abruptly)
        outcomes = asyncio.run(_place_calls(plan, calls))
        _print(outcomes)
        if out is not None and outcomes[0].received:
            write_wav(out, np.concatenate(outcomes[0].received), CARRIERS[plan.carrier].rate)
    if any(outcome.refused or None in outcome.latencies_ms for outcome in outcomes):
        raise typer.Exit(1)


async def _place_calls(plan: CallPlan, count: int) -> list[CallOutcome]:
    return list(await asyncio.gather(*(place_call(plan) for _ in range(count))))


def _print(outcomes: Sequence[CallOutcome]) -> None:
    table = Table("call", "greeted", "responses after", "gaps", "clears", "marks", "remarks")
    for number, outcome in enumerate(outcomes, 1):
        latencies = ", ".join("none" if ms is None else f"{ms:.0f} ms" for ms in outcome.latencies_ms)
        late = f"this machine was {outcome.late_ms:.0f} ms late" if outcome.late_ms > _MAX_LATENESS_MS else ""
        remarks = "; ".join(filter(None, [outcome.refused, late, *outcome.violations[:3]]))
        greeted = "" if outcome.greeted_ms is None else f"{outcome.greeted_ms:.0f} ms"
        counts = (str(outcome.gaps), str(outcome.clears), str(outcome.marks))
        table.add_row(str(number), greeted, latencies, *counts, remarks)
    stdout.print(table)
    for number, outcome in enumerate(outcomes, 1):
        for at_s, called in outcome.functions:
            say(f"call {number}, {at_s:.1f} s: {called.name}({called.arguments}) → {called.output}")
    latencies_ms = sorted(ms for outcome in outcomes for ms in outcome.latencies_ms if ms is not None)
    if latencies_ms:
        median = float(np.percentile(latencies_ms, 50))
        stdout.print(f"{len(latencies_ms)} responses, p50 {median:.0f} ms, slowest {latencies_ms[-1]:.0f} ms")

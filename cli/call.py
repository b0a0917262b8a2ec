"""`rejoinder call`: simulated phone calls, one or many at once, that play recordings and time the responses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from cli.console import UserError, say, stdout, user_errors
from lab.report.corpus import bounds_ms
from lab.simulator.call import CallOutcome, CallPlan, place_call
from lab.simulator.carriers import CARRIERS, CarrierName
from lab.simulator.phone import NetworkConditions, with_token
from voice.audio.codec import OUTPUT_RATE
from voice.audio.wav import read_wav, write_wav

app = typer.Typer(add_completion=False)

_MAX_LATENESS_MS = 20
"""If the microphone falls further behind its schedule, the machine is too busy to measure."""

_TWILIO = CarrierName("twilio")


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

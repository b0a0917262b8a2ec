"""`rejoinder usage`: what each key has used, what it costs, and what a hosted service would have charged.

`rejoinder usage plan`: what the turns of a turn log would cost on machines of one's own."""

from __future__ import annotations

import datetime
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from agent.storage import data_folder
from cli.config import ConfigOption
from cli.console import stdout, user_errors
from cli.options import DataOption
from lab.simulator.costs import ASSUMPTIONS, loads_of, monthly_costs, usage_of
from lab.simulator.fleet import KINDS
from server.access.prices import Prices
from server.access.usage import USAGE_FILE, Usage, read_usage
from server.observability.turn_log import read_turn_log
from server.serving.config_file import ConfigFile

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def usage(
    context: typer.Context,
    days: Annotated[int, typer.Option(min=1, help="How many days, today (UTC) included.")] = 30,
    key: Annotated[str | None, typer.Option(help="Only the usage of this key.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the usage of each day as JSON.")] = False,
    config: ConfigOption = None,
    data: DataOption = None,
) -> None:
    """Show what each key has used, and what it costs by the price list of the configuration file."""
    if context.invoked_subcommand is not None:
        return
    since = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=days - 1)
    with user_errors():
        prices = ConfigFile(config).prices() if config is not None else Prices()
        rows = read_usage((data or data_folder()) / USAGE_FILE, since.isoformat())
    rows = [row for row in rows if key is None or row[1] == key]
    if as_json:
        print(json.dumps([_json(day, name, used, prices) for day, name, used in rows], indent=1))
        return
    totals: dict[str, Usage] = {}
    for _, name, used in rows:
        totals[name] = totals.get(name, Usage()) + used
    stdout.print(_table(totals, prices))


@app.command("plan")
def plan(
    turn_log: Annotated[Path, typer.Option(help="The turn log of a server.")],
    config: Annotated[
        Path, typer.Option(envvar="REJOINDER_CONFIG", help="The file with the prices of a hosted service.")
    ],
    days: Annotated[int, typer.Option(min=1, help="How many days of the log.")] = 30,
    replica: Annotated[str, typer.Option(help=f"The machine: {', '.join(KINDS)}.")] = "cpu",
    price: Annotated[float | None, typer.Option(min=0.0, help="What one costs per hour; default: assumed.")] = None,
    conversations: Annotated[
        int | None, typer.Option(min=1, help="How many conversations one carries; default: simulated.")
    ] = None,
    burst: Annotated[float, typer.Option(min=1.0, help="How many times as busy the busiest hour gets.")] = 5.0,
) -> None:
    """Plan costs: what the logged turns cost in a month at the hosted price, and on machines of one's own."""
    with user_errors():
        prices = ConfigFile(config).prices()
        if prices.hosted is None:
            raise ValueError(f"{config} has no prices of a hosted service: add [prices.hosted]")
        if replica not in KINDS:
            raise ValueError(f"there is no machine {replica!r}: choose {', '.join(KINDS)}")
        since = time.time() - 86_400 * days
        turns = [turn for turn in read_turn_log(turn_log) if turn.ended_at >= since]
        span = max(1.0, (turns[-1].ended_at - turns[0].ended_at) / 86_400) if turns else 1.0
        loads = loads_of(turns, span, burst)
    kind = replace(KINDS[replica], conversations=conversations)
    if price is not None:
        kind = replace(kind, dollars_per_hour=price)
    used = usage_of(turns)
    table = Table(
        "a month", "turns a day", "conversations at the peak", "hosted", "own, always running", "machines",
        "own, scaled", "machines at most", "refused", box=None,
    )  # fmt: skip
    for cost in monthly_costs(loads, used, prices.hosted, kind):
        table.add_row(
            cost.load.name, f"{cost.load.turns:,.0f}", f"{cost.load.peak:.1f}", _amount(cost.hosted, prices),
            _amount(cost.fixed, prices), str(cost.fixed_replicas), _amount(cost.scaled, prices),
            str(cost.scaled_replicas), f"{cost.refused:.2%}",
        )  # fmt: skip
    stdout.print(table)
    each, hourly = prices.hosted.cost(used) / used.turns, kind.dollars_per_hour
    if each:
        even = f"{24 * hourly / each:,.0f} turns a day"
        stdout.print(f"One machine that always runs costs as much as {even} at the hosted price.")
    whose = "assumed" if price is None else "as given"
    how = f"{kind.capacity} conversations, {'simulated' if conversations is None else 'as given'}"
    stdout.print("\nAssumptions, and where the figures come from:")
    for line in (
        f"Simulated, not measured. The log has {len(turns):,} turns of {span:.1f} days; a month has 30.",
        f"A machine: {kind.source}; {how}; {_amount(hourly, prices)} an hour, {whose}; {kind.start_s:.0f} s to start.",
        *ASSUMPTIONS,
    ):
        stdout.print(f"- {line}", soft_wrap=True, highlight=False)


def _json(day: str, name: str, used: Usage, prices: Prices) -> dict[str, Any]:
    hosted = None if prices.hosted is None else round(prices.hosted.cost(used), 4)
    return {"day": day, "key": name, **asdict(used), "cost": round(prices.cost(used), 4), "hosted_cost": hosted}


def _table(totals: dict[str, Usage], prices: Prices) -> Table | str:
    if not totals:
        return "Nothing was used."
    columns = ["key", "conversations", "minutes", "audio in", "audio out", "turns", "completions", "tokens in"]
    columns += ["tokens out", "tokens elsewhere", "CPU minutes", "cost"]
    hosted = prices.hosted
    table = Table(*columns, *(["hosted"] if hosted is not None else []), box=None)
    rows = [(name or "(no key)", used) for name, used in sorted(totals.items())]
    if len(rows) > 1:
        rows.append(("total", sum(totals.values(), Usage())))  # a key may have the same name
    for name, used in rows:
        cells = [name, str(used.conversations), f"{used.seconds / 60:.1f}"]
        cells += [f"{used.audio_in_s / 60:.1f}", f"{used.audio_out_s / 60:.1f}", str(used.turns), str(used.completions)]
        cells += [str(used.input_tokens), str(used.output_tokens)]
        cells += [str(used.remote_input_tokens + used.remote_output_tokens), f"{used.cpu_s / 60:.1f}"]
        cells.append(_amount(prices.cost(used), prices))
        table.add_row(*cells, *([_amount(hosted.cost(used), prices)] if hosted is not None else []))
    return table


def _amount(cost: float, prices: Prices) -> str:
    return f"{cost:.2f} {prices.currency}".strip()

"""`rejoinder usage`: what each key has used, what it costs, and what a hosted service would have charged."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from agent.storage import data_folder
from cli.config import ConfigOption
from cli.console import stdout, user_errors
from cli.options import DataOption
from server.access.prices import Prices
from server.access.usage import USAGE_FILE, Usage, read_usage
from server.serving.config_file import ConfigFile

app = typer.Typer(add_completion=False)


@app.command("usage")
def usage(
    days: Annotated[int, typer.Option(min=1, help="How many days, today (UTC) included.")] = 30,
    key: Annotated[str | None, typer.Option(help="Only the usage of this key.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the usage of each day as JSON.")] = False,
    config: ConfigOption = None,
    data: DataOption = None,
) -> None:
    """Show what each key has used, and what it costs by the price list of the configuration file."""
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
    rows = {name or "(no key)": used for name, used in sorted(totals.items())}
    if len(rows) > 1:
        rows["total"] = sum(totals.values(), Usage())
    for name, used in rows.items():
        cells = [name, str(used.conversations), f"{used.seconds / 60:.1f}"]
        cells += [f"{used.audio_in_s / 60:.1f}", f"{used.audio_out_s / 60:.1f}", str(used.turns), str(used.completions)]
        cells += [str(used.input_tokens), str(used.output_tokens)]
        cells += [str(used.remote_input_tokens + used.remote_output_tokens), f"{used.cpu_s / 60:.1f}"]
        cells.append(_amount(prices.cost(used), prices))
        table.add_row(*cells, *([_amount(hosted.cost(used), prices)] if hosted is not None else []))
    return table


def _amount(cost: float, prices: Prices) -> str:
    return f"{cost:.2f} {prices.currency}".strip()

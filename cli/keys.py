"""`rejoinder keys`: makes, lists and revokes API keys."""

from __future__ import annotations

import datetime
from typing import Annotated

import typer
from rich.table import Table

from agent.storage import data_folder
from cli.console import stderr, stdout, user_errors
from cli.options import DataOption
from server.access.keys import KEYS_FILE, KeyLimits, KeyStore
from server.access.usage import USAGE_FILE, UsageLog

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="Who or what the key is for; shown in logs and in the usage.")],
    conversations: Annotated[
        int | None, typer.Option(min=1, help="Conversations that the key may hold at the same time.")
    ] = None,
    minutes_per_day: Annotated[float | None, typer.Option(min=0, help="Minutes of audio a day (UTC).")] = None,
    tokens_per_day: Annotated[
        int | None, typer.Option(min=0, help="Tokens that may be read and generated a day (UTC).")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="Open the dashboard, the metrics and /drain.")] = False,
    data: DataOption = None,
) -> None:
    """Make a key, and print it. It cannot be shown again."""
    with user_errors():
        limits = KeyLimits(conversations, minutes_per_day, tokens_per_day)
        secret = KeyStore((data or data_folder()) / KEYS_FILE).add(name, limits, admin=admin)
    print(secret)
    stderr.print("Keep it: only its hash is stored. A running server accepts it at once.", highlight=False)


@app.command("list")
def list_keys(data: DataOption = None) -> None:
    """Show every key with its limits and what it has used today, never the keys themselves."""
    folder = data or data_folder()
    with user_errors():
        keys, usage = KeyStore(folder / KEYS_FILE).all_keys(), UsageLog(folder / USAGE_FILE)
    table = Table("name", "conversations", "minutes a day", "tokens a day", "admin", "made", "revoked", box=None)
    for key in keys:
        used, limits = usage.today(key.name), key.limits
        table.add_row(
            key.name,
            _limit(limits.conversations),
            f"{used.seconds / 60:.1f} of {_limit(limits.minutes_per_day)}",
            f"{used.tokens} of {_limit(limits.tokens_per_day)}",
            "yes" if key.admin else "",
            _day(key.created_at),
            "" if key.revoked_at is None else _day(key.revoked_at),
        )
    stdout.print(table if keys else "There are no keys: `rejoinder keys add NAME` makes one.")


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(help="Of the key.")], data: DataOption = None) -> None:
    """End a key. A running server closes its conversations within seconds."""
    with user_errors():
        KeyStore((data or data_folder()) / KEYS_FILE).revoke(name)
    stderr.print(f"{name} is revoked.", highlight=False)


def _limit(value: float | None) -> str:
    return "unlimited" if value is None else f"{value:.15g}"


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).date().isoformat()

"""`rejoinder data`: shows and deletes what the server has kept of a key or a caller."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from agent.storage import data_folder
from agent.tools.user_data import USER_DATA_FILE, UserData, owner_id
from cli.console import UserError, stdout, user_errors
from cli.options import DataOption
from server.access.usage import USAGE_FILE, delete_usage
from server.observability.turn_log import delete_turns

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _data() -> None:
    """Without this, the only command would be called without its name."""


@app.command("delete")
def delete(
    key: Annotated[str | None, typer.Option(help="Name of an API key.")] = None,
    caller: Annotated[str | None, typer.Option(help="A phone number, as the carrier reports it.")] = None,
    turn_log: Annotated[Path | None, typer.Option(help="The file of `rejoinder serve --turn-log`.")] = None,
    data: DataOption = None,
) -> None:
    """Delete the turns, usage, timers and notes of a key, or the turns, timers and notes of a phone number. The key
    itself stays: revoke it."""
    with user_errors():
        if (key is None) == (caller is None):
            raise UserError("give either --key NAME or --caller NUMBER")
        turns = 0 if turn_log is None else delete_turns(turn_log, key=key, caller=caller)
        folder = data or data_folder()
        days = 0 if key is None else delete_usage(folder / USAGE_FILE, key)
        if (folder / USER_DATA_FILE).is_file():
            with closing(UserData(folder / USER_DATA_FILE)) as user_data:
                user_data.forget(owner_id("key", key) if key is not None else owner_id("phone", caller or ""))
    stdout.print(f"Deleted {turns} turns, {days} days of usage, and timers, reminders and notes.", highlight=False)

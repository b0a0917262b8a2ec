"""`rejoinder data`: shows and deletes what the server has kept of a key or a caller."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from agent.storage import data_folder, erase_deleted
from agent.tools.user_data import USER_DATA_FILE, UserData, owner_id
from cli.console import UserError, stdout, user_errors
from cli.options import DataOption
from server.access.keys import KEYS_FILE, KeyStore
from server.access.usage import USAGE_FILE, delete_usage
from server.batch_store import BATCHES_FILE, BatchStore
from server.observability.turn_log import delete_turns
from server.shared_store import delete_records, open_store, records_path

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _data() -> None:
    """Without this, the only command would be called without its name."""


@app.command("delete")
def delete(
    key: Annotated[str | None, typer.Option(help="Name of an API key.")] = None,
    caller: Annotated[str | None, typer.Option(help="A phone number, as the carrier reports it.")] = None,
    token: Annotated[
        typer.FileText | None,
        typer.Option(help="A file with the token by which a client has named itself; `-` for standard input."),
    ] = None,
    turn_log: Annotated[Path | None, typer.Option(help="The file of `rejoinder serve --turn-log`.")] = None,
    records: Annotated[
        str | None, typer.Option(help="The records of `rejoinder serve --records`.", envvar="REJOINDER_RECORDS")
    ] = None,
    data: DataOption = None,
) -> None:
    """Delete the turns, usage, batches, timers, notes and records of a key and of its callers, the turns, timers, notes
    and records of a phone number, or the timers, notes and records of a token. A running server forgets the key's
    stored responses and client secrets within seconds. The key itself stays: revoke it first, so that nothing new is
    kept."""
    with user_errors():
        named = [(kind, name) for kind, name in (("key", key), ("phone", caller), ("token", token)) if name is not None]
        if len(named) != 1:
            raise UserError("give one of --key NAME, --caller NUMBER and --token FILE")
        if token is not None and turn_log is not None:
            raise UserError("the turn log does not say whose token a turn had: give --key or --caller with --turn-log")
        kind, given = named[0]
        name = given if isinstance(given, str) else given.read().strip()
        if not name:  # it would stand for all that is of no key or number
            raise UserError("the name, number or token is empty: give one")
        records_file = None if records is None else records_path(records)
        if records_file is not None and not records_file.is_file():
            raise UserError(f"there are no records at {records_file}: check --records")
        folder, changed = data or data_folder(), list[Path]()
        turns = days = uploads = stored = own = 0
        if turn_log is not None:
            turns = delete_turns(turn_log, key=key, caller=caller)
            changed.append(turn_log)
        if key is not None:
            days = delete_usage(folder / USAGE_FILE, key)
            changed.append(folder / USAGE_FILE)
            if (folder / BATCHES_FILE).is_file():
                with closing(BatchStore(folder / BATCHES_FILE)) as batches:
                    uploads = batches.forget(key)
                changed.append(folder / BATCHES_FILE)
            with closing(KeyStore(folder / KEYS_FILE)) as keys:
                keys.note_deletion(key)
        if records is not None:
            with closing(open_store(records)) as store:
                stored = delete_records(store, key=key, caller=caller, token=None if token is None else name)
            if records_file is not None:
                changed.append(records_file)
        if (folder / USER_DATA_FILE).is_file():
            with closing(UserData(folder / USER_DATA_FILE)) as user_data:
                own = user_data.forget(owner_id(kind, name))
                if key is not None:
                    own += user_data.forget_callers(key)
            changed.append(folder / USER_DATA_FILE)
        erase_deleted(*(file for file in changed if file.is_file()))
    counts = (
        f"{turns} turns, {days} days of usage, {uploads} files and batches, {own} timers, reminders and notes, and "
        f"{stored} records"
    )
    kept = turns or days or uploads or own or stored
    stdout.print(f"Deleted {counts}." if kept else f"Nothing was kept of this {kind}.", highlight=False)
    if turn_log is None and token is None:
        stdout.print("Turns in a turn log are only deleted with --turn-log FILE.", highlight=False)

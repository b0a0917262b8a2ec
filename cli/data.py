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
from server.observability.turn_log import delete_turns
from server.realtime.client_secrets import delete_client_secrets
from server.realtime.resumptions import PREFIX as SESSIONS
from server.realtime.resumptions import delete_records
from server.shared_store import open_store
from server.telephony.continued_calls import PREFIX as CALLS

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
    """Delete the turns, usage, timers, notes and records of a key and of its callers, the turns, timers, notes and
    records of a phone number, or the timers and notes of a token. A running server forgets the key's stored responses
    and client secrets within seconds. The key itself stays: revoke it first, so that nothing new is kept."""
    with user_errors():
        named = [(kind, name) for kind, name in (("key", key), ("phone", caller), ("token", token)) if name is not None]
        if len(named) != 1:
            raise UserError("give one of --key NAME, --caller NUMBER and --token FILE")
        if token is not None and turn_log is not None:
            raise UserError("the turn log does not say whose token a turn had: give --key or --caller with --turn-log")
        turns = 0 if turn_log is None else delete_turns(turn_log, key=key, caller=caller)
        folder, (kind, name) = data or data_folder(), named[0]
        days = 0 if key is None else delete_usage(folder / USAGE_FILE, key)
        if key is not None:
            with closing(KeyStore(folder / KEYS_FILE)) as keys:
                keys.note_deletion(key)
        if records is not None and token is None:  # which they do not name
            with closing(open_store(records)) as store:
                for prefix in (SESSIONS, CALLS):
                    delete_records(store, prefix, key, caller)
                if key is not None:
                    delete_client_secrets(store, key)
        if (folder / USER_DATA_FILE).is_file():
            with closing(UserData(folder / USER_DATA_FILE)) as user_data:
                user_data.forget(owner_id(kind, name if isinstance(name, str) else name.read().strip()))
                if key is not None:
                    user_data.forget_callers(key)
            erase_deleted(folder / USER_DATA_FILE)
    stdout.print(f"Deleted {turns} turns, {days} days of usage, and timers, reminders and notes.", highlight=False)

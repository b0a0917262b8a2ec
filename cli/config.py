"""`rejoinder config`: prints every option of `rejoinder serve` with its value, as a configuration file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import user_errors
from server.serving.config_file import ConfigFile, is_secret
from server.serving.options import load
from server.serving.settings import ServeSettings

app = typer.Typer(add_completion=False)

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="REJOINDER_CONFIG", help="A TOML file with the options of `rejoinder serve`."),
]


@app.command("config")
def config(config: ConfigOption = None) -> None:
    """Check a configuration file, and print every option with its value and where it comes from."""
    try:
        settings = load(ServeSettings, {"config": config})
        file = None if config is None else ConfigFile(config)
        in_file = {} if file is None else file.values(ServeSettings)
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from None
    print("# Every option of `rejoinder serve`. Comments name the default, or where the value comes from.")
    print("[serve]")
    for _, name, field in ServeSettings.options():
        value, key, variable = getattr(settings, name), name.replace("_", "-"), field.validation_alias
        if name == "config":
            continue
        if is_secret(field, value):
            state = "not set" if value == field.default else "set"
            print(f"# {key}: a secret, {state}; use the environment variable {variable}")
        elif value is None:
            print(f"# {key}: not set")
        else:
            in_environment = variable and os.environ.get(str(variable))
            origin = f"from {variable}" if in_environment else "from the file" if name in in_file else "default"
            print(f"{key} = {_toml(value)}  # {origin}")
    if file is not None:
        with user_errors():
            prices, tools = file.prices(), file.tools()
        _print_table("tools", tools.model_dump(exclude={"keys"}, exclude_none=True))
        _print_table("tools.keys", {json.dumps(name): names for name, names in tools.keys.items()})
        _print_table("prices", prices.model_dump(exclude={"hosted"}))
        if prices.hosted is not None:
            _print_table("prices.hosted", prices.hosted.model_dump(exclude={"hosted"}))


def _print_table(table: str, values: Mapping[str, Any]) -> None:
    if values:
        print(f"\n[{table}]")
    for key, value in values.items():
        print(f"{key} = {_toml(value)}")


def _toml(value: Any) -> str:
    """A value as TOML, which writes strings, numbers, booleans and lists as JSON does."""
    return json.dumps(value, ensure_ascii=False, default=str)

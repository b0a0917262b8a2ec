"""`rejoinder config`: prints every option of `rejoinder serve` with its value, as a configuration file."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.config_file import SECRET_OPTIONS, ConfigFile
from cli.errors import user_errors

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="REJOINDER_CONFIG", help="A TOML file with the options of `rejoinder serve`."),
]


def config(context: typer.Context, config: ConfigOption = None) -> None:
    """Check a configuration file, and print every option with its value and where it comes from."""
    root: Any = context.find_root().command
    serve = root.commands["serve"]
    arguments = [] if config is None else ["--config", str(config)]
    parsed = serve.make_context("serve", arguments, parent=context.find_root())
    print("# Every option of `rejoinder serve`. Comments name the default, or where the value comes from.")
    print("[serve]")
    for parameter in serve.params:
        name = str(parameter.name)
        if name != "config":
            source = parsed.get_parameter_source(name)
            print(_line(parameter, parsed.params[name], source.name if source is not None else "DEFAULT"))
    with user_errors():
        prices = ConfigFile(config).prices() if config is not None else None
    if prices is not None:
        print("\n[prices]")
        for key, value in prices.model_dump(exclude={"hosted"}).items():
            print(f"{key} = {_toml(value)}")
        if prices.hosted is not None:
            print("\n[prices.hosted]")
            for key, value in prices.hosted.model_dump().items():
                print(f"{key} = {_toml(value)}")


def _line(parameter: Any, value: Any, source: str) -> str:
    name = parameter.opts[0].removeprefix("--")
    if parameter.name in SECRET_OPTIONS:
        state = "set" if value else "not set"
        return f"# {name}: a secret, {state}; use the environment variable {parameter.envvar}"
    origins = {"ENVIRONMENT": f"  # from {parameter.envvar}", "DEFAULT_MAP": "  # from the file"}
    origin = origins.get(source, "")
    if value is None:
        return f"# {name}: not set"
    return f"{name} = {_toml(value)}{origin or '  # default'}"


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Path):
        value = str(value)
    return json.dumps(value, ensure_ascii=False)  # strings, numbers and booleans are written as in JSON

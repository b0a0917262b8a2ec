"""The configuration file: every option of `rejoinder serve`, and the price list, in TOML."""

from __future__ import annotations

import difflib
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from server.access.prices import Prices

SECRET_OPTIONS = frozenset({"api_key", "phone_secret", "twilio_token", "plivo_token"})
"""Options that should come from the environment."""

_TABLES = ("serve", "prices")


class BadConfig(ValueError):
    """The configuration file is wrong; the message names the line."""


class ConfigFile:
    """A configuration file that has been read.

    Args:
        path: the TOML file.

    Raises:
        BadConfig: it is not TOML, or has unknown tables.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._text = path.read_text(encoding="utf-8")
            self._content: dict[str, Any] = tomllib.loads(self._text)
        except OSError as error:
            raise OSError(f"cannot read the configuration {path} ({error.strerror})") from None
        except UnicodeDecodeError:
            raise BadConfig(f"{path} is not UTF-8 text") from None
        except tomllib.TOMLDecodeError as error:
            raise BadConfig(f"{path} is not TOML: {error}") from None
        self._path = path
        for table, value in self._content.items():
            if table not in _TABLES or not isinstance(value, dict):
                raise self._error(f"there is no table {table!r}: use [serve] and [prices]", "", table)

    def options(self, context: typer.Context) -> dict[str, Any]:
        """The values of [serve] by parameter name, as they would be on the command line, and checked. Raises
        BadConfig."""
        parameters = {_option_name(one): one for one in context.command.params if one.name != "config"}
        values: dict[str, Any] = {}
        for key, value in self._content.get("serve", {}).items():
            name = key.replace("-", "_")
            parameter = parameters.get(name)
            if parameter is None:
                close = difflib.get_close_matches(name, parameters, 1)
                hint = f": did you mean {close[0].replace('_', '-')}?" if close else ""
                raise self._error(f"there is no option {key!r}{hint}", "serve", key)
            if parameter.name in SECRET_OPTIONS and self._others_can_read():
                raise self._error(
                    f"{key} is a secret, and others on this machine can read the file: set the environment variable "
                    f"{parameter.envvar}, or run chmod 600 {self._path}",
                    "serve",
                    key,
                )
            values[str(parameter.name)] = self._checked(context, parameter, key, value)
        return values

    def prices(self) -> Prices:
        """The price list. Raises BadConfig."""
        try:
            return Prices.model_validate(self._content.get("prices", {}))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            *tables, key = [str(part) for part in first["loc"]]
            raise self._error(f"{key}: {first['msg']}", ".".join(["prices", *tables]), key) from None

    def _checked(self, context: typer.Context, parameter: Any, key: str, value: Any) -> Any:
        if isinstance(value, dict) or isinstance(value, list) != bool(parameter.multiple):
            kind = "a list" if parameter.multiple else "a single value"
            raise self._error(f"{key} is {kind}, not {_kind(value)}", "serve", key)
        flag = getattr(parameter, "is_flag", False)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, bool) != flag:
                raise self._error(f"{key} is {'true or false' if flag else 'no switch'}, not {one!r}", "serve", key)
        text = [str(one) for one in value] if isinstance(value, list) else value if flag else str(value)
        try:
            parameter.process_value(context, text)
        except typer.BadParameter as error:
            raise self._error(f"{key}: {error.message}", "serve", key) from None
        return text

    def _others_can_read(self) -> bool:
        return bool(self._path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))

    def _error(self, message: str, table: str, key: str) -> BadConfig:
        line = _line_of(self._text, table, key)
        return BadConfig(f"{self._path}, line {line}: {message}" if line else f"{self._path}: {message}")


def _line_of(text: str, table: str, key: str) -> int | None:
    """The number of the line that sets a key of a table, or that begins the table `key`."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (plain := line.strip()).startswith("[") and "]" in plain:
            current = plain.lstrip("[").partition("]")[0].replace('"', "").replace(" ", "")
            if not table and current.partition(".")[0] == key:
                return number
        elif current == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]", line):
            return number
    return None


def _option_name(parameter: Any) -> str:
    """`max_conversations` of `--max-conversations`."""
    return str(parameter.opts[0]).removeprefix("--").replace("-", "_")


def _kind(value: Any) -> str:
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)


def apply_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the values of a file the defaults of a command. Options and environment variables come first."""
    if path is not None and not context.resilient_parsing:
        try:
            context.default_map = {**(context.default_map or {}), **ConfigFile(path).options(context)}
        except (BadConfig, OSError) as error:
            raise typer.BadParameter(str(error), ctx=context) from None
    return path

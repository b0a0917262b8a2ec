"""The configuration file: every option of `rejoinder serve`, who may call which tools, and the price list, in TOML."""

from __future__ import annotations

import difflib
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from server.access.prices import Prices
from server.access.tool_access import ToolAccess

_TABLES = ("serve", "tools", "prices")

Table = TypeVar("Table", bound=BaseModel)


class BadConfig(ValueError):
    """The configuration file is wrong; the message names the line."""


class ConfigFile:
    """A configuration file, in TOML, that has been read.

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
                is_table = isinstance(value, dict)
                belongs = "use [serve], [tools] and [prices]" if is_table else "put options under [serve]"
                raise self._error(f"there is no table {table!r}: {belongs}", "", table)

    def values(self, settings: type[BaseModel]) -> dict[str, Any]:
        """The values of [serve], by the names of the fields, and checked. Raises BadConfig."""
        fields = {name: field for name, field in settings.model_fields.items() if name != "config"}
        values: dict[str, Any] = {}
        for key, value in self._content.get("serve", {}).items():
            name = key.replace("-", "_")
            if name not in fields:
                close = difflib.get_close_matches(name, fields, 1)
                hint = f": did you mean {close[0].replace('_', '-')}?" if close else ""
                raise self._error(f"there is no option {key!r}{hint}", "serve", key)
            field = fields[name]
            if problem := self._problem(key, value, field):
                raise self._error(problem, "serve", key)
            try:
                kind: Any = Annotated[(field.annotation, key, *field.metadata)]
                values[name] = TypeAdapter(kind, config=settings.model_config).validate_python(value)
            except ValidationError as error:
                raise self._error(sentence(error.errors()[0], key), "serve", key) from None
        return values

    def prices(self) -> Prices:
        """The price list. Raises BadConfig."""
        return self._table("prices", Prices)

    def tools(self) -> ToolAccess:
        """Who may call which tools. Raises BadConfig."""
        return self._table("tools", ToolAccess)

    def _table(self, name: str, model: type[Table]) -> Table:
        try:
            return model.model_validate(self._content.get(name, {}))
        except ValidationError as error:
            first = error.errors()[0]
            *tables, key = [part for part in first["loc"] if isinstance(part, str)]
            message = sentence(first, key)
            if first["type"] == "extra_forbidden" and not tables:
                message = f"there is no {key!r} in [{name}]: use {', '.join(model.model_fields)}"
            raise self._error(message, ".".join([name, *tables]), key) from None

    def _problem(self, key: str, value: Any, field: FieldInfo) -> str:
        """What TOML can say and the option cannot, or must not."""
        if is_secret(field, value) and self._path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            return (
                f"{key} is a secret, and others on this machine can read the file: set the environment variable "
                f"{field.validation_alias}, or run chmod 600 {self._path}"
            )
        repeatable, switch = get_origin(field.annotation) is tuple, field.annotation is bool
        if isinstance(value, dict) or isinstance(value, list) != repeatable:
            found = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
            return f"{key} is {'a list' if repeatable else 'a single value'}, not {found}"
        for one in value if repeatable else [value]:
            if isinstance(one, bool) != switch:
                return f"{key} is {'true or false' if switch else 'no switch'}, not {one!r}"
        return ""

    def _error(self, message: str, table: str, key: str) -> BadConfig:
        line = _line_of(self._text, table, key)
        return BadConfig(f"{self._path}, line {line}: {message}" if line else f"{self._path}: {message}")


def is_secret(field: FieldInfo, value: Any = None) -> bool:
    """Whether an option should come from the environment: always, or because its value is a URL with a password."""
    return SecretStr in (field.annotation, *get_args(field.annotation)) or (
        isinstance(value, str) and "://" in value and urlsplit(value).password is not None
    )


def sentence(error: Mapping[str, Any], name: str) -> str:
    """What is wrong with an option, by an error of pydantic: our own sentences name the option themselves."""
    own = error.get("ctx", {}).get("error")
    return f"{name}: {error['msg']}" if own is None else str(own)


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

"""Options of commands, made from the models that describe them (`serving/options.py`)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import EnumType
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from rich.markup import escape

from cli.console import stderr
from server.serving.config_file import is_secret
from server.serving.options import ModelOptions, OptionGroup, ToolOptions, load


def _help(options: type[OptionGroup], name: str) -> str:
    return escape(options.model_fields[name].description or "")


DataOption = Annotated[Path | None, typer.Option("--data", envvar="REJOINDER_DATA", help=_help(ToolOptions, "data"))]
ModelOption = Annotated[str, typer.Option("--model", help=_help(ModelOptions, "model"))]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Download missing models without asking.")]
DeviceOption = Annotated[str, typer.Option("--device", help=_help(ModelOptions, "device"))]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add options to a command: those of the model that is the type of its last parameter, which it receives checked,
    with what the environment and the file add."""
    signature = inspect.signature(command, eval_str=True)
    *own, last = signature.parameters.values()
    options: type[OptionGroup] = last.annotation

    @wraps(command)
    def run(typer_context: typer.Context, **arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in options.model_fields}
        sources = {name: typer_context.get_parameter_source(name) for name in values}
        given = {name: values[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}
        try:
            loaded = load(options, _with_secrets(options, given))
        except (ValueError, OSError) as error:
            raise typer.BadParameter(str(error)) from None
        command(**arguments, **{last.name: loaded})

    context = inspect.Parameter("typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *_parameters(options)]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _with_secrets(options: type[OptionGroup], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the secrets of one of them, for which `-` stands, read from standard input, a line each. Warns
    of secrets that are in the list of processes. Raises ValueError."""
    values, asking = dict(given), list[str]()
    for name, value in given.items():
        field, flag = options.model_fields[name], f"--{name.replace('_', '-')}"
        texts = value if isinstance(value, list) else [value]
        if any(one == "-" for one in texts) and (is_secret(field) or field.validation_alias):
            asking.append(flag)
            texts = [sys.stdin.readline().strip() if one == "-" else one for one in texts]
            values[name] = texts if isinstance(value, list) else texts[0]
            if not all(texts):
                raise ValueError(f"{flag} -: there is no further line on standard input")
        elif field.validation_alias and any(is_secret(field, one) for one in texts):
            hint = f"set {field.validation_alias}, or give -"
            message = f"{flag} is in the list of processes, which others can read: {hint}"
            stderr.print(message, soft_wrap=True, markup=False, highlight=False)
    if len(asking) > 1:
        raise ValueError(f"standard input holds the secrets of one option, not of {' and '.join(asking)}")
    return values


def _parameters(options: type[OptionGroup]) -> Iterator[inspect.Parameter]:
    for topic, name, field in options.options():
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if default in ("", [], SecretStr("")) else default,  # it is shown in the help
            annotation=Annotated[_typer_type(field.annotation) | None, _typer_option(topic, name, field)],
        )


def _typer_option(topic: str, name: str, field: FieldInfo) -> Any:
    flag = f"--{name.replace('_', '-')}"
    if field.annotation is bool and not name.startswith("no_"):
        flag = f"{flag}/--no-{flag[2:]}"
    limits = {key: getattr(one, key) for one in field.metadata for key in ("ge", "le") if hasattr(one, key)}
    extra: Any = field.json_schema_extra or {}
    variable: Any = field.validation_alias
    return typer.Option(
        flag,
        min=limits.get("ge"),
        max=limits.get("le"),
        metavar=extra.get("metavar"),
        envvar=variable,  # for the help; the model reads it
        show_default=field.annotation is not bool,
        help=escape(field.description or ""),
        rich_help_panel=topic,
    )


def _typer_type(annotation: Any) -> Any:
    """The closest type of an option on the command line, for its help; the model checks the value."""
    if get_origin(annotation) is Annotated:
        return _typer_type(get_args(annotation)[0])
    if get_origin(annotation) is tuple:
        return list[_typer_type(get_args(annotation)[0])]  # type: ignore[misc]
    members = [one for one in get_args(annotation) if one is not NoneType]
    if get_origin(annotation) in (Union, UnionType) and len(members) == 1:
        return _typer_type(members[0])
    is_known = annotation in (bool, int, float, Path) or isinstance(annotation, EnumType)
    return annotation if is_known or get_origin(annotation) is Literal else str

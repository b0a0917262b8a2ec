"""The `rejoinder` command. Expected errors print one sentence and exit with 1; wrong usage exits with 2."""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import logging
from typing import Annotated

import typer
from rich.console import Console

from cli.ask import ask_command
from cli.bench import bench_app
from cli.call import call
from cli.config import config
from cli.convert import convert_app
from cli.data import data_app
from cli.docs import docs_app
from cli.keys import keys_app
from cli.logs import configure_logging
from cli.models import models_app
from cli.report import report
from cli.serve import ServeCommand, serve
from cli.talk import talk
from cli.usage import usage

app = typer.Typer(
    help="A self-hosted voice assistant.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("serve", cls=ServeCommand)(serve)
app.command("ask")(ask_command)
app.command("talk")(talk)
app.command("report")(report)
app.command("call")(call)
app.command("config")(config)
app.command("usage")(usage)
app.add_typer(data_app, name="data")
app.add_typer(docs_app, name="docs")
app.add_typer(keys_app, name="keys")
app.add_typer(models_app, name="models")
app.add_typer(bench_app, name="bench")
app.add_typer(convert_app, name="convert")

_err = Console(stderr=True)


@app.callback()
def _configure_logging(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print debug log messages.")] = False,
) -> None:
    configure_logging(_err)
    logging.getLogger("rejoinder").setLevel(logging.DEBUG if verbose else logging.INFO)


def main() -> None:
    """Entry point of the `rejoinder` command."""
    app()

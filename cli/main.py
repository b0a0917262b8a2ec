"""The `rejoinder` command. Expected errors print one sentence and exit with 1; wrong usage exits with 2."""

from __future__ import annotations

import gc
import logging
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from server.observability.logs import configure_logging

COMMANDS = {
    "serve": "Serve the web page at /, the Realtime protocol at /v1/realtime and phone calls at /phone.",
    "ask": "Ask one question without a server.",
    "talk": "Talk to the assistant through this machine's microphone and loudspeaker.",
    "report": "Measure how fast a server responds.",
    "call": "Call a server as a phone carrier would.",
    "config": "Check a configuration file, and print every option with its value and where it comes from.",
    "usage": "Show what each key has used, and what it costs by the price list of the configuration file.",
    "data": "Delete what the server has kept of somebody.",
    "docs": "Documents that the assistant answers from: text, Markdown, HTML, PDF and Word files.",
    "keys": "Make, list and revoke API keys.",
    "models": "List, install and verify models.",
    "bench": "Benchmark this machine, or the answers of a model.",
    "convert": "Train a drafting adapter, a draft head or a classifier for a model.",
}
"""Every command, which is `app` in the module of its name, and the first sentence of its help."""


class LazyGroup(TyperGroup):
    """Imports the module of a command when it runs: all together take three seconds, most of them for torch."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What the help shows of a command."""
        if cmd_name in COMMANDS:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that runs."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in COMMANDS else command, rest


def load_command(name: str) -> Any:
    """The command of a name, as click runs it."""
    gc.disable()  # it would look a hundred times for garbage among objects that stay: a tenth of the time
    import server.openmp  # noqa: F401  # before torch

    command = get_command(import_module(f"cli.{name}").app)
    gc.freeze()
    gc.enable()
    if isinstance(command, TyperGroup):
        command.help = COMMANDS[name]
    return command


app = typer.Typer(
    cls=LazyGroup,
    help="A self-hosted voice assistant.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rejoinder {version('rejoinder')}")
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")


@app.callback()
def _configure_logging(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print debug log messages.")] = False,
    print_version: Annotated[bool, _VERSION] = False,
) -> None:
    configure_logging()
    logging.getLogger("rejoinder").setLevel(logging.DEBUG if verbose else logging.INFO)


def main() -> None:
    """Entry point of the `rejoinder` command."""
    app()

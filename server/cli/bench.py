"""`rejoinder bench`: benchmarks for this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from server.cli.errors import user_errors
from server.cli.options import Command, with_model_options
from server.deploy.runtime import ModelOptions

bench_app = typer.Typer(help="Benchmark this machine.", no_args_is_help=True)

_out = Console()
_err = Console(stderr=True)


@bench_app.command("model", cls=Command)
@with_model_options
def bench_model(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    concurrencies: Annotated[
        list[int] | None,
        typer.Option(
            "--conversations", min=1, max=256, help="Also measure this many concurrent conversations; repeatable."
        ),
    ] = None,
    *,
    model_options: ModelOptions,
) -> None:
    """Benchmark the language model."""
    from server.bench.llm import run, show

    with user_errors():
        figures = run(model_options, _err, concurrencies or ())
    if as_json:
        _out.print_json(json.dumps(asdict(figures)))
    else:
        show(figures, _out)

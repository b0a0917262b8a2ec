"""`rejoinder report`: measures the response latency of a Realtime server, as a user hears it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.console import UserError, stderr, stdout, user_errors
from cli.options import with_options
from lab.report.html import write_page
from lab.report.limits import Limit, exceeded_limits, parse_limit
from lab.report.logged_turns import logged_turns
from lab.report.new_run import ReportOptions, new_run
from lab.report.run import Run, read_run
from lab.report.terminal import print_report

app = typer.Typer(add_completion=False)

_LIMIT_EXCEEDED = 3
"""Exit status when a limit is exceeded."""


@app.command("report")
@with_options
def report(
    json: Annotated[Path | None, typer.Option("--json", help="Write metrics and turns to this JSON file.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write an HTML page to this file.")] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            help="Compare with the JSON file of another run; repeatable, for the trade-off chart of the page."
        ),
    ] = None,
    turn_log: Annotated[
        Path | None,
        typer.Option(help="Report on the turns that `rejoinder serve --turn-log FILE` recorded; measure nothing."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(help="Exit with status 3 if a metric exceeds its limit, like p95=1000; repeatable."),
    ] = None,
    *,
    options: ReportOptions,
) -> None:
    """Measure how fast a server responds."""
    with user_errors():
        limits = [parse_limit(argument) for argument in limit or ()]
        others = [read_run(path) for path in compare or ()]
        for path in (json, html):
            if path is not None and not path.absolute().parent.is_dir():
                raise UserError(f"there is no folder {path.absolute().parent} for {path.name}: create it first")
        if turn_log is not None:
            turns, seed = logged_turns(turn_log), options.seed
            run = Run.now(turns, server=str(turn_log), corpus="real conversations", models={}, seed=seed)
        else:
            run = new_run(options, stderr)
        print_report(run, stdout, others[0] if others else None)
        if json is not None:
            run.write(json)
        if html is not None:
            write_page(html, run, others)
    _check_limits(limits, run)


def _check_limits(limits: list[Limit], run: Run) -> None:
    messages = [
        f"{part.corpus}: {message}" if part is not run else message
        for part in run.parts
        for message in exceeded_limits(limits, part.metrics)
    ]
    for message in messages:
        stderr.print(f"rejoinder: {message}", style="red", soft_wrap=True, highlight=False)
    if messages:
        raise typer.Exit(_LIMIT_EXCEEDED)

"""`rejoinder bench`: benchmarks for this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import Progress

from agent.instructions import INSTRUCTIONS
from cli.console import say, stderr, stdout, user_errors
from cli.options import with_options
from server.serving.options import ModelOptions

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command("model")
@with_options
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
    from lab.bench.llm import run, show

    with user_errors():
        figures = run(model_options, stderr, concurrencies or ())
    if as_json:
        stdout.print_json(json.dumps(asdict(figures)))
    else:
        show(figures, stdout)


@app.command("answers")
@with_options
def bench_answers(
    half: Annotated[
        Literal["tuning", "reported", "all"],
        typer.Option("--half", help="Instructions are tuned on one half of the questions; report the other."),
    ] = "reported",
    categories: Annotated[
        list[str] | None, typer.Option("--category", help="Only the questions of this category; repeatable.")
    ] = None,
    instructions: Annotated[
        Path | None, typer.Option("--instructions", help="A text file with other instructions than the default ones.")
    ] = None,
    builtin_tools: Annotated[
        bool, typer.Option("--builtin-tools", help="Answer as on the page, with the clock, the calculator and so on.")
    ] = False,
    failures: Annotated[
        bool, typer.Option("--show-failures", help="Print each answer that did not pass, and why.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all answers.")] = False,
    *,
    model_options: ModelOptions,
) -> None:
    """Evaluate the language model's answers."""
    from lab.bench.answers import as_json as to_json
    from lab.bench.answers import run, select, show, show_failures

    with user_errors():
        questions = select(half, categories or ())
        text = INSTRUCTIONS if instructions is None else instructions.read_text(encoding="utf-8").strip()
        with Progress(console=stderr, transient=True, refresh_per_second=1) as progress:
            task = progress.add_task("asking", total=len(questions))
            answers = run(model_options, questions, stderr, lambda: progress.advance(task), text, builtin_tools)
    if as_json:
        stdout.print_json(json.dumps(to_json(model_options.model, half, answers)))
        return
    if failures:
        show_failures(answers, stdout)
    show(f"{model_options.model}, {half}", answers, stdout)


@app.command("tools")
@with_options
def bench_tools(
    half: Annotated[
        Literal["tuning", "held-out", "all"],
        typer.Option("--half", help="Thresholds are tuned on one half of the cases; report the other."),
    ] = "held-out",
    categories: Annotated[
        list[str] | None, typer.Option("--category", help="Only the cases of this category; repeatable.")
    ] = None,
    every_tool: Annotated[
        bool, typer.Option("--every-tool", help="Offer the tools of all cases each time; five of them are selected.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option("--results", help="Append each result to this file (JSON lines), and skip the cases that it has."),
    ] = None,
    wrong: Annotated[bool, typer.Option("--show-failures", help="Print each response that is wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all results.")] = False,
    *,
    model_options: ModelOptions,
) -> None:
    """Evaluate how the language model calls tools."""
    from lab.bench.tool_cases import select
    from lab.bench.tools import as_json as to_json
    from lab.bench.tools import failures, run, show

    with user_errors():
        cases = select(half, categories or ())
        with Progress(console=stderr, transient=True, refresh_per_second=1) as progress:
            task = progress.add_task("asking", total=len(cases))
            found = run(model_options, cases, stderr, results, every_tool, lambda: progress.advance(task))
    if as_json:
        stdout.print_json(json.dumps(to_json(model_options.model, half, cases, found)))
        return
    if wrong:
        for line in failures(cases, found):
            say(line)
    show(f"{model_options.model}, {half}", cases, found, stdout)

"""Measures function calling with BFCL's questions: which calls the text API makes, and where it calls without need.

    python -m lab.benchmarks.bfcl --ids odd --out FILE [--limit 40] [--kinds KIND …] [--show] [-- serve's options]

Needs the questions: `pip install --no-deps bfcl-eval==2026.3.23`. Odd ids are for development. Even ids, at most 100 of
each kind, are for reporting: nobody looks at them. What FILE has is not asked again, if model and options are the same:
name another file once the program has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import median

import httpx
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lab.benchmarks.bfcl.grading import mistake, parse_call
from lab.benchmarks.bfcl.items import (
    KINDS,
    Item,
    QuestionsUnavailable,
    questions_version,
    read_items,
    sample,
)
from lab.benchmarks.bfcl.results import Result, Results, ask_all
from lab.report.own_server import own_server
from lab.simulator.errors import ServerUnavailable
from model.hub.catalog import QWEN_15B
from model.hub.store import ModelStore, verified_checksum
from model.hub.transfer import ModelUnavailable

_DEFAULT_KINDS = ("irrelevance", "live_irrelevance", "simple_python", "multiple", "parallel")

_MAX_TOKENS = 512
"""Of an answer. Calls of these questions are shorter; text is not judged."""

_TIMEOUT_S = 600.0


def tabulate(samples: Mapping[str, Sequence[Item]], results: Mapping[str, Result]) -> Table:
    """The figures of each kind, of the questions that have a result."""
    table = Table("kind", "n", "right", "called, none fits", "not called, one fits", "failed", "median")
    for kind, items in samples.items():
        answered = [(item, results[item.id]) for item in items if item.id in results]
        right = sum(not verdict(item, result) for item, result in answered)
        called = sum(bool(result.calls) for _, result in answered)
        failed = sum(_failed(result) for _, result in answered)
        no_call_fits = "irrelevance" in kind
        table.add_row(
            kind,
            str(len(answered)),
            f"{right / len(answered):.0%}" if answered else "",
            str(called) if no_call_fits else "",
            "" if no_call_fits else str(len(answered) - called),
            str(failed),
            f"{median(result.seconds for _, result in answered):.1f} s" if answered else "",
        )
    return table


def verdict(item: Item, result: Result) -> str:
    """What is wrong with an answer; empty if it is right. What the server refuses is wrong."""
    if result.refusal:
        return f"refused: {result.refusal}"
    return mistake(item, [parse_call(name, arguments) for name, arguments in result.calls])


def _failed(result: Result) -> bool:
    """Whether the server refused, or wrote arguments that cannot be parsed."""
    return bool(result.refusal) or any(
        parse_call(name, arguments).arguments is None for name, arguments in result.calls
    )


def mistakes(samples: Mapping[str, Sequence[Item]], results: Mapping[str, Result]) -> Iterator[str]:
    """Each question that was answered wrongly, with what is on offer and what was called."""
    for item in (item for items in samples.values() for item in items if item.id in results):
        result = results[item.id]
        if reason := verdict(item, result):
            said = "\n".join(f"  {message['role']}: {message['content']}" for message in item.messages)
            calls = [f"{name}({arguments})" for name, arguments in result.calls]
            yield "\n".join(
                [
                    f"{item.id}: {reason}",
                    said,
                    *(f"  on offer: {json.dumps(tool['function'])}" for tool in item.tools),
                    f"  right: {json.dumps(item.answers)}",
                    f"  made: {' '.join(calls) or repr(result.text)}",
                ]
            )


def _interleaved(samples: Mapping[str, Sequence[Item]]) -> list[Item]:
    """Items of all kinds in turn, so that an interrupted run has some of each."""
    return [item for items in zip_longest(*samples.values()) for item in items if item]


def _checksum(model: str) -> str:
    """The SHA-256 of a language model's file. Raises ModelUnavailable."""
    path = ModelStore().locate(model, kind="language")
    if path.is_dir():
        raise ModelUnavailable(f"{path} is a folder: give a model of one file, or a name of the catalog")
    if (known := verified_checksum(path)) is not None:
        return known
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _run(items: Sequence[Item], results: Results, server_options: Sequence[str]) -> None:
    async with own_server(server_options) as address:
        url = address.replace("ws://", "http://").removesuffix("/v1/realtime")
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:
            progress = track(items, "asking", console=Console(stderr=True))
            await ask_all(client, progress, results, _MAX_TOKENS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask what has no result yet, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", choices=("odd", "even"), required=True)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=_DEFAULT_KINDS)
    parser.add_argument("--limit", type=int, help="questions of each kind (default: all odd ids, 100 even ones)")
    parser.add_argument("--model", default=QWEN_15B.name)
    parser.add_argument("--out", type=Path, required=True, help="a file for the results, which a second run continues")
    parser.add_argument("--show", action="store_true", help="print the questions that were answered wrongly")
    parser.add_argument("server_options", nargs="*", help="options of `rejoinder serve`, after --")
    options = parser.parse_args(arguments)
    if options.show and options.ids == "even":
        sys.exit("Even ids are for reporting, and nobody looks at them: use --show with --ids odd.")
    try:
        samples = {kind: sample(read_items(kind), options.ids, options.limit) for kind in options.kinds}
        settings = {
            "model": _checksum(options.model),
            "questions": questions_version(),
            "max_tokens": _MAX_TOKENS,
            "server_options": options.server_options,
        }
        results = Results(options.out, settings)
        if missing := [item for item in _interleaved(samples) if item.id not in results.of]:
            try:
                asyncio.run(_run(missing, results, ["--model", options.model, *options.server_options]))
            except (KeyboardInterrupt, httpx.HTTPError) as error:
                print(f"broken off by {error!r}", file=sys.stderr)
    except (QuestionsUnavailable, ModelUnavailable, ServerUnavailable) as error:
        sys.exit(str(error))
    Console(width=110).print(tabulate(samples, results.of))
    if options.show:
        print("\n\n".join(mistakes(samples, results.of)))
    if unasked := sum(item.id not in results.of for item in _interleaved(samples)):
        sys.exit(f"{unasked} questions were not asked: run the same command again to continue.")


if __name__ == "__main__":
    main()

"""Writes BFCL's odd questions as examples for the call gate's training.

    python -m lab.benchmarks.bfcl.examples --out odd.jsonl [--leave-out 60]
    rejoinder convert call-gate --examples odd.jsonl

A function fits the questions of every kind but those of irrelevance. Nothing of the even half is written. What
`--leave-out` leaves is for `lab.benchmarks.tool_thresholds --bfcl`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.benchmarks.bfcl.items import KINDS, WITHOUT_ANSWERS, Item, read_items, sample

_MAX_CHARACTERS = 1_700
"""Of the functions of a question: two thirds of the questions have no more. Reading the others takes as
long again."""


def example(item: Item) -> dict[str, Any]:
    """A question as an example."""
    known: dict[str, Any] = {"fits": "irrelevance" not in item.kind}
    if item.kind not in WITHOUT_ANSWERS:
        known["several"] = len(item.answers) > 1
    return {"tools": [tool["function"] for tool in item.tools], "messages": list(item.messages), **known}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--leave-out", type=int, default=0, help="questions of each kind")
    options = parser.parse_args(arguments)
    with options.out.open("w", encoding="utf-8") as file:
        for kind in KINDS:
            items = read_items(kind)
            left_out = {item.id for item in sample(items, "odd", options.leave_out)}
            for item in sample(items, "odd"):
                if item.id not in left_out and item.tools and len(json.dumps(item.tools)) <= _MAX_CHARACTERS:
                    file.write(json.dumps(example(item), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

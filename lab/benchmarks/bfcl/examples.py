"""Writes BFCL's odd questions as examples for the call gate's training.

    python -m lab.benchmarks.bfcl.examples --out odd.jsonl
    rejoinder convert call-gate --examples odd.jsonl

A function fits the questions of every kind but those of irrelevance. Nothing of the even half is written.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.benchmarks.bfcl.items import KINDS, WITHOUT_ANSWERS, Item, read_items, sample

_MAX_CHARACTERS = 6_000
"""Of the functions of a question. A few have ten times as many, and reading them takes as long as fifty others."""


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
    options = parser.parse_args(arguments)
    with options.out.open("w", encoding="utf-8") as file:
        for kind in KINDS:
            for item in sample(read_items(kind), "odd"):
                if item.tools and len(json.dumps(item.tools)) <= _MAX_CHARACTERS:
                    file.write(json.dumps(example(item), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

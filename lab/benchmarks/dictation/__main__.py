"""How well and how quickly dictations are cleaned up.

    python -m lab.benchmarks.dictation [--model qwen2.5-coder-1.5b] [--verbose]

60 dictations as a recognizer writes them (`cases.json`), by the author of the prompt, who wrote them before it, and 80
by somebody who had read nothing of it (`other_cases.json`). Every second one is held out. A text is right if it has the
words that a person would write, in their order and as lists where those are wanted; punctuation and capitals do not
count.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import json
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from agent.dictation.cleaner import DictationCleaner
from model.engine.conversation import Conversation
from server.processor import ProcessorUse, cpu_name
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine
from voice.compared_words import same_words

_LAST_WORD_S = 0.3
"""As in a session, all words but the last one are read while they are spoken; that one takes as long."""

_SETS = {"the prompt's author": "cases.json", "another author": "other_cases.json"}
"""Files, by who wrote them."""


def right(text: str, wanted: str) -> bool:
    """Whether a text has the wanted words, on as many lines."""
    lines, wanted_lines = ([line for line in one.splitlines() if line.strip()] for one in (text, wanted))
    return len(lines) == len(wanted_lines) and same_words(_words(text), _words(wanted))


def _words(text: str) -> list[str]:
    return [word for word in text.split() if any(map(str.isalnum, word))]


async def measure(cleaner: DictationCleaner, cases: list[list[str]], *, verbose: bool) -> None:
    """Clean up some dictations, and print how that went."""
    milliseconds, processor_ms, good, untouched, objections = [], [], 0, 0, 0
    for raw, wanted in cases:
        reader = cleaner.read_ahead(" ".join(raw.split()[:-1]))
        await asyncio.sleep(_LAST_WORD_S)
        began, began_processor = time.monotonic(), time.process_time()
        clean = await cleaner.clean(raw, reader)
        milliseconds.append(1000 * (time.monotonic() - began))
        processor_ms.append(1000 * (time.process_time() - began_processor))
        good += right(clean.text, wanted)
        untouched += right(raw, wanted)
        objections += bool(clean.objection)
        if verbose and not right(clean.text, wanted):
            print(f"{raw!r}\n  wanted {wanted!r}\n  got    {clean.text!r} {clean.objection}")
    p50, p95 = np.percentile(milliseconds, (50, 95))
    used50, used95 = np.percentile(processor_ms, (50, 95))
    print(f"{good} of {len(cases)} right ({untouched} are as they were said), {objections} kept raw by the check; "
          f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, of the processor {used50:.0f} and {used95:.0f} ms")  # fmt: skip


async def run(arguments: argparse.Namespace) -> None:
    """Measure both halves of both sets."""
    engine = load_engine(ModelOptions(model=arguments.model), Console(stderr=True))
    try:
        cleaner, before = DictationCleaner(Conversation(engine)), ProcessorUse.now()
        cleaner.prepare()
        await cleaner.clean("Hello.")
        for author, file in _SETS.items():
            cases = json.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
            print(f"{author}: ", end="")
            await measure(cleaner, cases[::2], verbose=arguments.verbose)
            print(f"{author}, held out: ", end="")
            await measure(cleaner, cases[1::2], verbose=False)
        others = ProcessorUse.now().share_of_others(before)
        print(f"{cpu_name()}; others used {100 * others:.0f} % of the processor")
    finally:
        engine.close()


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.dictation", description="Clean-up of dictations.")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--verbose", action="store_true", help="print what was wrong in the half that was looked at")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

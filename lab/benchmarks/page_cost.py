"""The processor time that the page takes, in percent of one core: by thread, in silence and while a tone is heard.

    rejoinder serve --port 8000
    python -m lab.benchmarks.page_cost ws://127.0.0.1:8000/v1/realtime

A tone whose level rises and falls moves the page's level meter as speech does, but starts no turn. Playwright's own
process is listed, too; without Playwright, the browser would not report its network traffic either. Linux only: the
times come from /proc.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lab.report.chromium import find_browser, open_page, page_address
from lab.report.page_client import PageMicrophone
from voice.audio.codec import OUTPUT_RATE

SECONDS = 10
MIN_PERCENT = 0.3
"""Threads that take less are not listed."""

Threads = dict[tuple[int, int], tuple[str, int]]
"""By process and thread: its name, and its nanoseconds on a processor."""


async def main(url: str) -> None:
    """Measure and print."""
    times = np.arange(OUTPUT_RATE * (SECONDS + 2)) / OUTPUT_RATE
    tone = (0.5 * np.sin(2 * np.pi * 220 * times) * np.sin(2 * np.pi * 3 * times)).astype(np.float32)
    async with open_page(page_address(url), lambda reports: None, browser=find_browser()) as page:
        await asyncio.sleep(2)
        await _measure("silence")
        speaking = asyncio.create_task(PageMicrophone(page, 0.0).play(tone))  # no client hears when it started
        await asyncio.sleep(1)
        await _measure("a tone")
        speaking.cancel()


async def _measure(title: str) -> None:
    before, began = _threads(), time.monotonic()
    await asyncio.sleep(SECONDS)
    after, passed_ns = _threads(), 1e9 * (time.monotonic() - began)
    used = Counter[str]()
    for key, (name, ns) in after.items():
        used[name] += 100 * (ns - before.get(key, ("", 0))[1]) / passed_ns
    print(f"{title}: {sum(used.values()):.1f} %")
    for name, percent in used.most_common():
        if percent >= MIN_PERCENT:
            print(f"  {percent:5.1f}  {name}")


def _threads() -> Threads:
    """The threads of all processes that this one has started."""
    threads: Threads = {}
    for process in _descendants(os.getpid()):
        try:
            name = _process_name(process)
            for thread in (process / "task").iterdir():
                ns = int((thread / "schedstat").read_text().split()[0])
                threads[int(process.name), int(thread.name)] = (f"{name}: {(thread / 'comm').read_text().strip()}", ns)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return threads


def _descendants(pid: int) -> Iterator[Path]:
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for number in child.read_text().split():
            yield Path("/proc", number)
            yield from _descendants(int(number))


def _process_name(process: Path) -> str:
    """The kind of a process of the browser, or the name of its program."""
    arguments = (process / "cmdline").read_text().replace("\0", " ").split()
    for prefix in ("--utility-sub-type=", "--type="):
        for argument in arguments:
            if argument.startswith(prefix):
                return argument.removeprefix(prefix)
    return Path(arguments[0]).name if arguments else process.name


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

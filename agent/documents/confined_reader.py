"""Reads documents in a process of its own, which has limits: a file that breaks a parser, or takes it for ever, or all
the memory, costs only itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any

from agent.documents.reader_process import ANSWER, REQUEST
from agent.documents.readers import Block, Document, UnreadableDocument

_PROGRAM = "agent.documents.reader_process"

_MEMORY_BYTES = 1200 << 20
"""Limit of the address space, of which the program and its parsers take about 50 MiB."""

_CPU_S = 30
"""Limit of the processor time for a file. A PDF of a thousand pages takes about 3 s."""

_WALL_S = 120.0
"""Limit of the time for a file, on a machine that is busy with conversations."""

_ADVICE = "split it, or save it as plain text"


class ConfinedReader:
    """Reads one document at a time. Its process starts with the first file, and again after a file that ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ConfinedReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def read(self, path: Path, data: bytes) -> Document:
        """Read a document.

        Args:
            path: names it and its kind.
            data: what it holds.

        Raises:
            UnreadableDocument: it is damaged, protected, too large, has no text, or exceeds a limit.
        """
        process = self._process = self._process or _start()
        is_late = False

        def end_late() -> None:
            nonlocal is_late
            is_late = True
            process.kill()

        timer = Timer(_WALL_S, end_late)
        timer.start()
        try:
            answer = _exchange(process, path, data)
        except (OSError, EOFError):
            status = self._end()
            raise UnreadableDocument(_reason(status, is_late)) from None
        except BaseException:
            self._end()
            raise
        finally:
            timer.cancel()
        if "error" in answer:
            raise UnreadableDocument(answer["error"])
        blocks = (Block(tuple(headings), text, page) for headings, text, page in answer["blocks"])
        return Document(answer["title"], tuple(blocks))

    def _end(self) -> int:
        """End the process. Returns its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.kill()  # unless it has ended
        with suppress(BrokenPipeError), process:  # closes the pipes, one of which may have something for it
            pass
        return process.wait()


def _start() -> subprocess.Popen[bytes]:
    """Start a process, which has none of this one's secrets. Raises UnreadableDocument."""
    environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "LANG", "LC_ALL") if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    environment["MALLOC_ARENA_MAX"] = "1"  # a second arena takes 64 MiB of address space
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, str(_MEMORY_BYTES), str(_CPU_S)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, start_new_session=True,  # Ctrl-C is for this process
        )  # fmt: skip
    except OSError as error:
        raise UnreadableDocument(f"the process that reads documents cannot be started ({error}): try again") from None


def _exchange(process: subprocess.Popen[bytes], path: Path, data: bytes) -> dict[str, Any]:
    """Send a file and receive what is read of it. Raises OSError or EOFError if the process ends instead."""
    assert process.stdin is not None and process.stdout is not None
    name = os.fsencode(path.name)
    process.stdin.write(REQUEST.pack(len(name), len(data)) + name)
    process.stdin.write(data)
    process.stdin.flush()
    header = process.stdout.read(ANSWER.size)
    if len(header) < ANSWER.size:
        raise EOFError
    (size,) = ANSWER.unpack(header)
    answer = process.stdout.read(size)
    if len(answer) < size:
        raise EOFError
    loaded: dict[str, Any] = json.loads(answer)
    return loaded


def _reason(status: int, is_late: bool) -> str:
    """Why a file ended the process."""
    if is_late:
        return f"reading it took longer than {_WALL_S:g} s: {_ADVICE}"
    if status == -signal.SIGXCPU:
        return f"reading it takes more than {_CPU_S} s of processor time: {_ADVICE}"
    ended = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
    return f"the process that read it ended ({ended}), perhaps for lack of memory: {_ADVICE}"

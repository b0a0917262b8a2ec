"""The process that parses documents, one after another: files come in on standard input, their text goes out on
standard output. `confined_reader.py` starts it, so it imports no model runtime."""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import struct
import sys
from contextlib import suppress
from pathlib import Path

from agent.documents.readers import UnreadableDocument, parse

REQUEST = struct.Struct("<II")
"""The lengths of the file's name and of the file. Both follow."""

ANSWER = struct.Struct("<I")
"""The length of a JSON object, which follows: what is wrong with the file as `error`, or its `title` and `blocks`."""


def main(memory_bytes: int, cpu_s: int) -> None:
    """Parse files until the other end of the pipe is closed.

    Args:
        memory_bytes: limit of the address space. macOS does not enforce it.
        cpu_s: limit of the processor time for each file.
    """
    output, sys.stdout = sys.stdout.buffer, sys.stderr  # whatever a parser prints is no answer
    with suppress(OSError, ValueError):  # macOS refuses it
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while header := sys.stdin.buffer.read(REQUEST.size):
        name, data = (sys.stdin.buffer.read(size) for size in REQUEST.unpack(header))
        _limit_processor_time(cpu_s)
        answer = _answer(os.fsdecode(name), data)
        output.write(ANSWER.pack(len(answer)) + answer)
        output.flush()
        del data, answer
        gc.collect()  # parsed HTML refers to itself, and the next file needs the memory


def _answer(name: str, data: bytes) -> bytes:
    try:
        document = parse(Path(name), data)
    except UnreadableDocument as error:
        answer: dict[str, object] = {"error": str(error)}
    else:
        blocks = [(block.headings, block.text, block.page) for block in document.blocks]
        answer = {"title": document.title, "blocks": blocks}
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")  # PDF text can have lone surrogates


def _limit_processor_time(cpu_s: int) -> None:
    usage, (_, hard) = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(usage.ru_utime + usage.ru_stime) + cpu_s, hard))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

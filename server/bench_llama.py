"""The other side of `rejoinder bench model` on a CPU: llama.cpp on the same file, in a process of its own, so that
neither side's threads wait on the other's.

Run as a module it answers lines of JSON: a prompt's token ids and a number of tokens in, tokens and seconds out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reply:
    """What llama.cpp wrote.

    Attributes:
        tokens: behind the first one, which also ends the reading of the prompt.
        seconds: that those took.
    """

    tokens: int
    seconds: float


def missing(path: Path, device: str) -> str | None:
    """Why llama.cpp cannot be compared with, or None."""
    if device != "cpu":
        return "llama.cpp is compared with on a CPU only"
    if path.suffix != ".gguf":
        return "llama.cpp reads GGUF files only"
    if importlib.util.find_spec("llama_cpp") is None:
        return 'llama.cpp is not installed: pip install "rejoinder[bench]" puts it beside this'
    return None


class LlamaCpp:
    """llama.cpp with a model, ready to be asked.

    Args:
        path: a GGUF file.
        context: tokens that it has room for.
    """

    def __init__(self, path: Path, context: int) -> None:
        command = [sys.executable, "-m", "server.bench_llama", str(path), str(context)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._ask({"tokens": [0], "most": 2})

    def write(self, ids: Sequence[int], most: int) -> Reply:
        """Continue `ids` greedily by at most `most` tokens."""
        said = self._ask({"tokens": list(ids), "most": most})
        return Reply(said["tokens"], said["seconds"])

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=20)

    def _ask(self, said: dict[str, object]) -> dict[str, int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"llama.cpp ended with code {self._process.wait()}")
        answer: dict[str, int] = json.loads(line)
        return answer


def _serve(path: str, context: int) -> None:
    from llama_cpp import Llama

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    model = Llama(path, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)
    for line in sys.stdin:
        asked = json.loads(line)
        written, began = 0, 0.0
        for token in model.generate(asked["tokens"], temp=0.0, repeat_penalty=1.0):
            if began == 0.0:
                began = time.perf_counter()
            else:
                written += 1
            if written + 1 >= asked["most"] or token == model.token_eos():
                break
        seconds = time.perf_counter() - began
        print(json.dumps({"tokens": written, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))

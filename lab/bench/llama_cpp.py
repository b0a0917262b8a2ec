"""llama.cpp on the same file, which `rejoinder bench model` compares with on a CPU. It runs in a process of its own, so
that neither side's threads wait for the other's.

Run as a module, it reads one JSON object per line, with a prompt's token ids and a maximum number of tokens, and
writes one per line, with the number of tokens and the seconds they took.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Completion:
    """Size and duration of what llama.cpp generated.

    Attributes:
        tokens: after the first one, which also completes the reading of the prompt.
        seconds: how long those tokens took.
    """

    tokens: int
    seconds: float


def unavailable_reason(path: Path, device: str) -> str | None:
    """Why a comparison with llama.cpp is not possible, or None if it is."""
    if device != "cpu":
        return "llama.cpp is compared with on a CPU only"
    if path.suffix != ".gguf":
        return "llama.cpp reads GGUF files only"
    if importlib.util.find_spec("llama_cpp") is None:
        return 'llama.cpp is not installed: pip install -e ".[bench]" adds it to the comparison'
    return None


class LlamaCppFailed(Exception):
    """llama.cpp ended by itself."""


class LlamaCpp:
    """llama.cpp with a loaded model.

    Args:
        path: a GGUF file.
        context: tokens that it has room for.

    Raises:
        LlamaCppFailed: also by `generate`.
    """

    def __init__(self, path: Path, context: int) -> None:
        command = [sys.executable, "-m", "lab.bench.llama_cpp", str(path), str(context)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._request({"tokens": list(range(8)), "max_tokens": 2})

    def generate(self, ids: Sequence[int], max_tokens: int) -> Completion:
        """Continue `ids` greedily by at most `max_tokens` tokens."""
        response = self._request({"tokens": list(ids), "max_tokens": max_tokens})
        return Completion(response["tokens"], response["seconds"])

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=20)

    def _request(self, request: dict[str, object]) -> dict[str, int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # then there is no line to read either
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise LlamaCppFailed(f"llama.cpp ended with code {code}, so there is no comparison with it")
        response: dict[str, int] = json.loads(line)
        return response


def _serve(path: str, context: int) -> None:
    from llama_cpp import Llama

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    model = Llama(path, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)
    for line in sys.stdin:
        request = json.loads(line)
        generated, start = 0, 0.0
        for token in model.generate(request["tokens"], temp=0.0, repeat_penalty=1.0):
            if start == 0.0:
                start = time.perf_counter()
            else:
                generated += 1
            if generated + 1 >= request["max_tokens"] or token == model.token_eos():
                break
        seconds = time.perf_counter() - start
        print(json.dumps({"tokens": generated, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))

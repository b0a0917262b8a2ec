"""Whether the check at the start accepts the kernels and rejects each mistake, with two layers, a part of the head and
the block drafter of a real model at full width, in Triton's interpreter. Takes some minutes of a CPU core.

    python -m lab.benchmarks.gpu_mistakes [--model qwen2.5-coder-0.5b] [--layers 1 2] [--out FILE]

Prints a row for each mistake, and exits with 1 if right kernels are rejected or a wrong one is accepted. With `--out`
rows are kept in a file, and those that it has are not run again: delete it when a kernel has changed.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from torch import Tensor

from lab.benchmarks.gpu_mistakes.mistakes import DRAFTER_MISTAKES, MISTAKES
from lab.benchmarks.gpu_mistakes.real_layers import real_drafter, real_layers
from lab.benchmarks.gpu_mistakes.running import CPU, OneDrafterKernel, OneKernel, mistaken, selected, selected_drafter
from model.hub.store import ModelStore
from model.nn.decoder import Decoder
from model.nn.gpu import selection
from model.nn.gpu.block_matrix import BlockWeight
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.triton_operations import TritonOperations

_CONVERSATIONS, _DRAFTS = 16, 4
_ACCEPTED = "accepted"


class _Reasons(logging.Handler):
    """Keeps the last message."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage().rpartition("here, so responses take longer: ")[2]


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.gpu_mistakes")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, help="file of the rows, from which an interrupted run goes on")
    arguments = parser.parse_args()
    path = ModelStore(hub=False).locate(arguments.model)
    decoder = real_layers(path, arguments.layers)
    drafting, drafter = real_drafter(path)
    reasons = _Reasons()
    logging.getLogger("rejoinder.model").addHandler(reasons)

    def accepts_pass(name: str | None) -> bool:
        operations = TritonOperations(CPU) if name is None else OneKernel(name)
        return isinstance(selected(decoder, operations), FusedPass)

    def accepts_drafter(name: str | None) -> bool:
        return selected_drafter(drafting, drafter, OneDrafterKernel(name), _CONVERSATIONS, _DRAFTS) is not None

    print("| kernel | mistake | the check | s |\n|---|---|---|---|", flush=True)
    failed, known = 0, _known(arguments.out)
    with _kept_weights(), tempfile.TemporaryDirectory() as folder:
        for operation, mistake, accepts in _cases(accepts_pass, accepts_drafter):
            case = f"| {operation or 'all of layers and head'} | {mistake or 'none'} |"
            row, began, reasons.text = known.get(case, ""), time.perf_counter(), _ACCEPTED
            if not row:
                with mistaken(mistake, Path(folder)) if mistake else nullcontext():
                    accepted = accepts(operation)
                verdict = _ACCEPTED if accepted else reasons.text
                row = f"{case} {verdict} | {time.perf_counter() - began:.0f} |"
                if arguments.out:
                    with arguments.out.open("a", encoding="utf-8") as file:
                        print(row, file=file)
            failed += row.startswith(f"{case} {_ACCEPTED} |") != (mistake is None)
            print(row, flush=True)
    print(f"{failed} wrong verdicts")
    return 1 if failed else 0


def _known(path: Path | None) -> dict[str, str]:
    """The rows of a run before this one, by their first two columns."""
    if path is None or not path.exists():
        return {}
    rows = path.read_text(encoding="utf-8").splitlines()
    return {"|".join((*row.split("|")[:3], "")): row for row in rows if row.endswith(" |")}


def _cases(
    accepts_pass: Callable[[str | None], bool], accepts_drafter: Callable[[str | None], bool]
) -> Iterator[tuple[str | None, str | None, Callable[[str | None], bool]]]:
    """Operations, mistakes and what checks them: first right kernels, then the mistakes."""
    yield None, None, accepts_pass
    for name in dict.fromkeys(operation for operation, *_ in DRAFTER_MISTAKES.values()):
        yield name, None, accepts_drafter
    for mistakes, accepts in ((MISTAKES, accepts_pass), (DRAFTER_MISTAKES, accepts_drafter)):
        for mistake, (operation, *_) in mistakes.items():
            yield operation, mistake, accepts


@contextmanager
def _kept_weights() -> Iterator[None]:
    """Weights are expanded once. A decoder whose kernels are rejected expands them for plain PyTorch, and is used up:
    here it is used again."""
    expand, known = BlockWeight.expanded, dict[int, Tensor]()

    def expanded(weight: BlockWeight) -> Tensor:
        if id(weight) not in known:
            known[id(weight)] = expand(weight)
        return known[id(weight)]

    with (
        patch.object(BlockWeight, "expanded", expanded),
        patch.object(Decoder, "expand_weights", lambda self: None),
        patch.object(selection, "MaskedPass"),
    ):
        yield


if __name__ == "__main__":
    sys.exit(main())

"""What a stage is given: the device, and where its checks are recorded as they begin and end."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from lab.benchmarks.gpu_acceptance.call import Call
from lab.benchmarks.gpu_acceptance.report import Result
from model.nn.cuda import configure_cuda


class NotPossibleHere(Exception):
    """A check cannot be made on this machine, which is no fault."""


@dataclass(frozen=True)
class Context:
    """Where a stage runs.

    Attributes:
        path: file that the checks are recorded in, one JSON object a line.
        device: the device under test.
        call: what the command was asked for.
    """

    path: Path
    device: torch.device
    call: Call

    @staticmethod
    def open(stage: str, call: Call) -> Context:
        """Select the device, for the stage of this name.

        Raises:
            SystemExit: there is no GPU.
        """
        path = call.out / f"{stage}.jsonl"
        if call.cpu:
            return Context(path, torch.device("cpu"), call)
        if not torch.cuda.is_available():
            raise SystemExit("there is no CUDA device: --cpu checks the acceptance itself")
        configure_cuda()
        device = torch.device("cuda", 0)
        torch.cuda.set_device(device)
        return Context(path, device, call)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    def check(self, name: str, work: Callable[[], Mapping[str, Any] | None]) -> None:
        """Run a check. It holds if it returns, and fails if it raises; what it returns are its figures."""
        self._record({"begun": name})
        began = time.monotonic()
        held: bool | None = True
        figures: Mapping[str, Any] = {}
        problem = ""
        try:
            figures = work() or {}
        except NotPossibleHere as error:
            held, problem = None, str(error)
        except Exception as error:
            traceback.print_exc()  # into the stage's log
            held, problem = False, f"{type(error).__name__}: {error}".splitlines()[0]
        result = Result(name, held, round(time.monotonic() - began, 2), figures, problem)
        self._record({"result": asdict(result)})

    def milliseconds(
        self, work: Callable[[], object], repeats: int = 20, prepare: Callable[[], object] | None = None
    ) -> float:
        """The median time of `work` in ms, after three runs that do not count.

        Args:
            prepare: called before each run, not timed.
        """
        times = []
        for run in range(3 + repeats):
            if prepare is not None:
                prepare()
            if self.on_gpu:
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                work()
                end.record()
                end.synchronize()
                elapsed = start.elapsed_time(end)
            else:
                began = time.perf_counter()
                work()
                elapsed = (time.perf_counter() - began) * 1e3
            if run >= 3:
                times.append(elapsed)
        return sorted(times)[len(times) // 2]

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def _record(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

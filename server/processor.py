"""This machine: the name of its processor, its memory, and how much of the processor others use."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path


def cpu_name() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # this is not Linux
    return platform.processor() or platform.machine()


def physical_memory() -> int:
    """Bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class ProcessorUse:
    """Processor time that has been used up to a moment, in seconds.

    Attributes:
        at: the moment.
        own: of this process.
        all: of all processes, and what a hypervisor took away; None where that is not known.
    """

    at: float
    own: float
    all: float | None

    @classmethod
    def now(cls) -> ProcessorUse:
        """Up to now."""
        return cls(time.monotonic(), time.process_time(), _used_by_all())

    def share_of_others(self, since: ProcessorUse) -> float:
        """The share of the processor, 0 to 1, that others used since an earlier moment; 0 where that is unknown."""
        seconds = (self.at - since.at) * len(_cores())
        if self.all is None or since.all is None or seconds <= 0:
            return 0.0
        return max(0.0, (self.all - since.all) - (self.own - since.own)) / seconds


def _cores() -> set[int]:
    """The numbers of the cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _used_by_all() -> float | None:
    """Seconds that all processes have used on the cores of this one. None where a container may use a part of their
    time only, because the rest is not its concern, and where the system does not say."""
    try:
        if (quota := Path("/sys/fs/cgroup/cpu.max")).exists() and not quota.read_text().startswith("max"):
            return None
        lines = Path("/proc/stat").read_text(encoding="utf-8").splitlines()
        wanted, ticks = {f"cpu{number}" for number in _cores()}, 0
        for name, *fields in (line.split() for line in lines if line.startswith("cpu")):
            if name in wanted:
                user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, fields[:8])
                ticks += user + nice + system + interrupts + soft_interrupts + stolen
        return ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None

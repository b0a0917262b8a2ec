"""The worker threads that share matrix multiplications and attention, and the compiled kernels they run.

One team serves a process. A job is divided into chunks, such as groups of outputs. Every thread, the caller included,
claims one chunk after another until none is left, so losing a core for a moment delays one chunk and not half of the
work. Between jobs the workers spin for a fraction of a millisecond, then sleep until they are woken.

The workers' loop is LLVM IR like the kernels, so it runs without the interpreter and its lock.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import platform
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from model.hub.computed_files import ComputedFiles
from model.nn.cpu.block_formats import aligned
from model.nn.cpu.target import TARGETS, Isa, Target

_log = logging.getLogger("rejoinder.model")

_SPIN_S = 250e-6
"""How long a waiting thread spins before it sleeps (a worker) or yields its core (the caller): longer than the
operations between two jobs of a forward pass, about 0.1 ms. Waking a sleeping thread takes about 50 µs."""

_CALIBRATION_SPINS = 20_000

_MACHINE_CODE = ComputedFiles("machine_code", 512, 32 << 20)
"""Compiled kernels. A model needs about 20, and compiling them takes half a second."""


def _team_text() -> str:
    """The IR (`team.ll`) of `run` (the caller), `run_all` (several jobs; those of one chunk without the workers),
    `work` (a worker), `stop`, and `spin`, which measures how long spinning takes.

    The job counter packs the job's number (24 bits), its number of chunks and the next chunk (20 bits each), so that
    one atomic addition claims a chunk and tells which job it belongs to. A job ends when all its chunks are done, so a
    thread that has claimed a chunk can read the job's description.
    """
    pause = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
    machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return Path(__file__).with_suffix(".ll").read_text(encoding="utf-8").replace("PAUSE", pause.get(machine, ""))


_STATE_BYTES = 640
_SPIN_LIMIT, _MUTEX, _CONDITION = 264, 320, 448


def detect_isa() -> Isa:
    """The best instruction set of this processor that there are kernels for."""
    features = {name for name, present in llvm.get_host_cpu_features().items() if present}
    if {"amx-tile", "amx-int8", "avx512vnni"} <= features and _may_use_amx():
        return "amx"
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"} <= features:
        return "avx512vnni"
    if {"avx2", "avxvnni", "fma", "f16c"} <= features:
        return "avxvnni"
    if {"avx2", "fma", "f16c"} <= features:
        return "avx2"
    if {"neon", "dotprod", "fullfp16"} <= features:
        return "sdot"
    return "portable"


def _may_use_amx() -> bool:
    """Ask Linux for the matrix registers, which it gives to processes that ask."""
    arch_prctl, request, matrices = 158, 0x1023, 18
    refused: int = ctypes.CDLL(None).syscall(arch_prctl, request, matrices)
    return not refused


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compile(text: str) -> llvm.ExecutionEngine:
    """Compile IR for this processor, or load what an earlier start has compiled. The code lives as long as what is
    returned."""
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3)
    key = (llvmlite.__version__, cpu, features, text)
    known = _MACHINE_CODE.read(*key)
    module = llvm.parse_assembly("" if known else text)
    module.verify()
    compiled = llvm.create_mcjit_compiler(module, machine)
    if known:
        compiled.add_object_file(llvm.ObjectFileRef.from_data(known))
    else:
        compiled.set_object_cache(lambda _, code: _MACHINE_CODE.write(code, *key))
    compiled.finalize_object()
    return compiled


class Team:
    """Compiled kernels and the threads that run them.

    Args:
        isa: the instruction set; this processor's best when not given.
        threads: how many share a multiplication, the caller included; one a core when not given.

    Attributes:
        name: the processor, the instruction set and the number of threads.
    """

    def __init__(self, isa: Isa | None = None, threads: int | None = None) -> None:
        self.isa: Isa = isa or detect_isa()
        self.threads = threads or available_cores()
        self.name = f"{llvm.get_host_cpu_name()} {self.isa} {self.threads}"
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._compiled = _compile(_team_text())
        self._kernels: dict[str, llvm.ExecutionEngine] = {}
        self._run, self._run_all = self._function("run", 4), self._function("run_all", 3)
        self._state = aligned(_STATE_BYTES)
        self._address = self._state.ctypes.data
        libc = ctypes.CDLL(None)
        libc.pthread_mutex_init(ctypes.c_void_p(self._address + _MUTEX), None)
        libc.pthread_cond_init(ctypes.c_void_p(self._address + _CONDITION), None)
        spin, began = self._function("spin", 2), time.perf_counter()
        spin(self._address, _CALIBRATION_SPINS)
        per_spin = (time.perf_counter() - began) / _CALIBRATION_SPINS
        self._state[_SPIN_LIMIT : _SPIN_LIMIT + 8].view(np.int64)[0] = _SPIN_S / per_spin
        self._lock = threading.Lock()
        self._workers = [
            threading.Thread(target=self._work, name=f"rejoinder-matmul-{n}", daemon=True)
            for n in range(1, self.threads)
        ]
        for worker in self._workers:
            worker.start()

    def _work(self) -> None:
        """Run a worker. The thread keeps the team, and so its code and state, alive until `close`."""
        self._function("work", 1)(self._address)

    def _function(self, name: str, arguments: int) -> Callable[..., None]:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)
        return kind(self._compiled.get_function_address(name))

    def kernel(self, name: str, text: Callable[[Target], str]) -> int:
        """Address of a kernel, which is compiled when it is first asked for.

        Args:
            name: of the function, as long as the team exists.
            text: makes the IR of its module.
        """
        if name not in self._kernels:
            self._kernels[name] = _compile(text(TARGETS[self.isa]))
        return int(self._kernels[name].get_function_address(name))

    def run(self, segments: int, call: int, chunks: int) -> None:
        """Share one job and wait for it.

        Args:
            segments: address of int64 [matrices + 1, fields of SEGMENT]; the last row ends the list with the largest
                `first_chunk`. Jobs that are no multiplications have one segment, which states only `kernel`, `groups`
                and `groups_per_chunk`.
            call: address of the fields of CALL, or of what else the kernel takes.
            chunks: chunks of all segments.
        """
        with self._lock:
            self._run(self._address, segments, call, chunks)

    def run_all(self, jobs: NDArray[np.int64]) -> None:
        """Run jobs one after another, without the interpreter in between.

        Args:
            jobs: [jobs, 3], the arguments of `run` for each.
        """
        if len(jobs):
            with self._lock:
                self._run_all(self._address, jobs.ctypes.data, len(jobs))

    def close(self) -> None:
        """End the worker threads."""
        self._function("stop", 1)(self._address)
        for worker in self._workers:
            worker.join()


@cache
def shared_team() -> Team:
    """The team of this process, started at the first call."""
    team = Team()
    _log.debug("matrix multiplication on %d threads with %s", team.threads, team.isa)
    atexit.register(team.close)
    return team

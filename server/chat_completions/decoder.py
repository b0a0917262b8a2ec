"""Decodes recordings of clients. Each one is decoded by a process of its own, which was started beforehand, has limits,
and ends with the recording: what breaks a decoder breaks neither the server nor the next recording."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import numpy as np

from server.api_errors import APIError
from server.chat_completions.decoder_process import LENGTH, NO_AUDIO, OUT_OF_MEMORY, READY, TAKEN, UNREADABLE
from voice.audio.codec import PCM16

_log = logging.getLogger("rejoinder.server")

_PROGRAM = Path(__file__).with_name("decoder_process.py")

_READ_BYTES = 1 << 18


class RecordingTooLong(Exception):
    """A recording has more seconds than it may have."""


class RecordingDecoder:
    """Decodes one recording at a time per call; calls may overlap. Two hours of MP3 take about 10 s of processor time.

    Args:
        rate: of the decoded audio, in Hz.
        memory_bytes: limit of the address space of a process, of which the program and a recording of 25 MiB take about
            160 MiB.
        cpu_s: limit of its processor time.
        wall_s: limit of the time from the first byte in to the last byte out.
    """

    def __init__(self, rate: int, memory_bytes: int = 384 << 20, cpu_s: int = 60, wall_s: float = 120.0) -> None:
        self._rate, self._memory_bytes, self._cpu_s, self._wall_s = rate, memory_bytes, cpu_s, wall_s
        self._running = False
        self._spare: asyncio.Task[Process] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps a process ready. Without it, each recording waits for its process to start."""
        self._running = True
        self._prepare()
        try:
            yield
        finally:
            self._running = False
            if self._spare is not None:
                self._spare.cancel()
                for process in await asyncio.gather(self._spare, return_exceptions=True):
                    if isinstance(process, Process):
                        await _end(process)

    async def decode(self, data: bytes, max_seconds: float) -> PCM16:
        """The first audio stream of a file.

        Raises:
            RecordingTooLong: it has more than `max_seconds`.
            APIError: it cannot be decoded, or not within the limits.
        """
        process = await self._take()
        try:
            async with asyncio.timeout(self._wall_s):
                if not await self._send(process, data) and await process.wait() == -signal.SIGKILL:
                    process = await self._start()  # the other one was killed while it waited
                    await self._send(process, data)
                pcm = await self._receive(process, max_seconds)
                status = await process.wait()
        except TimeoutError:
            message = f"decoding the recording took longer than {self._wall_s:g} s: try again later"
            raise APIError(503, message, "file", "decoding_timeout", retry_after_s=30) from None
        finally:
            await _end(process)
            if self._running:
                self._prepare()
        if status or len(pcm) % 2:
            raise self._error(status)
        return np.frombuffer(pcm, "<i2")

    async def _send(self, process: Process, data: bytes) -> bool:
        """Whether the process has read a recording. If it has ended instead, its status says why."""
        assert process.stdin is not None and process.stdout is not None
        with suppress(ConnectionError):
            process.stdin.write(LENGTH.pack(len(data)))
            process.stdin.write(data)
            await process.stdin.drain()
        return await process.stdout.read(len(TAKEN)) == TAKEN

    async def _receive(self, process: Process, max_seconds: float) -> bytearray:
        assert process.stdout is not None
        pcm = bytearray()
        while part := await process.stdout.read(_READ_BYTES):
            pcm += part
            if len(pcm) > 2 * self._rate * max_seconds:
                raise RecordingTooLong
        return pcm

    def _error(self, status: int) -> APIError:
        formats = "send WAV, MP3, M4A, WebM, Ogg, FLAC or AAC"
        if status == UNREADABLE:
            return APIError(400, f"the recording cannot be read: {formats}", "file", "invalid_audio")
        if status == NO_AUDIO:
            return APIError(400, "the file contains no audio", "file", "invalid_audio")
        if status == OUT_OF_MEMORY:
            message = f"decoding the recording takes more than {self._memory_bytes >> 20} MiB of memory"
            return APIError(400, f"{message}: send it in another format", "file", "decoding_limit")
        if status == -signal.SIGXCPU:
            message = f"decoding the recording takes more than {self._cpu_s} s of processor time"
            return APIError(400, f"{message}: send it in parts", "file", "decoding_limit")
        _log.warning("the process that decoded a recording ended unexpectedly (%s)", _in_words(status))
        if status == -signal.SIGKILL:  # by somebody else, or because the machine's memory was used up
            message = "the process that decoded the recording was killed: try again"
            return APIError(503, message, "file", "decoder_killed")
        return APIError(400, f"the recording cannot be decoded: {formats}", "file", "invalid_audio")

    def _prepare(self) -> None:
        self._spare = asyncio.create_task(self._start())

    async def _take(self) -> Process:
        """A process that is ready."""
        spare, self._spare = self._spare, None
        if spare is not None:
            process = await spare
            if process.returncode is None:
                return process
        return await self._start()

    async def _start(self) -> Process:
        """A new process, once it is ready. Raises APIError."""
        arguments = [_av_folder(), *map(str, (self._rate, self._memory_bytes, self._cpu_s))]
        # Neither the server's secrets nor its modules: -I and -S leave out all folders but the standard library.
        environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        environment["MALLOC_ARENA_MAX"] = "1"  # a second arena takes 64 MiB of address space
        process = None
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(_PROGRAM), *arguments,
                stdin=PIPE, stdout=PIPE, limit=_READ_BYTES, env=environment, cwd="/", start_new_session=True,
            )  # fmt: skip
            assert process.stdout is not None
            if await process.stdout.read(len(READY)) == READY:
                return process
            reason = _in_words(await process.wait())
        except OSError as error:
            reason = str(error)
        except BaseException:
            if process is not None:
                await _end(process)
            raise
        _log.error("the process that decodes recordings cannot be started (%s)", reason)
        raise APIError(503, "recordings cannot be decoded now: try again later", code="decoder_unavailable")


def _av_folder() -> str:
    """The folder that PyAV is installed in."""
    found = importlib.util.find_spec("av")
    assert found is not None and found.origin is not None
    return str(Path(found.origin).parent.parent)


async def _end(process: Process) -> None:
    """Kill a process unless it has ended."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _in_words(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name

"""Starts Rejoinder's own server as a child process, so that client and server do not share an interpreter."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from agent.background_tasks import cancel
from lab.simulator.errors import ServerUnavailable
from server.serving.options import ModelOptions

_READY = re.compile(r"Ready: http://([\w.\[\]:-]+)/")
_AUDIOSOCKET_READY = re.compile(r"AudioSocket: ([\w.\[\]:-]+),")

_NOT_PASSED = frozenset(
    "REJOINDER_API_KEY REJOINDER_PHONE_SECRET TWILIO_AUTH_TOKEN PLIVO_AUTH_TOKEN TELNYX_PUBLIC_KEY "
    "CREDENTIALS_DIRECTORY REJOINDER_CONFIG REJOINDER_RECORDS".split()
)
"""Secrets and options of this machine's own server: the child listens on this machine only, without a turn log."""

_START_TIMEOUT_S = 600.0
"""The server may have to assemble models first."""

_STOP_TIMEOUT_S = 15.0


@asynccontextmanager
async def own_server(options: Sequence[str], *, phone: str | None = None) -> AsyncIterator[str]:
    """Start `rejoinder serve` on a free port, and stop it on exit.

    Args:
        options: model options for the command line.
        phone: a carrier, to serve phone calls without a greeting; None for the Realtime protocol.

    Yields:
        The URL of the Realtime endpoint, or of the endpoint for phone calls.

    Raises:
        ServerUnavailable: the server did not start.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
    environment["PYTHONUNBUFFERED"] = "1"
    data = tempfile.TemporaryDirectory(prefix="rejoinder-report-")
    environment["REJOINDER_DATA"] = data.name  # without the keys of this machine
    if phone is not None:
        options = [*options, "--greeting", "", *(["--audiosocket", "0"] if phone == "audiosocket" else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli", "serve", "--port", "0", "--max-conversations", "64", *options,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=environment,
    )  # fmt: skip
    last_lines: deque[str] = deque(maxlen=5)
    reading: asyncio.Task[None] | None = None
    try:
        try:
            pattern = _AUDIOSOCKET_READY if phone == "audiosocket" else _READY
            address = await asyncio.wait_for(_wait_until_ready(process, last_lines, pattern), _START_TIMEOUT_S)
        except TimeoutError:
            raise ServerUnavailable(f"the server was not ready after {_START_TIMEOUT_S:.0f} s") from None
        reading = asyncio.create_task(_forward_stderr(process))
        if phone == "audiosocket":
            yield f"tcp://{address}"
        else:
            yield f"ws://{address}/v1/realtime" if phone is None else f"ws://{address}/phone"
    finally:
        await _stop(process)
        if reading is not None:
            await cancel([reading])
        data.cleanup()


async def _wait_until_ready(
    process: asyncio.subprocess.Process, last_lines: deque[str], pattern: re.Pattern[str]
) -> str:
    assert process.stderr is not None  # it is a pipe
    while line := await process.stderr.readline():
        text = line.decode("utf-8", "replace").strip()
        if match := pattern.search(text):
            return match.group(1)
        last_lines.append(text)
    await process.wait()
    raise ServerUnavailable(f"the server did not start: {' '.join(last_lines) or f'exit status {process.returncode}'}")


async def _forward_stderr(process: asyncio.subprocess.Process) -> None:
    """Pass on the server's log. Without a reader, a full pipe would block the server."""
    assert process.stderr is not None  # it is a pipe
    while line := await process.stderr.readline():
        sys.stderr.write(line.decode("utf-8", "replace"))


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def as_arguments(options: ModelOptions) -> list[str]:
    """The model options that were given, as arguments for another command. None of them may be a switch."""
    arguments: list[str] = []
    for name in sorted(options.model_fields_set & ModelOptions.model_fields.keys()):
        value = getattr(options, name)
        for one in value if isinstance(value, tuple) else [value]:
            arguments += [f"--{name.replace('_', '-')}", str(one)]
    return arguments

"""Rejoinder's own server as a child process, so that who measures and who is measured share no interpreter."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from server.report.client import NoServer

_READY = re.compile(r"Ready: http://([\w.\[\]:-]+)/")
_READY_FOR_ASTERISK = re.compile(r"AudioSocket: ([\w.\[\]:-]+),")

_SECRETS = ("REJOINDER_API_KEY", "REJOINDER_PHONE_SECRET", "TWILIO_AUTH_TOKEN", "PLIVO_AUTH_TOKEN", "TELNYX_PUBLIC_KEY")
"""The child wants none of them: it listens on this machine only."""

_START_S = 600.0
"""Models may have to be assembled first."""

_END_S = 15.0


@asynccontextmanager
async def own_server(options: Sequence[str], *, phone: str | None = None) -> AsyncIterator[str]:
    """Start `rejoinder serve` on a free port; ended on leaving.

    Args:
        options: that pick models, as on the command line.
        phone: a carrier, where its calls are wanted and not the Realtime protocol; they are not greeted.

    Yields:
        The address of its Realtime endpoint, or for that carrier.

    Raises:
        NoServer: it did not start.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    environment["PYTHONUNBUFFERED"], environment["COLUMNS"] = "1", "500"
    if phone is not None:
        options = [*options, "--greeting", "", *(["--audiosocket", "0"] if phone == "audiosocket" else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "server.cli", "serve", "--port", "0", *options,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=environment,
    )  # fmt: skip
    last: deque[str] = deque(maxlen=5)
    reading: asyncio.Task[None] | None = None
    try:
        try:
            sign = _READY_FOR_ASTERISK if phone == "audiosocket" else _READY
            where = await asyncio.wait_for(_ready(process, last, sign), _START_S)
        except TimeoutError:
            raise NoServer(f"the server was not ready after {_START_S:.0f} s") from None
        reading = asyncio.create_task(_drain(process))
        if phone == "audiosocket":
            yield f"tcp://{where}"
        else:
            yield f"ws://{where}/v1/realtime" if phone is None else f"ws://{where}/phone"
    finally:
        await _end(process)
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _ready(process: asyncio.subprocess.Process, last: deque[str], sign: re.Pattern[str]) -> str:
    assert process.stderr is not None  # it is a pipe
    while line := await process.stderr.readline():
        said = line.decode("utf-8", "replace").strip()
        if found := sign.search(said):
            return found.group(1)
        last.append(said)
    await process.wait()
    raise NoServer(f"the server did not start: {' '.join(last) or f'exit status {process.returncode}'}")


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Pass on what the server says; a full pipe would hold it up."""
    assert process.stderr is not None  # it is a pipe
    while line := await process.stderr.readline():
        sys.stderr.write(line.decode("utf-8", "replace"))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

"""What the user hears while a response waits for its tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chat.types import Message
from voice.function_calls import FunctionCalls

_HOLD_AFTER_S = 0.4
"""A call that takes longer is bridged by its tool's holding phrase."""

_MAX_WAIT_S = 8.0
"""A call that takes longer than this after its holding phrase is no longer waited for: the response ends, and the
result is reported later."""

_STILL_RUNNING = "This is taking a while. I'll tell you when it's done. "


async def wait_for_outputs(
    calls: FunctionCalls, released: asyncio.Event, say: Callable[[str], None] | None
) -> list[Message] | None:
    """The calls of this step with their outputs, as messages; None if the response ends with this step: it has made no
    call, or one of the client's functions, or one that takes too long.

    Args:
        released: set while the response may be heard. No time counts before that.
        say: says something; None if the response is written, which waits for as long as its calls may run.
    """
    if not calls.in_step:
        return None
    outputs = asyncio.ensure_future(calls.outputs())
    try:
        if say is not None:
            release = asyncio.ensure_future(released.wait())
            await asyncio.wait((outputs, release), return_when=asyncio.FIRST_COMPLETED)
            release.cancel()
            await asyncio.wait((outputs,), timeout=_HOLD_AFTER_S)
            if not outputs.done():
                say(f"{calls.holding_phrase} ")
                await asyncio.wait((outputs,), timeout=_MAX_WAIT_S)
            if not outputs.done():
                calls.leave()
                say(_STILL_RUNNING)
                return None
        return await outputs
    finally:
        outputs.cancel()

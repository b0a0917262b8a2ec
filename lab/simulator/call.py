"""A whole simulated call: waits for the greeting, plays recordings, and times the responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.simulator.carriers import CARRIERS, REPORT_FUNCTIONS, CalledFunction
from lab.simulator.errors import ServerUnavailable
from lab.simulator.phone import NetworkConditions, Phone, dial
from voice.audio.codec import Samples

_RESPONSE_TIMEOUT_S = 15.0
"""A recording without an audible response for this long has none."""

_GREETING_TIMEOUT_S = 3.0
"""A call that was not greeted by then will not be."""

_MAX_SPEECH_S = 60.0
"""The longest greeting or response that is waited for."""

_QUIET_S = 1.0
"""Silence that ends a greeting or a response; between two clauses it may last half as long."""


@dataclass(frozen=True)
class CallPlan:
    """What every call does.

    Attributes:
        turns: recordings at 24 kHz, each with the time in ms of its last sample of speech.
        digits: keys to press after the greeting.
        abruptly: drop the connection without the carrier's goodbye.
    """

    url: str
    carrier: str
    turns: Sequence[tuple[Samples, float]]
    parameters: dict[str, str] = field(default_factory=dict)
    network: NetworkConditions = field(default_factory=NetworkConditions)
    digits: str = ""
    abruptly: bool = False


@dataclass
class CallOutcome:
    """The result of one call.

    Attributes:
        greeted_ms: from the start of the call to the first audible sound.
        latencies_ms: from the last sample of each recording to the response's first audible one; None if there was no
            response.
        refused: why the call failed, or empty.
        late_ms: how far the caller's own clock fell behind.
        gaps: underruns within a response.
        clears, marks: how many arrived.
        functions: functions that the assistant called, each with the time in s since the call was dialed.
        violations: what the carrier would not have accepted.
        received: all audio that arrived.
    """

    greeted_ms: float | None = None
    latencies_ms: list[float | None] = field(default_factory=list)
    refused: str = ""
    late_ms: float = 0.0
    gaps: int = 0
    clears: int = 0
    marks: int = 0
    functions: list[tuple[float, CalledFunction]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    received: list[Samples] = field(default_factory=list)


async def place_call(plan: CallPlan) -> CallOutcome:
    """Run one call from dialing to hanging up."""
    outcome = CallOutcome()
    carrier = CARRIERS[plan.carrier]({**REPORT_FUNCTIONS, **plan.parameters})
    try:
        dialed_at = time.monotonic()
        async with dial(plan.url, carrier, network=plan.network, abruptly=plan.abruptly) as phone:
            greeted_at = await _wait_for_audible(phone, dialed_at, _GREETING_TIMEOUT_S)
            if greeted_at is not None:
                outcome.greeted_ms = 1000 * (greeted_at - dialed_at)
                await _wait_for_quiet(phone)
            for digit in plan.digits:
                await asyncio.sleep(0.2)
                pressed_at = time.monotonic()
                await phone.press(digit)
            if plan.digits:
                await _wait_for_audible(phone, pressed_at, _RESPONSE_TIMEOUT_S)
                await _wait_for_quiet(phone)
            for samples, end_ms in plan.turns:
                speech_end = await phone.microphone.play(samples) + end_ms / 1000
                timeout_s = speech_end - time.monotonic() + _RESPONSE_TIMEOUT_S
                audible_at = await _wait_for_audible(phone, speech_end, timeout_s)
                outcome.latencies_ms.append(None if audible_at is None else 1000 * (audible_at - speech_end))
                if plan.abruptly:
                    break
                await _wait_for_quiet(phone)
        outcome.late_ms = 1000 * phone.microphone.max_lateness_s - plan.network.jitter_ms
        outcome.gaps = len(phone.player.gaps)
        outcome.clears, outcome.marks, outcome.violations = phone.clears, phone.marks, phone.violations
        outcome.functions = [(at - dialed_at, called) for at, called in phone.functions]
        outcome.received = phone.received
    except ServerUnavailable as error:
        outcome.refused = str(error)
    return outcome


async def _wait_for_audible(phone: Phone, since: float, timeout_s: float) -> float | None:
    """When the first audible sample at or after `since` is played; None after the timeout."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not phone.disconnected.is_set():
        if (at := phone.player.first_audible(since)) is not None:
            return at
        await asyncio.sleep(0.01)
    return phone.player.first_audible(since)


async def _wait_for_quiet(phone: Phone) -> None:
    """Wait until nothing was played for `_QUIET_S`."""
    deadline = time.monotonic() + _MAX_SPEECH_S
    while (now := time.monotonic()) < deadline and not phone.disconnected.is_set():
        if now >= phone.player.end + _QUIET_S:
            return
        await asyncio.sleep(0.02)

"""Admission: who may open a conversation now. Every conversation holds a slot from before it is accepted until it ends.

Slots are taken without waiting, on the event loop, so two callers cannot get the last one. A caller who finds no slot
waits a few seconds in a short queue. A conversation whose client has gone, but may come back, is parked: another caller
can take its slot.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from server.access.adaptive_limit import AdaptiveLimit
from server.access.keys import ApiKey, ApiKeys
from server.access.shared_conversations import SharedConversations
from server.access.tool_access import Channel
from server.access.usage import Usage, UsageLog, UsageMeter, key_name

_log = logging.getLogger("rejoinder.server")

_CHECK_INTERVAL_S = 2.0
"""How often the keys of open conversations are checked, and their time is counted."""

_RETRY_AFTER_FULL_S, _RETRY_AFTER_DRAINING_S, _RETRY_AFTER_QUOTA_S = 10, 30, 3600
"""What refused clients are told. Conversations last minutes, and a restart takes about half a minute."""

_SHUTTING_DOWN = "the server is shutting down: try again soon"

Kind = Literal["realtime", "phone"]

_WAIT_S: dict[Kind, float] = {"realtime": 8.0, "phone": 3.0}
"""How long a slot is waited for. Callers hear nothing meanwhile, and many clients give up after ten seconds."""

MAX_WAITING = 4
"""Callers in the queue. The next one is refused at once."""

RefusalCode = Literal[
    "too_many_conversations",
    "key_conversation_limit",
    "quota_exceeded",
    "server_shutting_down",
    "too_many_completions",
    "too_many_recordings",
    "too_many_searches",
]


class Refused(Exception):
    """Somebody may not come in now.

    Args:
        code: as reported on the wire and in the metrics.
        message: one sentence for the caller.
        retry_after_s: when it makes sense to try again.
    """

    def __init__(self, code: RefusalCode, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.code, self.message, self.retry_after_s = code, message, retry_after_s


@dataclass(frozen=True)
class Dismissal:
    """Why a conversation is to end.

    Attributes:
        code: as reported on the wire.
        message: one sentence for the client.
        after_turn: whether the response in progress is finished first.
    """

    code: Literal["server_shutting_down", "key_revoked", "quota_exceeded", "session_expired", "idle_timeout"]
    message: str
    after_turn: bool = True


class Slot:
    """The right to hold one conversation, until `release`.

    Attributes:
        kind: the protocol.
        key: the client's key; None if the server requires none.
        caller: a phone number, as the carrier reports it; empty if there is none.
        channel: where the conversation takes place.
        dismissal: set together with `dismissed` when the conversation is to end.
        meter: counts what the conversation uses.
        phase: returns what the conversation is doing, in a word.
        parked: whether its client has gone. It then counts for nobody's limit but its key's.
    """

    def __init__(self, admission: Admission, kind: Kind, key: ApiKey | None, started_at: float) -> None:
        self.kind, self.key = kind, key
        self.caller = ""
        self.channel: Channel = "phone" if kind == "phone" else "api"
        self.dismissal: Dismissal | None = None
        self.dismissed = asyncio.Event()
        self.counted_until = started_at
        self.phase: Callable[[], str] = lambda: "connecting"
        self.parked = False
        self.meter = UsageMeter(admission.usage, key_name(key))
        self._admission, self._started_at = admission, started_at

    @property
    def age_s(self) -> float:
        """How long the slot has been taken."""
        return self._admission.clock() - self._started_at

    def dismiss(self, dismissal: Dismissal) -> None:
        """Ask the conversation to end. The first reason counts."""
        if self.dismissal is None:
            self.dismissal = dismissal
            self.dismissed.set()

    def park(self) -> None:
        """The client has gone, and may come back."""
        self.parked = True
        self._admission.serve_waiting()

    async def unpark(self, on_wait: Callable[[], Awaitable[None]]) -> None:
        """The client has come back. It waits before all others if there is no room. Raises Refused.

        Args:
            on_wait: called before it waits.
        """
        if self.parked and self._admission.full:
            await self._admission.wait(self.kind, self.key, on_wait, parked=self)
        self.parked = False

    def count_dropped(self, events: int) -> None:
        """So many events of the conversation, or frames of a call, were not sent."""
        self._admission.dropped_events += events

    def release(self) -> None:
        """The conversation has ended."""
        self._admission.release(self)


@dataclass(frozen=True)
class _Waiting:
    """Somebody who waits for a slot: a new conversation, or one that was parked."""

    kind: Kind
    key: ApiKey | None
    parked: Slot | None
    granted: asyncio.Future[Slot]


async def wait_silently() -> None:
    """For callers who cannot be told that they wait."""


class Admission:
    """The slots of a server. All methods are called on its event loop.

    Args:
        capacity: conversations at the same time, phone calls included. What load balancers are told.
        keys: the keys that clients may have.
        usage: what keys have used today.
        clock: seconds, monotonic.
        limit: decides in place of `capacity`, by what happens.

    Attributes:
        slots: of the open conversations.
        refusals: how many were refused, by code.
        dropped_events: events that were not sent because the client had gone or did not read.
        draining: whether nobody is admitted any more.
        num_released: slots that were given back since the start.
        shared: what keys have open on other replicas; None if there are none.
        on_deleted: forget what is kept for a key, by its name.
    """

    def __init__(
        self,
        capacity: int = 16,
        keys: ApiKeys | None = None,
        usage: UsageLog | None = None,
        clock: Callable[[], float] = time.monotonic,
        limit: AdaptiveLimit | None = None,
    ) -> None:
        self.adaptive, self._waiting = limit, deque[_Waiting]()
        self.capacity, self.keys, self.usage, self.clock = capacity, keys or ApiKeys(), usage or UsageLog(), clock
        self.slots: set[Slot] = set()
        self.refusals: Counter[str] = Counter()
        self.dropped_events = self.num_released = 0
        self.draining = False
        self.shared: SharedConversations | None = None
        self.on_deleted: list[Callable[[str], Awaitable[None]]] = []
        self._released = asyncio.Event()
        self._cpu_s = time.process_time()

    @property
    def limit(self) -> int:
        """Conversations that are admitted at the same time."""
        return self.capacity if self.adaptive is None else self.adaptive.current

    @property
    def full(self) -> bool:
        """Whether every slot is taken by a conversation that has a client."""
        return self.active >= self.limit

    @property
    def active(self) -> int:
        """Conversations that have a client."""
        return sum(not slot.parked for slot in self.slots)

    @property
    def ready(self) -> bool:
        """Whether the next caller would be admitted."""
        return not (self.full or self.draining)

    async def admit(
        self,
        kind: Kind,
        key: ApiKey | None = None,
        *,
        continued: bool = False,
        on_wait: Callable[[], Awaitable[None]] = wait_silently,
    ) -> Slot:
        """Take a slot, if the key may have another conversation on all replicas together. Waits for a while if there is
        none. Raises Refused.

        Args:
            continued: whether the conversation began on another replica, which may have died with it.
            on_wait: called before it waits.
        """
        self._check_key(key)
        crowded = self.full or self._waiting
        slot = await self.wait(kind, key, on_wait) if crowded else self._take(kind, key)
        try:
            if key is not None and key.limits.conversations is not None and self.shared is not None and not continued:
                self._check_limit(key, await self.shared.elsewhere(key.name) + self.conversations_of(key))
        except BaseException:
            self.release(slot)
            raise
        slot.meter.add(Usage(conversations=1))
        return slot

    def reserve(self, kind: Kind, key: ApiKey | None = None) -> Slot:
        """Take a slot on this replica alone, at once. Raises Refused."""
        slot = self._take(kind, key)
        slot.meter.add(Usage(conversations=1))
        return slot

    def _take(self, kind: Kind, key: ApiKey | None) -> Slot:
        self._check_key(key)
        if self.full:
            raise self._full_refusal()
        slot = Slot(self, kind, key, self.clock())
        self.slots.add(slot)
        return slot

    async def wait(
        self, kind: Kind, key: ApiKey | None, on_wait: Callable[[], Awaitable[None]], parked: Slot | None = None
    ) -> Slot:
        """Wait for a slot, and take it; or wait for room for a parked one. Raises Refused."""
        if len(self._waiting) >= MAX_WAITING and parked is None:
            raise self._full_refusal()
        granted: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(kind, key, parked, granted)
        (self._waiting.append if parked is None else self._waiting.appendleft)(waiting)
        try:
            await on_wait()
            await asyncio.wait([granted], timeout=_WAIT_S[kind])
            if not granted.done():
                raise self._full_refusal()
            return granted.result()
        except asyncio.CancelledError:
            if granted.done() and granted.exception() is None:
                if parked is None:
                    self.release(granted.result())
                else:
                    parked.park()
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(waiting)

    def serve_waiting(self) -> None:
        """Give free slots to those who wait."""
        while self._waiting and (self.draining or not self.full):
            waiting = self._waiting.popleft()
            try:
                if waiting.parked is not None:
                    waiting.parked.parked = False
                waiting.granted.set_result(waiting.parked or self._take(waiting.kind, waiting.key))
            except Refused as refusal:
                waiting.granted.set_exception(refusal)

    def restart(self, conversations: int) -> None:
        """Start again from a new trial. A limit that was given stays as it is.

        Args:
            conversations: that asked at the same moment and were answered in time.
        """
        if self.adaptive is not None:
            self.capacity = conversations
            self.adaptive.restart(conversations, min(2, conversations))
            self.serve_waiting()

    def record_turn(self, latency_ms: float) -> None:
        """Count a turn by its latency, which may change the limit."""
        if self.adaptive is not None:
            self.adaptive.add_turn(latency_ms, self.active)
            self.serve_waiting()

    def _check_key(self, key: ApiKey | None) -> None:
        """Raise Refused if a key may not have another conversation here."""
        self.check(key)
        if key is not None:
            self._check_limit(key, self.conversations_of(key) + 1)

    def _check_limit(self, key: ApiKey, conversations: int) -> None:
        """Raise Refused if so many conversations are more than a key may have."""
        limit = key.limits.conversations
        if limit is not None and conversations > limit:
            message = f"the key {key.name!r} is at its limit of {limit} conversations at the same time: end one first"
            raise self.refusal("key_conversation_limit", message, _RETRY_AFTER_FULL_S)

    def _full_refusal(self) -> Refused:
        message = f"the server already has as many conversations as it may ({self.limit})"
        return self.refusal("too_many_conversations", message, _RETRY_AFTER_FULL_S)

    def release(self, slot: Slot) -> None:
        """Give a slot back; a second time is ignored."""
        if slot in self.slots:
            self._count_time(slot)
            self.slots.discard(slot)
            self.num_released += 1
            self._released.set()
            self.serve_waiting()
            if self.shared is not None:
                self.shared.change()

    def check(self, key: ApiKey | None) -> None:
        """Raise Refused if a key has used up its day, or if the server is shutting down."""
        if (refused := self.refused(key)) is not None:
            self.refusals[refused.code] += 1
            raise refused

    def refused(self, key: ApiKey | None) -> Refused | None:
        """What `check` would raise. It is not counted: nobody was turned away."""
        if self.draining:
            return Refused("server_shutting_down", _SHUTTING_DOWN, _RETRY_AFTER_DRAINING_S)
        if key is not None and (used_up := self._used_up(key)):
            return Refused("quota_exceeded", used_up, _RETRY_AFTER_QUOTA_S)
        return None

    def seconds_left(self, key: ApiKey | None) -> float:
        """Of conversations and recordings, until a key has used up its day. Infinite if it has no limit."""
        if key is None or key.limits.minutes_per_day is None:
            return math.inf
        return max(0.0, 60 * key.limits.minutes_per_day - self.usage.today(key.name).seconds)

    def quota_refusal(self, message: str) -> Refused:
        """An exception to raise because a key has used up its day."""
        return self.refusal("quota_exceeded", message, _RETRY_AFTER_QUOTA_S)

    def refusal(self, code: RefusalCode, message: str, retry_after_s: int) -> Refused:
        """An exception to raise, which is counted."""
        self.refusals[code] += 1
        return Refused(code, message, retry_after_s)

    def conversations_of(self, key: ApiKey) -> int:
        """How many conversations a key has open."""
        return sum(slot.key is not None and slot.key.name == key.name for slot in self.slots)

    def limited_conversations(self) -> Counter[str]:
        """How many conversations each key with a limit of its own has open."""
        keys = (slot.key for slot in self.slots)
        return Counter(key.name for key in keys if key is not None and key.limits.conversations is not None)

    def conversations_by_kind(self) -> dict[str, int]:
        """How many conversations of each kind are open. May be called from any thread."""
        kinds = [slot.kind for slot in tuple(self.slots)]
        return {kind: kinds.count(kind) for kind in ("realtime", "phone")}

    def drain(self, draining: bool = True) -> None:
        """Admit nobody from now on, or admit again. Open conversations continue."""
        self.draining = draining
        self.serve_waiting()

    async def dismiss_all(self, timeout_s: float) -> bool:
        """Admit nobody, and ask every conversation to end after its turn. Returns whether all did in time."""
        self.drain()
        for slot in tuple(self.slots):
            slot.dismiss(Dismissal("server_shutting_down", _SHUTTING_DOWN))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.wait_until_empty()
        return not self.slots

    async def wait_until_empty(self) -> None:
        """Wait until no slot is taken."""
        while self.slots:
            self._released.clear()
            await self._released.wait()

    async def supervise(self) -> None:
        """Count time, end the conversations of keys that were revoked or are used up, and forget what is kept for keys
        that were revoked or whose data were deleted. Runs until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            self.check_slots()
            for key in self.keys.deleted():
                for forget in self.on_deleted:
                    await forget(key)
            await asyncio.to_thread(self.usage.save)

    def check_slots(self) -> None:
        """One round of `supervise`, without writing to the disk."""
        cpu_s, self._cpu_s = time.process_time() - self._cpu_s, time.process_time()
        for slot in self.slots:
            self._count_time(slot)
            slot.meter.add(Usage(cpu_s=cpu_s / len(self.slots)))
            key = slot.key and self.keys.current(slot.key)
            if slot.key is not None and key is None:
                slot.dismiss(Dismissal("key_revoked", f"the key {slot.key.name!r} was revoked", after_turn=False))
            elif key is not None and (used_up := self._used_up(key)):
                slot.dismiss(Dismissal("quota_exceeded", used_up))

    def _count_time(self, slot: Slot) -> None:
        now = self.clock()
        slot.meter.add(Usage(seconds=now - slot.counted_until))
        slot.counted_until = now

    def _used_up(self, key: ApiKey) -> str:
        """Which limit of the day a key has reached, as a sentence; empty if none."""
        limits, used = key.limits, self.usage.today(key.name)
        if limits.minutes_per_day is not None and not self.seconds_left(key):
            return f"the key {key.name!r} has used its {limits.minutes_per_day:g} minutes of today (UTC)"
        if limits.tokens_per_day is not None and used.tokens >= limits.tokens_per_day:
            return f"the key {key.name!r} has used its {limits.tokens_per_day} tokens of today (UTC)"
        return ""

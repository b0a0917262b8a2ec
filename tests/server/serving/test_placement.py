"""Where new conversations go, without Ray."""

from __future__ import annotations

import asyncio
from collections import Counter

from server.serving.placement import Placement


class Replicas:
    """Replicas that admit four conversations each. They answer a moment after they were asked."""

    def __init__(self, *ongoing: int) -> None:
        self.ongoing = dict(enumerate(ongoing))
        self.asked: list[int] = []
        self.dead: set[int] = set()

    def capacity(self, replica: int) -> int:
        return 4

    async def ask(self, replica: int) -> int:
        self.asked.append(replica)
        ongoing = self.ongoing[replica]
        await asyncio.sleep(0)
        if replica in self.dead:
            raise ConnectionError
        return ongoing

    async def place(self, placement: Placement[int], conversation: str) -> int | None:
        return await placement.choose(conversation, self.ongoing, self.capacity, self.ask)


def in_order() -> Placement[int]:
    return Placement(shuffle=lambda replicas: None)


async def test_the_less_occupied_of_two_replicas_takes_a_conversation() -> None:
    replicas = Replicas(3, 1, 0)
    assert await replicas.place(in_order(), "a") == 1
    assert replicas.asked == [0, 1]


async def test_full_and_silent_replicas_are_passed_over_until_one_has_room() -> None:
    replicas = Replicas(4, 0, 5, 3)
    replicas.dead = {1}
    placement = in_order()
    assert await replicas.place(placement, "a") == 3
    assert await replicas.place(placement, "b") is None  # "a" is on its way to the last slot


async def test_conversations_that_come_at_the_same_time_never_share_the_last_slot() -> None:
    replicas, placement = Replicas(3, 3, 2, 0), Placement[int]()
    places = await asyncio.gather(*(replicas.place(placement, str(number)) for number in range(12)))
    taken = Counter(place for place in places if place is not None)
    assert all(taken[replica] <= 4 - replicas.ongoing[replica] for replica in replicas.ongoing)
    assert taken.total() == 8 and places.count(None) == 4


async def test_a_slot_is_free_again_after_the_conversation_or_when_its_caller_has_gone() -> None:
    now = 0.0
    replicas, placement = Replicas(3), Placement[int](clock=lambda: now)
    assert await replicas.place(placement, "a") == 0
    placement.sent("a")
    replicas.ongoing[0] = 4
    now = 100.0
    assert await replicas.place(placement, "b") is None
    placement.ended("a")
    replicas.ongoing[0] = 3
    assert await replicas.place(placement, "b") == 0  # and its caller hangs up before it is sent
    assert await replicas.place(placement, "c") is None
    now = 200.0
    assert await replicas.place(placement, "c") == 0


async def test_a_refused_conversation_tries_again_without_its_earlier_choice() -> None:
    replicas, placement = Replicas(3), in_order()
    assert await replicas.place(placement, "a") == 0
    assert await replicas.place(placement, "a") == 0

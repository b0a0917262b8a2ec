"""How many replicas a service needs."""

from __future__ import annotations

import pytest

from server.serving.scaling import ReplicaLimits, ScaleInDelay, replicas_for, replicas_that_fit

GIB = 1 << 30


@pytest.mark.parametrize(
    ("conversations", "buffer", "replicas"),
    [(0, 0, 1), (0, 2, 1), (14, 2, 1), (15, 2, 2), (16, 0, 1), (16.1, 0, 2), (160, 16, 11)],
)
def test_there_is_room_for_the_open_conversations_and_the_buffer(
    conversations: float, buffer: float, replicas: int
) -> None:
    assert replicas_for(conversations, 16, buffer) == replicas


def test_replicas_are_drained_only_after_they_were_not_wanted_for_the_whole_time() -> None:
    delay = ScaleInDelay(600)
    wanted = [(0, 3), (100, 5), (200, 2), (500, 4), (701, 2), (1050, 3), (1102, 1), (1700, 1)]
    assert [delay.replicas(number, now) for now, number in wanted] == [3, 5, 5, 5, 4, 4, 3, 1]


@pytest.mark.parametrize(
    ("cores", "memory", "gpus", "replicas"),
    [(2, 16 * GIB, 0, 1), (16, 64 * GIB, 0, 4), (16, 8 * GIB, 0, 2), (16, 64 * GIB, 2, 2), (1, GIB, 0, 1)],
)
def test_a_machine_gets_a_replica_for_each_gpu_or_for_some_cores(
    cores: float, memory: float, gpus: float, replicas: int
) -> None:
    assert replicas_that_fit(cores, memory, gpus) == replicas


@pytest.mark.parametrize(("text", "limits"), [("auto", None), ("2", ReplicaLimits(2, 2)), ("1-8", ReplicaLimits(1, 8))])
def test_limits_are_a_number_or_two(text: str, limits: ReplicaLimits | None) -> None:
    assert ReplicaLimits.parse(text) == limits


@pytest.mark.parametrize("text", ["0", "8-1", "-3", "1-", "many", "1-2-3", ""])
def test_other_limits_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--replicas is auto, a number, or two"):
        ReplicaLimits.parse(text)

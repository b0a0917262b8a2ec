"""The worker threads: any number of them computes the same, they sleep when there is nothing to do, and they end."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from model.nn.cpu.block_formats import FORMATS, PackedMatrix, aligned, pack, packed_bytes
from model.nn.cpu.linear import BlockLinear, Operands
from model.nn.cpu.team import Team, shared_team
from tests.model.nn.cpu.random_blocks import random_activations, random_blocks


def layer(team: Team, outputs: int = 4000) -> BlockLinear:
    form = FORMATS["Q4_K"]
    packed = aligned(packed_bytes(form, outputs, 512))
    pack(form, random_blocks(form, outputs, 512, seed=1), 512, packed)
    return BlockLinear([PackedMatrix(form, outputs, 512, packed)], team=team)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_computes_the_same(threads: int) -> None:
    team = Team(threads=threads)
    try:
        linear, alone = layer(team), layer(shared_team())
        x, _ = random_activations(3, 512, seed=2)
        expected = np.zeros((3, 4000), np.float32)
        alone.multiply(Operands(x, expected))
        for _ in range(300):
            out = np.full((3, 4000), np.nan, np.float32)
            linear.multiply(Operands(x, out))
            assert (out == expected).all()
    finally:
        team.close()


def test_workers_wake_from_sleep() -> None:
    team = Team(threads=3)
    try:
        linear, (x, _) = layer(team), random_activations(1, 512, seed=3)
        expected = np.zeros((1, 4000), np.float32)
        linear.multiply(Operands(x, expected))
        for _ in range(20):
            time.sleep(0.01)  # longer than they spin
            out = np.zeros((1, 4000), np.float32)
            linear.multiply(Operands(x, out))
            assert (out == expected).all()
    finally:
        team.close()


def test_workers_sleep_when_there_is_nothing_to_do() -> None:
    team = Team(threads=3)
    try:
        linear, (x, _) = layer(team), random_activations(1, 512, seed=4)
        linear.multiply(Operands(x, np.zeros((1, 4000), np.float32)))
        time.sleep(0.05)
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.1
    finally:
        team.close()


def test_several_callers_take_turns() -> None:
    linear = layer(shared_team())
    x, _ = random_activations(2, 512, seed=5)
    expected = np.zeros((2, 4000), np.float32)
    linear.multiply(Operands(x, expected))
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(100):
            out = np.zeros((2, 4000), np.float32)
            linear.multiply(Operands(x, out))
            if not (out == expected).all():
                wrong.append(number)

    callers = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_closed_team_has_no_threads_left() -> None:
    team = Team(threads=4)
    names = {worker.name for worker in team._workers}
    team.close()
    assert not any(worker.is_alive() for worker in team._workers)
    assert len(names) == 3

"""The assistant's own voice, coming back through the microphone, is told from the user's."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.voice.tables import BLOCK_S, Table, table
from voice import events
from voice.audio import Samples, resample
from voice.echo import MOSTLY, EchoGuard

RATE = 16_000


def babble(seconds: float, seed: int) -> Samples:
    """Something with the pattern of speech: voiced syllables of changing pitch and colour, and noise between them."""
    random = np.random.default_rng(seed)
    pieces: list[NDArray[np.float64]] = []
    while sum(map(len, pieces)) < seconds * RATE:
        count = int(random.uniform(0.06, 0.2) * RATE)
        t = np.arange(count) / RATE
        pitch = random.uniform(90, 220) * (1 + random.uniform(-0.3, 0.3) * t)
        sound = sum(
            random.uniform(0.1, 1) / n * np.sin(2 * np.pi * n * np.cumsum(pitch) / RATE + random.uniform(0, 6))
            for n in range(1, 14)
        )
        sound += random.uniform(0, 0.4) * random.standard_normal(count)
        pieces += [sound * np.hanning(count), np.zeros(int(random.uniform(0, 0.05) * RATE))]
    out = np.concatenate(pieces)[: int(seconds * RATE)]
    return (0.3 * out / np.abs(out).max()).astype(np.float32)


def room(sound: Samples, delay_s: float, seed: int = 9) -> Samples:
    """The way from loudspeaker to microphone: delay, loss of highs and lows, reflections that die away."""
    random = np.random.default_rng(seed)
    answer = np.zeros(int(0.12 * RATE))
    answer[0] = 1.0
    for n in random.integers(20, len(answer), 40):
        answer[n] += random.uniform(-0.25, 0.25) * np.exp(-n / (0.03 * RATE))
    coloured = np.convolve(np.convolve(sound, [0.25, 0.5, 0.25]), [1, -0.9])
    heard = np.convolve(coloured, answer)
    return (0.5 * np.concatenate((np.zeros(int(delay_s * RATE)), heard))).astype(np.float32)


def guard_that_plays(sound: Samples) -> EchoGuard:
    guard = EchoGuard()
    for start in range(0, len(sound), RATE // 10):
        guard.play(resample(sound[start : start + RATE // 10], RATE, 24_000), 100.0)
    return guard


def shares(guard: EchoGuard, heard: Samples) -> list[float]:
    """At ten places of what the microphone hears from 100 s on."""
    ends = np.linspace(0.9, 1.9, 10)
    return [guard.share(heard[: int(end * RATE)], 100.0 + end) for end in ends]


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2, 0.6])
@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_the_assistants_own_voice_is_echo_whatever_the_delay_and_the_room(delay_s: float, noise: float) -> None:
    sound = babble(2.0, 1)
    echo = room(sound, delay_s)[: 2 * RATE]
    echo += (noise * np.random.default_rng(3).standard_normal(len(echo))).astype(np.float32)
    assert min(shares(guard_that_plays(sound), echo)) > MOSTLY + 0.1


@pytest.mark.parametrize("seed", range(11, 17))
def test_another_voice_is_none(seed: int) -> None:
    assert max(shares(guard_that_plays(babble(2.0, 1)), babble(2.0, seed))) < MOSTLY - 0.2


def test_a_user_who_speaks_over_the_echo_is_heard() -> None:
    sound, user = babble(2.0, 1), babble(2.0, 12)
    echo = room(sound, 0.15)[: 2 * RATE]
    loudness = np.sqrt(np.mean(echo**2) / np.mean(user**2))
    assert max(shares(guard_that_plays(sound), echo + 3 * loudness * user)) < MOSTLY
    assert min(shares(guard_that_plays(sound), echo + 2 * loudness * user)) < MOSTLY


def test_the_beginning_of_a_word_is_not_explained_by_chance() -> None:
    guard, user = guard_that_plays(babble(2.0, 1)), babble(2.0, 12)
    for voiced_ms in (64, 96, 160):
        heard = np.concatenate((np.zeros(RATE, np.float32), user[: voiced_ms * RATE // 1000]))
        assert guard.share(heard, 100.0 + len(heard) / RATE) < MOSTLY


def test_where_nothing_plays_nothing_is_echo() -> None:
    sound = babble(2.0, 1)
    assert EchoGuard().share(sound, 100.0) == 0
    guard = guard_that_plays(sound)
    assert not guard.may_be_heard(99.5) and guard.may_be_heard(101.0) and not guard.may_be_heard(103.0)
    guard.cut(100.5)
    assert not guard.may_be_heard(101.5)
    assert guard.share(np.zeros(RATE, np.float32), 100.4) == 0


def test_a_look_takes_a_few_milliseconds() -> None:
    sound = babble(2.0, 1)
    guard = guard_that_plays(sound)
    began = time.perf_counter()
    for _ in range(10):
        guard.share(sound, 101.9)
    assert (time.perf_counter() - began) / 10 < 0.03


async def hear_oneself(t: Table, seconds: float, user: Samples | None = None) -> None:
    """The microphone hears what is played, 150 ms later and quieter, and perhaps the user."""
    begun = round(t.loop.time() / BLOCK_S)
    for n in range(round(seconds / BLOCK_S)):
        await asyncio.sleep(BLOCK_S)
        sent = [(at, e.samples) for at, e in t.happened if isinstance(e, events.AnswerAudio)]
        first = sent[0][0] + 0.15 if sent else 0.0
        played = np.concatenate((np.zeros(int(first * RATE)), *(resample(s, 24_000, RATE) for _, s in sent)))
        at = int((begun + n) * BLOCK_S * RATE)
        block = np.zeros(int(BLOCK_S * RATE), np.float32)
        echo = 0.6 * played[at : at + len(block)]
        block[: len(echo)] += echo.astype(np.float32)
        if user is not None:
            block += user[n * len(block) : (n + 1) * len(block)]
        t.session.append(block, RATE)


def test_a_conversation_is_not_interrupted_by_its_own_echo_but_by_the_user_over_it() -> None:
    async def echo_alone(t: Table) -> None:
        t.brain.words, t.brain.pace = [" word"] * 30, 0.0
        await t.hear(1.0, 0.5)
        await hear_oneself(t, 2.6)

    t = table(echo_alone)
    assert len(t.all(events.SpeechStarted)) == 1
    assert [e.status for e in t.all(events.AnswerDone)] == ["completed"]

    async def and_the_user(t: Table) -> None:
        await echo_alone(t)
        await hear_oneself(t, 0.5, np.random.default_rng(5).uniform(-1, 1, RATE).astype(np.float32))

    assert len(table(and_the_user).all(events.SpeechStarted)) == 2

"""The assistant's own voice in the microphone is told from the user's."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.voice.session_harness import BLOCK_S, SessionHarness, run_session
from voice import events
from voice.audio.codec import Samples
from voice.audio.echo import ECHO_THRESHOLD, EchoDetector
from voice.audio.resampling import resample

RATE = 16_000


def babble(seconds: float, seed: int) -> Samples:
    """A signal with the pattern of speech: voiced syllables of varying pitch and timbre, with noise in between."""
    random = np.random.default_rng(seed)
    syllables: list[NDArray[np.float64]] = []
    while sum(map(len, syllables)) < seconds * RATE:
        count = int(random.uniform(0.06, 0.2) * RATE)
        t = np.arange(count) / RATE
        pitch = random.uniform(90, 220) * (1 + random.uniform(-0.3, 0.3) * t)
        sound = sum(
            random.uniform(0.1, 1) / n * np.sin(2 * np.pi * n * np.cumsum(pitch) / RATE + random.uniform(0, 6))
            for n in range(1, 14)
        )
        sound += random.uniform(0, 0.4) * random.standard_normal(count)
        syllables += [sound * np.hanning(count), np.zeros(int(random.uniform(0, 0.05) * RATE))]
    out = np.concatenate(syllables)[: int(seconds * RATE)]
    return (0.3 * out / np.abs(out).max()).astype(np.float32)


def through_room(sound: Samples, delay_s: float, seed: int = 9) -> Samples:
    """The path from loudspeaker to microphone: delay, loss of high and low frequencies, decaying reflections."""
    random = np.random.default_rng(seed)
    impulse_response = np.zeros(int(0.12 * RATE))
    impulse_response[0] = 1.0
    for n in random.integers(20, len(impulse_response), 40):
        impulse_response[n] += random.uniform(-0.25, 0.25) * np.exp(-n / (0.03 * RATE))
    coloured = np.convolve(np.convolve(sound, [0.25, 0.5, 0.25]), [1, -0.9])
    reverberant = np.convolve(coloured, impulse_response)
    return (0.5 * np.concatenate((np.zeros(int(delay_s * RATE)), reverberant))).astype(np.float32)


def detector_playing(sound: Samples) -> EchoDetector:
    detector = EchoDetector()
    for start in range(0, len(sound), RATE // 10):
        detector.add_playback(resample(sound[start : start + RATE // 10], RATE, 24_000), 100.0)
    return detector


def echo_shares(detector: EchoDetector, microphone: Samples) -> list[float]:
    """The echo share at ten positions of microphone audio that starts at 100 s."""
    ends = np.linspace(0.9, 1.9, 10)
    return [detector.echo_share(microphone[: int(end * RATE)], 100.0 + end) for end in ends]


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2, 0.6])
@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_the_assistants_own_voice_is_echo_at_any_delay_and_noise(delay_s: float, noise: float) -> None:
    sound = babble(2.0, 1)
    echo = through_room(sound, delay_s)[: 2 * RATE]
    echo += (noise * np.random.default_rng(3).standard_normal(len(echo))).astype(np.float32)
    assert min(echo_shares(detector_playing(sound), echo)) > ECHO_THRESHOLD + 0.1


@pytest.mark.parametrize("seed", range(11, 17))
def test_another_voice_is_not_echo(seed: int) -> None:
    assert max(echo_shares(detector_playing(babble(2.0, 1)), babble(2.0, seed))) < ECHO_THRESHOLD - 0.2


def test_a_user_who_speaks_over_the_echo_is_detected() -> None:
    sound, user = babble(2.0, 1), babble(2.0, 12)
    echo = through_room(sound, 0.15)[: 2 * RATE]
    loudness = np.sqrt(np.mean(echo**2) / np.mean(user**2))
    assert max(echo_shares(detector_playing(sound), echo + 3 * loudness * user)) < ECHO_THRESHOLD
    assert min(echo_shares(detector_playing(sound), echo + 2 * loudness * user)) < ECHO_THRESHOLD


def test_the_start_of_a_word_is_not_explained_by_chance() -> None:
    detector, user = detector_playing(babble(2.0, 1)), babble(2.0, 12)
    for voiced_ms in (64, 96, 160):
        heard = np.concatenate((np.zeros(RATE, np.float32), user[: voiced_ms * RATE // 1000]))
        assert detector.echo_share(heard, 100.0 + len(heard) / RATE) < ECHO_THRESHOLD


def test_nothing_is_echo_unless_something_plays() -> None:
    sound = babble(2.0, 1)
    assert EchoDetector().echo_share(sound, 100.0) == 0
    detector = detector_playing(sound)
    assert (
        not detector.echo_is_possible(99.5)
        and detector.echo_is_possible(101.0)
        and not detector.echo_is_possible(103.0)
    )
    detector.stop_playback(100.5)
    assert not detector.echo_is_possible(101.5)
    assert detector.echo_share(np.zeros(RATE, np.float32), 100.4) == 0


def test_a_comparison_takes_a_few_milliseconds() -> None:
    """The fastest of ten, measured in the processor time of this thread: other processes take no part in it."""
    sound = babble(2.0, 1)
    detector = detector_playing(sound)
    seconds = []
    for _ in range(10):
        start = time.thread_time()
        detector.echo_share(sound, 101.9)
        seconds.append(time.thread_time() - start)
    assert 0 < min(seconds) < 0.03


async def hear_echo(harness: SessionHarness, seconds: float, user: Samples | None = None) -> None:
    """The microphone records what is played, 150 ms later and quieter, and optionally the user."""
    first_block = round(harness.loop.time() / BLOCK_S)
    for n in range(round(seconds / BLOCK_S)):
        await asyncio.sleep(BLOCK_S)
        sent = [(time, e.samples) for time, e in harness.log if isinstance(e, events.ResponseAudio)]
        echo_start = sent[0][0] + 0.15 if sent else 0.0
        played = np.concatenate((np.zeros(int(echo_start * RATE)), *(resample(s, 24_000, RATE) for _, s in sent)))
        position = int((first_block + n) * BLOCK_S * RATE)
        block = np.zeros(int(BLOCK_S * RATE), np.float32)
        echo = 0.6 * played[position : position + len(block)]
        block[: len(echo)] += echo.astype(np.float32)
        if user is not None:
            block += user[n * len(block) : (n + 1) * len(block)]
        harness.session.append(block, RATE)


def test_a_conversation_is_interrupted_by_the_user_but_not_by_its_own_echo() -> None:
    async def echo_only(harness: SessionHarness) -> None:
        harness.language_model.words, harness.language_model.seconds_per_word = [" word"] * 30, 0.0
        await harness.hear(1.0, 0.5)
        await hear_echo(harness, 2.6)

    harness = run_session(echo_only)
    assert len(harness.events_of(events.SpeechStarted)) == 1
    assert [e.status for e in harness.events_of(events.ResponseDone)] == ["completed"]

    async def echo_and_user(harness: SessionHarness) -> None:
        await echo_only(harness)
        await hear_echo(harness, 0.5, np.random.default_rng(5).uniform(-1, 1, RATE).astype(np.float32))

    assert len(run_session(echo_and_user).events_of(events.SpeechStarted)) == 2

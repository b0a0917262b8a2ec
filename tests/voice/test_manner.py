"""Users who ask for it are spoken to more slowly or louder, from the answer to that on."""

from __future__ import annotations

import numpy as np
import pytest

from agent.words.language import Manner
from tests.voice.fake_tools import FakeTools
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events
from voice.manner import SpeakingManner


def test_a_wish_holds_for_the_rest_of_the_conversation() -> None:
    async def scenario(harness: SessionHarness) -> None:
        for said in ("What is the capital?", "A bit slower, please.", "And of Spain?", "Go faster."):
            harness.recognizer.text = said
            await harness.ask_question(6.0)

    harness = run_session(scenario, tools=FakeTools())
    texts = response_texts(harness)
    assert len({texts[0], texts[1], texts[2]}) == 1 and texts[3] == "Is this better?", "what was too fast is repeated"
    seconds = [
        done.item.audio_ms / 1000 / len(done.item.text.split()) for done in harness.events_of(events.ResponseDone)
    ]
    assert seconds == pytest.approx([0.1, 0.125, 0.125, 0.1], rel=0.02)


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        (("slower",), (0.8, 1.0)), (("faster", "slower"), (1.0, 1.0)), (("louder", "slower", "normal"), (1.0, 1.0)),
        (("slower",) * 9, (0.5, 1.0)), (("faster",) * 9, (1.6, 1.0)), (("quieter",) * 9, (1.0, 0.25)),
    ],
)  # fmt: skip
def test_wishes_add_up_within_limits(wishes: tuple[Manner, ...], expected: tuple[float, float]) -> None:
    manner = SpeakingManner()
    for wish in wishes:
        manner = manner.changed(wish)
    assert (manner.speed, manner.gain) == pytest.approx(expected)


@pytest.mark.parametrize("wishes", [1, 2, 3, 4])
def test_louder_speech_is_not_cut_off_at_its_peaks(wishes: int) -> None:
    speech = np.sin(np.linspace(0, 50, 2000)).astype(np.float32) * np.linspace(0, 1, 2000, dtype=np.float32)
    manner = SpeakingManner()
    for _ in range(wishes):
        manner = manner.changed("louder")
    louder = manner.amplified(speech)
    assert louder.dtype == np.float32 and np.abs(louder).max() < 1
    assert np.all(np.abs(louder) >= np.abs(speech) * 0.85)
    assert np.abs(louder[:500]).max() > 1.5 * np.abs(speech[:500]).max()
    assert len(np.unique(louder[1900:1930])) == 30, "rounded, not clipped"
    assert SpeakingManner().amplified(speech) is speech


def test_the_speed_is_bounded_together_with_that_of_the_settings() -> None:
    slowest = SpeakingManner(speed=0.5)
    assert [slowest.speed_of(own) for own in (1.0, 0.8, 0.25)] == [0.5, 0.5, 0.25]
    assert SpeakingManner().speed_of(0.25) == 0.25 and SpeakingManner(1.6).speed_of(1.5) == 1.6

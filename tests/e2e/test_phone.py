"""A telephone call to the real models: the greeting, the question over the line, and the answer."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from server.calling.carriers import CARRIERS
from server.calling.command import Plan, place
from server.report.corpus import bounds_ms
from tests.e2e.conftest import say, transcribe
from voice.asr import Recognizer
from voice.tts import Voice


@pytest.mark.parametrize("carrier", ["twilio", "vonage"])
async def test_a_question_on_the_telephone_is_answered(
    carrier: str, server: str, voice: Voice, recognizer: Recognizer
) -> None:
    question = say(voice, "What is the capital of France?", before=0.1, after=0.1)
    parameters = {"greeting": "Good morning, this is the bakery."}
    plan = Plan(f"{server.replace('http', 'ws')}/phone", carrier, [(question, bounds_ms(question)[1])], parameters)
    outcome = await asyncio.wait_for(place(plan), 90)
    assert (outcome.refused, outcome.faults) == ("", [])
    assert outcome.latencies_ms[0] is not None
    heard = transcribe(recognizer, np.concatenate(outcome.heard), CARRIERS[carrier].rate)
    assert "bakery" in heard
    assert "Paris" in heard

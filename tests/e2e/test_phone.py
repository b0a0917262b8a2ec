"""A phone call to the real models: the greeting, a question over the telephone, and the response."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from server.cli.call import CallPlan, place_call
from server.report.corpus import bounds_ms
from server.simulator.carriers import CARRIERS
from tests.e2e.conftest import synthesize, transcribe
from voice.asr import Recognizer
from voice.tts import Voice


@pytest.mark.parametrize("carrier", ["twilio", "vonage"])
async def test_a_question_on_the_telephone_is_answered(
    carrier: str, server: str, voice: Voice, recognizer: Recognizer
) -> None:
    question = synthesize(voice, "What is the capital of France?", before=0.1, after=0.1)
    parameters = {"greeting": "Good morning, this is the bakery."}
    plan = CallPlan(f"{server.replace('http', 'ws')}/phone", carrier, [(question, bounds_ms(question)[1])], parameters)
    outcome = await asyncio.wait_for(place_call(plan), 90)
    assert (outcome.refused, outcome.violations) == ("", [])
    assert outcome.latencies_ms[0] is not None
    transcript = transcribe(recognizer, np.concatenate(outcome.received), CARRIERS[carrier].rate)
    assert "bakery" in transcript
    assert "Paris" in transcript

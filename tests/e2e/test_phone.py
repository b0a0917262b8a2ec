"""Phone calls to the real models: the greeting, a question over the telephone, and the response."""

from __future__ import annotations

import asyncio

import numpy as np

from lab.report.corpus import bounds_ms
from lab.simulator.call import CallPlan, place_call
from lab.simulator.carriers import CARRIERS
from tests.e2e.conftest import synthesize, transcribe
from tests.real_time import retried_under_load
from voice.asr import Recognizer
from voice.tts import Voice


@retried_under_load(attempts=3)
async def test_questions_on_two_telephones_are_answered(server: str, voice: Voice, recognizer: Recognizer) -> None:
    """The calls take place at the same time."""
    question = synthesize(voice, "What is the capital of France?", before=0.1, after=0.1)
    parameters = {"greeting": "Good morning, this is the bakery."}
    url, turns = f"{server.replace('http', 'ws')}/phone", [(question, bounds_ms(question)[1])]
    carriers = ("twilio", "vonage")
    outcomes = await asyncio.gather(*(place_call(CallPlan(url, carrier, turns, parameters)) for carrier in carriers))
    for carrier, outcome in zip(carriers, outcomes, strict=True):
        assert (outcome.refused, outcome.violations) == ("", []), carrier
        assert outcome.latencies_ms[0] is not None, carrier
        transcript = transcribe(recognizer, np.concatenate(outcome.received), CARRIERS[carrier].rate)
        assert "bakery" in transcript, carrier
        assert "Paris" in transcript, carrier

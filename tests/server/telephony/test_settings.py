"""Call parameters: what they change, and what happens to invalid ones."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.server.telephony.virtual_call import VirtualCaller, run_call


def test_call_parameters_override_the_settings() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.ask()

    parameters = {
        "greeting": "Welcome aboard.", "persona": "You are a pirate.", "voice": "other", "speed": "1.5",
        "eagerness": "high",
    }  # fmt: skip
    caller = run_call(script, VirtualCaller(**parameters))  # type: ignore[arg-type]
    other: Any = caller.speech_models.voices.find("other")
    assert other.clauses[0] == "Welcome aboard."
    assert " ".join(other.clauses[1:]) == "The capital of France is Paris."
    assert caller.voice.clauses == []
    instructions = caller.language_model.prompts[0][0].content
    assert instructions.startswith("You are a pirate. Everything you write is spoken aloud.")
    assert caller.conversation is not None
    settings = caller.conversation.session.settings
    assert (settings.speed, settings.rules.timing.longest_wait_ms) == (1.5, 450)


def test_invalid_call_parameters_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(0.1)

    caller = run_call(script, VirtualCaller(voice="nobody", speed="fast", eagerness="very", mine="1"))
    assert caller.conversation is not None
    assert caller.conversation.session.settings.speed == 1.0
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 3
    assert "the voice 'nobody' does not exist here: this server has fake, other" in warnings[0]
    assert "speed is 'fast', but must be from 0.25 to 1.5" in warnings[1]

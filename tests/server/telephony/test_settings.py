"""Call parameters: what they change, and what happens to invalid ones."""

from __future__ import annotations

import logging

import pytest

from tests.server.telephony.virtual_call import VirtualCaller, run_call


def test_call_parameters_override_the_settings() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.ask()

    parameters = {"greeting": "Welcome aboard.", "persona": "You are a pirate.", "speed": "1.5", "eagerness": "high"}
    caller = run_call(script, VirtualCaller(**parameters))  # type: ignore[arg-type]
    assert caller.voice.clauses[0] == "Welcome aboard."
    instructions = caller.language_model.prompts[0][0].content
    assert instructions.startswith("You are a pirate. Everything you write is spoken aloud.")
    assert caller.conversation is not None
    settings = caller.conversation.session.settings
    assert (settings.speed, settings.rules.timing.longest_wait_ms) == (1.5, 450)


def test_invalid_call_parameters_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(0.1)

    caller = run_call(script, VirtualCaller(speed="fast", eagerness="very", mine="1"))
    assert caller.conversation is not None
    assert caller.conversation.session.settings.speed == 1.0
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "speed is 'fast', but must be from 0.25 to 1.5" in warnings[0]

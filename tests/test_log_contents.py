"""No line of the log, at any level, holds what people and tools say, or who calls."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.tools.server_tools import ServerTools, ToolSettings
from server.observability.logs import JSONFormatter, RedactingFormatter, Redactor
from tests.fakes import FakeRecognizer, FakeVoice, fake_speech_models
from tests.server.telephony.virtual_call import VirtualCaller, run_call
from voice.asr import Segment
from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.clauses import Clause

SENTENCE = "my grandmother's locker is behind the mill"
ARGUMENT = "behind the mill"
OUTPUT = "the key is under the fern"
NUMBER = "+14155550199"
PRESSED = "4711"
SECRETS = (SENTENCE, ARGUMENT, "grandmother", OUTPUT, "the fern", NUMBER[1:], PRESSED)

TOOLS = f'''
async def find_key(place: str) -> str:
    """Find a key."""
    return "{OUTPUT}"


async def open_locker(place: str) -> str:
    """Open a locker."""
    raise RuntimeError(f"no such locker: {{place}}")
'''


class QuotingRecognizer(FakeRecognizer):
    """Fails once in the middle of each turn, with an error that quotes what was said."""

    def transcribe(self, audio: Samples, *options: Any, **more: Any) -> list[Segment]:
        if len(audio) < RECOGNITION_RATE * 0.9 and np.abs(audio).max(initial=0.0) > 0.1:
            raise RuntimeError(f"cannot align {self.text!r}")
        return super().transcribe(audio, *options, **more)


class QuotingVoice(FakeVoice):
    """Fails with what it should say."""

    def synthesize(self, clause: Clause, *options: Any, **more: Any) -> Samples:
        if self.failing:
            raise RuntimeError(f"cannot pronounce {clause.text!r}")
        return super().synthesize(clause, *options, **more)


def written(records: list[logging.LogRecord]) -> str:
    """The messages, before anything is redacted, and the lines as they are written."""
    formatters = [RedactingFormatter(inner, Redactor()) for inner in (logging.Formatter(), JSONFormatter())]
    lines = [text for record in records for text in (record.getMessage(), *(one.format(record) for one in formatters))]
    return "\n".join(lines)


def test_a_call_with_tools_and_programs_leaves_none_of_its_words_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def to_thread(function: Any, *args: Any) -> Any:
        return function(*args)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)  # threads know nothing of the virtual clock
    caplog.set_level(logging.DEBUG)
    (tmp_path / "locker.py").write_text(TOOLS)

    async def script(caller: VirtualCaller) -> None:
        model, stream = caller.language_model, caller.carrier.stream_id
        await caller.listen(0.1)
        for frame in (
            {"event": f"say {SENTENCE}", "streamSid": stream},
            {"event": "dtmf", "streamSid": stream, "dtmf": {"digit": PRESSED}},
            {"event": "dtmf", "streamSid": PRESSED, "dtmf": {"digit": "4"}},
            {"event": "media", "streamSid": stream, "media": {"payload": SENTENCE}},
        ):
            caller.reply(json.dumps(frame))
        for name in ("find_key", "open_locker"):
            model.calls = [(name, json.dumps({"place": ARGUMENT}))]
            await caller.ask()
        model.calls, model.programs = [], {SENTENCE: [f"open_locker({ARGUMENT!r}", f"ask({SENTENCE!r})"]}
        await caller.ask()
        caller.press(PRESSED)
        await caller.listen(5.0)
        model.programs, model.words, caller.voice.failing = {}, [SENTENCE], True
        await caller.ask()
        caller.reply(f"hello, {SENTENCE}, from {NUMBER}")  # no JSON: the call ends
        await caller.listen(0.5)

    caller = VirtualCaller("twilio", None, **{"from": NUMBER})
    caller.voice = QuotingVoice()
    caller.speech_models = fake_speech_models(QuotingRecognizer(SENTENCE), caller.voice)
    caller.context = {"tools": ServerTools(ToolSettings((tmp_path / "locker.py",), data=tmp_path))}
    run_call(script, caller)
    assert caller.closed is not None and caller.closed[0] == 1007
    text = written(caplog.records)
    assert [secret for secret in SECRETS if secret in text] == []
    for expected in (
        "begins, with the caller's number",
        f"an unknown event {len(SENTENCE) + 4} characters",
        "a DTMF message with 4 characters",
        "a media message whose payload is not base64",
        "an interim transcript failed (RuntimeError)",
        f"called find_key(place: {len(ARGUMENT)} characters), which returned {len(OUTPUT)} characters",
        "open_locker failed (RuntimeError)",
        "the program for a task",
        "a response failed",
        "this frame is not JSON: ",
    ):
        assert expected in text, expected

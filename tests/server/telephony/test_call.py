"""Whole calls on a virtual clock: questions, interruptions, echo, keys, silence, time limits and function calls."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from typing import Any

import numpy as np
import pytest

from lab.simulator.carriers import CARRIERS, REPORT_FUNCTIONS, CalledFunction, HangUp
from server.realtime.conversation import MAX_EVENT_BYTES
from server.realtime.events import server_event
from server.telephony.announcements import Announcements
from server.telephony.call import Call
from server.telephony.carriers.json_stream import Twilio
from server.telephony.dialect import CallStarted, Frame
from server.telephony.settings import CallSettings
from tests.fakes import run_on_virtual_clock
from tests.server.realtime.test_response_writer import ARGUMENTS, WEATHER
from tests.server.telephony.virtual_call import VirtualCaller, run_call
from tests.voice.session_harness import run_session
from voice.audio.codec import encode
from voice.events import ResponseAudio

RAIN = CalledFunction("get_weather", ARGUMENTS, "Rain.")


@pytest.mark.parametrize("name", CARRIERS)
def test_a_question_is_answered_over_every_carrier(name: str) -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.ask()
        assert caller.history == [
            ("user", "What is the capital of France?"),
            ("assistant", "The capital of France is Paris."),
        ]

    caller = run_call(script, VirtualCaller(name))
    assert caller.heard_s == pytest.approx(0.6, abs=0.21 if name == "exotel" else 0.03)
    assert caller.closed is not None
    assert caller.closed[0] == 1000
    assert [e for e in caller.events if e.type == "error"] == []


@pytest.mark.parametrize("name", CARRIERS)
def test_the_telephone_adds_at_most_150_ms_to_a_response(name: str) -> None:
    """A session hears the end of the words at once, and its first audio is played at once; a telephone adds the jitter
    buffer and its chunks."""
    caller = run_call(lambda caller: caller.ask(), VirtualCaller(name))
    audible_at = next(start for start, _, loud in caller.chunks if loud)
    harness = run_session(lambda harness: harness.ask_question(3.0))
    assert 0 < audible_at - caller.words_end < harness.time_of(ResponseAudio) - 1.0 + 0.15


def test_simultaneous_calls_keep_their_clocks_although_one_carrier_stops_reading() -> None:
    """A call that waited for another one would have gaps."""

    class StopsReading(VirtualCaller):
        async def send(self, frame: Frame) -> None:
            if self.chunks:
                await asyncio.sleep(1e6)
            await super().send(frame)

    async def script(caller: VirtualCaller) -> None:
        caller.language_model.words = [f" word{n}" for n in range(40)]
        await caller.speak(1.0)
        await caller.listen(6.0)

    async def run() -> list[VirtualCaller]:
        callers = [VirtualCaller(name) for name in (*CARRIERS, "twilio")]
        await asyncio.gather(*(caller.run(script) for caller in (*callers, StopsReading())))
        return callers

    for caller in run_on_virtual_clock(run):
        assert caller.heard_s == pytest.approx(4.0, abs=0.21), caller.carrier.name
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(caller.chunks)]
        assert max(gaps) < 0.001, caller.carrier.name


# Interruptions.


def test_an_interruption_clears_the_carrier_and_truncates_history_at_the_last_mark_played() -> None:
    async def script(caller: VirtualCaller) -> None:
        caller.language_model.words = [f" word{n}" for n in range(40)]
        caller.language_model.seconds_per_word = 0.001
        await caller.speak(1.0)
        while not caller.chunks:
            await caller.listen(0.02)
        await caller.listen(1.0)
        await caller.speak(0.6)
        await caller.listen(0.1)
        assert caller.clears == 1
        heard = caller.heard_s
        (response,) = [text for role, text in caller.history if role == "assistant"]
        # Ten words a second. The last mark is up to 100 ms old, and a word counts once it was heard to its end.
        assert 10 * heard - 3 <= len(response.split()) <= 10 * heard
        await caller.listen(0.5)

    caller = run_call(script)
    truncated = [e for e in caller.events if e.type == "conversation.item.truncated"]
    assert truncated[0].model_extra is not None
    assert truncated[0].model_extra["audio_end_ms"] % 100 == 0


def test_history_keeps_the_part_of_an_interrupted_greeting_that_was_heard() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(0.5)
        await caller.speak(0.5)
        await caller.listen(3.0)
        role, text = caller.history[0]
        assert role == "assistant"
        # Interrupted at 0.5 s, which is detected about 0.1 s later.
        assert text in ("one two three four", "one two three four five")

    settings = CallSettings(greeting="one two three four five six seven eight nine ten eleven twelve.")
    caller = run_call(script, VirtualCaller(settings=settings))
    assert caller.clears == 1
    assert caller.history[1][0] == "user"


def test_a_response_resumes_after_a_backchannel() -> None:
    async def script(caller: VirtualCaller) -> None:
        caller.language_model.words = [f" word{n}" for n in range(40)]
        caller.language_model.seconds_per_word = 0.001
        await caller.speak(1.0)
        await caller.listen(2.0)
        caller.speech_models.recognizer.text = "Mhm."  # type: ignore[attr-defined]
        await caller.speak(0.4)
        await caller.listen(5.0)

    caller = run_call(script)
    assert caller.clears == 1
    words = " ".join(text for role, text in caller.history if role == "assistant").split()
    assert words == [f"word{n}" for n in range(40)]
    # Heard twice: the audio after the last mark, and the word that was interrupted.
    assert 4.0 <= caller.heard_s <= 4.5


@pytest.mark.parametrize("speaks", [True, False])
def test_a_greeting_that_is_still_being_synthesized_is_not_played_over_a_caller_who_speaks(speaks: bool) -> None:
    class SlowAnnouncements(Announcements):
        async def audio(self, *args: Any) -> bytes:
            await asyncio.sleep(0.8)
            return await super().audio(*args)

    async def script(caller: VirtualCaller) -> None:
        await (caller.speak(2.0) if speaks else caller.listen(2.0))
        assert bool(caller.heard_s) != speaks
        await caller.listen(20.0)

    settings = CallSettings(greeting="one two three.", silence_prompts=(), silence_timeout_s=12)
    caller = VirtualCaller(settings=settings)
    caller.announcements = SlowAnnouncements(caller.speech_models)
    assert (("assistant", "one two three.") in run_call(script, caller).history) != speaks
    assert " ".join(caller.voice.clauses).endswith(settings.silence_farewell)  # which nothing drops
    assert caller.closed == (1000, "the caller was silent")


# Echo.


def test_the_echo_of_a_greeting_is_not_taken_for_the_caller() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(2.5)
        assert caller.history == [("assistant", caller.settings.greeting)]
        caller.echo = 0.0
        await caller.ask()
        assert caller.history[1:] == [
            ("user", "What is the capital of France?"),
            ("assistant", "The capital of France is Paris."),
        ]

    settings = CallSettings(greeting="one two three four five six seven eight nine ten eleven twelve.")
    caller = VirtualCaller(settings=settings)
    caller.echo = 0.9
    assert run_call(script, caller).clears == 0


def test_the_echo_of_a_response_after_an_interrupted_greeting_is_recognized() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(0.5)
        caller.press("1")  # three and a half seconds of the greeting are never played
        caller.language_model.words = [f" word{n}" for n in range(12)]
        await caller.listen(4.0)

    caller = VirtualCaller(settings=CallSettings(greeting=" ".join(["word"] * 40)))
    caller.echo = 0.9
    run_call(script, caller)
    assert caller.clears == 1
    assert [e for e in caller.events if e.type == "input_audio_buffer.speech_started"] == []


# Keys.


def test_a_sequence_of_keys_becomes_one_message_and_gets_a_response() -> None:
    async def script(caller: VirtualCaller) -> None:
        caller.press("42")
        await caller.listen(0.5)
        caller.press("7#")
        await caller.listen(2.0)
        assert caller.history[0] == ("system", "The caller pressed 4 2 7 hash on the telephone's keys.")

    assert run_call(script).history[1] == ("assistant", "The capital of France is Paris.")


def test_a_key_is_an_event_for_clients_that_ask_for_it() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(0.1)
        assert caller.conversation is not None
        update = {"type": "session.update", "session": {"include": ["rejoinder.dtmf", "rejoinder.phase"]}}
        await caller.conversation.receive(json.dumps(update))
        caller.press("5")
        await caller.listen(0.1)

    pressed = [e.model_extra for e in run_call(script).events if e.type == "rejoinder.dtmf"]
    assert [fields["digit"] for fields in pressed if fields] == ["5"]


def test_a_key_interrupts_a_response() -> None:
    async def script(caller: VirtualCaller) -> None:
        caller.language_model.words = [f" word{n}" for n in range(100)]
        await caller.speak(1.0)
        await caller.listen(2.5)
        caller.language_model.words = [" Done."]
        caller.press("1#")
        await caller.listen(2.0)
        assert caller.clears == 1
        assert caller.history[-1] == ("assistant", "Done.")

    caller = run_call(script)
    done = [e.model_extra["response"]["status"] for e in caller.events if e.type == "response.done" and e.model_extra]
    assert done[-1] == "completed"


@pytest.mark.parametrize("seconds_per_word", [0.08, 0.001])
def test_keys_interrupt_a_response_that_began_after_them_and_get_their_own(seconds_per_word: float) -> None:
    """The caller says "my code is", and types it: the response to the words begins before the keys are complete."""

    async def script(caller: VirtualCaller) -> None:
        caller.language_model.words = [f" word{n}" for n in range(40)]
        caller.language_model.seconds_per_word = seconds_per_word
        await caller.speak(1.0)
        caller.press("42")
        await caller.listen(1.4)
        assert caller.chunks
        caller.language_model.words = [" Thank", " you."]
        await caller.listen(3.0)
        assert [role for role, _ in caller.history] == ["user", "assistant", "system", "assistant"]
        assert len(caller.history[1][1].split()) < 20
        assert caller.history[2:] == [
            ("system", "The caller pressed 4 2 on the telephone's keys."),
            ("assistant", "Thank you."),
        ]

    caller = run_call(script)
    assert caller.clears == 1
    assert [event for event in caller.events if event.type == "error"] == []


def test_a_key_stops_a_response_that_pauses_for_a_cough() -> None:
    async def script(caller: VirtualCaller) -> None:
        caller.language_model.words = [f" word{n}" for n in range(80)]
        await caller.ask()
        await caller.listen(0.5)
        caller.speech_models.recognizer.text = "mhm"
        await caller.speak(0.3)
        caller.press("7")
        caller.language_model.words = [" Thank", " you."]
        await caller.listen(6.0)
        assert [role for role, _ in caller.history[-2:]] == ["system", "assistant"]
        assert [number for number, (_, text) in enumerate(caller.history) if "word" in text] == [1], "it goes on"

    run_call(script)


# Silence and time.


def test_a_silent_caller_is_prompted_and_then_hung_up_on() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(30)

    settings = CallSettings(
        greeting="",
        silence_prompts=("Hello?", "Still there?"),
        silence_timeout_s=5,
        silence_farewell="Goodbye then.",
    )
    caller = run_call(script, VirtualCaller(settings=settings))
    assert caller.voice.clauses == ["Hello?", "Still there?", "Goodbye then."]
    assert caller.closed == (1000, "the caller was silent")


def test_a_caller_who_speaks_is_not_prompted() -> None:
    async def script(caller: VirtualCaller) -> None:
        for _ in range(5):
            await caller.ask()

    settings = CallSettings(greeting="", silence_prompts=("Hello?",), silence_timeout_s=3.5)
    assert "Hello?" not in run_call(script, VirtualCaller(settings=settings)).voice.clauses


def test_a_call_ends_at_its_time_limit_even_during_a_response() -> None:
    async def script(caller: VirtualCaller) -> None:
        caller.language_model.words = [f" word{n}" for n in range(400)]
        await caller.speak(1.0)
        await caller.listen(20)

    settings = CallSettings(greeting="", max_duration_s=10, time_limit_farewell="Time is up.")
    caller = run_call(script, VirtualCaller(settings=settings))
    assert caller.voice.clauses[-1] == "Time is up."
    assert caller.closed == (1000, "the time limit of 10 s was reached")


def test_the_server_hangs_up_with_the_carriers_own_command() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.listen(10)

    settings = CallSettings(greeting="", silence_prompts=(), silence_timeout_s=2, silence_farewell="Bye.")
    assert isinstance(run_call(script, VirtualCaller("audiosocket", settings)).commands[-1], HangUp)


# The caller's audio.


def test_a_carrier_that_stops_sending_audio_does_not_keep_a_turn_open() -> None:
    async def script(caller: VirtualCaller) -> None:
        await caller.speak(1.0)
        await asyncio.sleep(4)

    caller = run_call(script)
    assert caller.heard_s > 0.4


def test_frames_that_arrive_out_of_order_are_reordered() -> None:
    async def script(caller: VirtualCaller) -> None:
        block = np.full(160, 0.5, np.float32)
        frames = [caller.carrier.audio(encode(block, "pcmu")) for _ in range(50)]
        for n in range(1, 49, 2):
            frames[n], frames[n + 1] = frames[n + 1], frames[n]
        for frame in frames:
            caller.reply(frame)
            await asyncio.sleep(0.02)
        await caller.listen(3)

    assert run_call(script, VirtualCaller("telnyx")).heard_s > 0.4


def test_a_frame_with_more_audio_than_a_client_event_may_have_is_dropped() -> None:
    async def script(caller: VirtualCaller) -> None:
        caller.reply(caller.carrier.audio(encode(np.full(MAX_EVENT_BYTES, 0.5, np.float32), "pcmu")))
        await caller.listen(3)
        assert caller.history == []
        await caller.ask()

    assert run_call(script).heard_s > 0.4


async def ask_for_the_weather(caller: VirtualCaller) -> None:
    """The caller asks, the assistant calls a function, and its result is spoken."""
    await caller.listen(0.1)
    assert caller.conversation is not None

    async def send(type: str, **fields: Any) -> None:
        assert caller.conversation is not None
        await caller.conversation.receive(json.dumps({"type": type, **fields}))

    caller.language_model.calls = [("get_weather", ARGUMENTS)]
    await send("session.update", session={"type": "realtime", "tools": [WEATHER]})
    await caller.ask()
    (call,) = [event for event in caller.events if event.type == "response.function_call_arguments.done"]
    output = {"type": "function_call_output", "call_id": (call.model_extra or {})["call_id"], "output": "Rain."}
    await send("conversation.item.create", item=output)
    await send("response.create")
    await caller.listen(3.0)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_function_call_is_logged_and_reported_to_a_phone_that_asks(
    carrier: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rejoinder.phone")
    caller = run_call(ask_for_the_weather, VirtualCaller(carrier, **REPORT_FUNCTIONS))  # type: ignore[arg-type]
    assert caller.functions == ([] if carrier == "audiosocket" else [RAIN])  # which has no frames of text
    logged = [record.getMessage() for record in caplog.records if "get_weather" in record.getMessage()]
    assert len(logged) == 1
    assert logged[0].endswith("called get_weather(city: 4 characters), which returned 5 characters")
    assert caller.heard_s > 0.5


def test_calls_of_mcp_tools_carry_their_output_or_what_went_wrong() -> None:
    item = {"type": "mcp_call", "name": "dim", "arguments": "{}", "output": "Done.", "error": None}
    failed = {**item, "output": None, "error": {"type": "http_error", "message": "HTTP status 500"}}
    call = Call(Twilio(), CallStarted("CA1"), CallSettings(), 0.0)
    for one in (item, failed):
        call.on_server_event(server_event("conversation.item.done", item=one), 0.0)
    assert [called.output for called in call.called_functions] == ["Done.", "HTTP status 500"]


def test_a_carrier_gets_no_frame_that_it_does_not_know() -> None:
    assert run_call(ask_for_the_weather).functions == []

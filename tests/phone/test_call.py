"""A call with a conversation behind it, on a virtual clock: greeting, turns, interruption, keys, silence, time."""

from __future__ import annotations

import asyncio
import json
import logging

import numpy as np
import pytest

from server.calling.carriers import CARRIERS, HangUp
from server.phone import line as line_module
from server.phone.dialects import recognised
from server.phone.line import Line
from server.phone.prompts import Prompts
from server.phone.rules import CallRules
from server.phone.wire import Frame
from tests.fakes import LoudnessDetector, virtually
from tests.phone.caller import Caller, call
from voice import session
from voice.audio import encode


@pytest.fixture(autouse=True)
def _loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


@pytest.mark.parametrize("name", CARRIERS)
def test_a_question_is_answered_over_every_carrier(name: str) -> None:
    async def work(caller: Caller) -> None:
        await caller.ask()
        assert caller.told == [
            ("user", "What is the capital of France?"),
            ("assistant", "The capital of France is Paris."),
        ]

    caller = call(work, Caller(name))
    assert caller.heard_s == pytest.approx(0.6, abs=0.21 if name == "exotel" else 0.03)
    assert caller.closed is not None
    assert caller.closed[0] == 1000
    assert [e for e in caller.events if e.type == "error"] == []


def test_the_greeting_is_heard_and_known_and_rendered_once_for_all_calls() -> None:
    async def work(caller: Caller) -> None:
        await caller.listen(1.5)
        assert caller.told == [("assistant", "Hello there, friend.")]

    async def two() -> tuple[Caller, Caller]:
        first = Caller(rules=CallRules(greeting="Hello there, friend."))
        await first.run(work)
        second = Caller(rules=CallRules(greeting="Hello there, friend."))
        second.prompts = first.prompts
        await second.run(work)
        return first, second

    first, second = virtually(two)
    assert [first.heard_s, second.heard_s] == pytest.approx([0.3, 0.3], abs=0.02)
    assert first.voice.said == ["Hello there,", "friend."]
    assert second.voice.said == []


def test_an_interruption_clears_the_carrier_and_cuts_history_at_the_last_mark_played() -> None:
    async def work(caller: Caller) -> None:
        caller.brain.words = [f" word{n}" for n in range(40)]
        caller.brain.pace = 0.001
        await caller.speak(1.0)
        while not caller.pieces:
            await caller.listen(0.02)
        await caller.listen(1.0)
        await caller.speak(0.6)
        await caller.listen(0.1)
        assert caller.clears == 1
        heard = caller.heard_s
        (said,) = [text for role, text in caller.told if role == "assistant"]
        # Ten words a second; the mark is up to 100 ms behind, and a word counts when it was heard to its end.
        assert 10 * heard - 3 <= len(said.split()) <= 10 * heard
        await caller.listen(0.5)

    caller = call(work)
    truncated = [e for e in caller.events if e.type == "conversation.item.truncated"]
    assert truncated[0].model_extra is not None
    assert truncated[0].model_extra["audio_end_ms"] % 100 == 0


def test_an_interrupted_greeting_is_known_as_far_as_it_was_heard() -> None:
    async def work(caller: Caller) -> None:
        await caller.listen(0.5)
        await caller.speak(0.5)
        await caller.listen(3.0)
        role, said = caller.told[0]
        assert role == "assistant"
        # Interrupted at 0.5 s, which is noticed some 0.1 s later.
        assert said in ("one two three four", "one two three four five")

    rules = CallRules(greeting="one two three four five six seven eight nine ten eleven twelve.")
    caller = call(work, Caller(rules=rules))
    assert caller.clears == 1
    assert caller.told[1][0] == "user"


def test_a_greeting_that_comes_back_as_an_echo_is_not_taken_for_the_caller() -> None:
    async def work(caller: Caller) -> None:
        await caller.listen(2.5)
        assert caller.told == [("assistant", caller.rules.greeting)]
        caller.echo = 0.0
        await caller.ask()
        assert caller.told[1:] == [
            ("user", "What is the capital of France?"),
            ("assistant", "The capital of France is Paris."),
        ]

    echoing = Caller(rules=CallRules(greeting="one two three four five six seven eight nine ten eleven twelve."))
    echoing.echo = 0.9
    assert call(work, echoing).clears == 0


def test_the_echo_of_an_answer_behind_an_interrupted_greeting_is_known_in_its_place() -> None:
    async def work(caller: Caller) -> None:
        await caller.listen(0.5)
        caller.press("1")  # three seconds and a half of the greeting are never played
        caller.brain.words = [f" word{n}" for n in range(12)]
        await caller.listen(4.0)

    echoing = Caller(rules=CallRules(greeting=" ".join(["word"] * 40)))
    echoing.echo = 0.9
    caller = call(work, echoing)
    assert caller.clears == 1
    assert [e for e in caller.events if e.type == "input_audio_buffer.speech_started"] == []


def test_an_answer_goes_on_behind_a_mhm() -> None:
    async def work(caller: Caller) -> None:
        caller.brain.words = [f" word{n}" for n in range(40)]
        caller.brain.pace = 0.001
        await caller.speak(1.0)
        await caller.listen(2.0)
        caller.stages.recognizer.text = "Mhm."  # type: ignore[attr-defined]
        await caller.speak(0.4)
        await caller.listen(5.0)

    caller = call(work)
    assert caller.clears == 1
    said = " ".join(text for role, text in caller.told if role == "assistant").split()
    assert said == [f"word{n}" for n in range(40)]
    # Heard twice: what was said behind the last mark, and the word that was broken off.
    assert 4.0 <= caller.heard_s <= 4.5


def test_parameters_of_the_call_change_how_it_is_held() -> None:
    async def work(caller: Caller) -> None:
        await caller.ask()

    caller = call(work, Caller(greeting="Welcome aboard.", persona="You are a pirate.", speed="1.5", eagerness="high"))
    assert caller.voice.said[0] == "Welcome aboard."
    assert caller.brain.prompts[0][0].content.startswith("You are a pirate. Everything you write is spoken aloud.")
    assert caller.conversation is not None
    settings = caller.conversation.session.settings
    assert (settings.speed, settings.rules.timing.longest_wait_ms) == (1.5, 450)


def test_parameters_that_make_no_sense_are_said_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def work(caller: Caller) -> None:
        await caller.listen(0.1)

    caller = call(work, Caller(speed="fast", eagerness="very", mine="1"))
    assert caller.conversation is not None
    assert caller.conversation.session.settings.speed == 1.0
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 2
    assert "speed is 'fast' and may be 0.25 to 1.5" in said[0]


def test_keys_are_told_to_the_model_together_and_answered() -> None:
    async def work(caller: Caller) -> None:
        caller.press("42")
        await caller.listen(0.5)
        caller.press("7#")
        await caller.listen(2.0)
        assert caller.told[0] == ("system", "The caller pressed 4 2 7 hash on the telephone's keys.")

    assert call(work).told[1] == ("assistant", "The capital of France is Paris.")


def test_a_key_is_an_event_for_who_asks_for_it() -> None:
    async def work(caller: Caller) -> None:
        await caller.listen(0.1)
        assert caller.conversation is not None
        wanted = {"type": "session.update", "session": {"include": ["rejoinder.dtmf", "rejoinder.phase"]}}
        await caller.conversation.receive(json.dumps(wanted))
        caller.press("5")
        await caller.listen(0.1)

    pressed = [e.model_extra for e in call(work).events if e.type == "rejoinder.dtmf"]
    assert [fields["digit"] for fields in pressed if fields] == ["5"]


def test_a_key_stops_what_is_being_said() -> None:
    async def work(caller: Caller) -> None:
        caller.brain.words = [f" word{n}" for n in range(100)]
        await caller.speak(1.0)
        await caller.listen(2.5)
        caller.brain.words = [" Done."]
        caller.press("1#")
        await caller.listen(2.0)
        assert caller.clears == 1
        assert caller.told[-1] == ("assistant", "Done.")

    caller = call(work)
    done = [e.model_extra["response"]["status"] for e in caller.events if e.type == "response.done" and e.model_extra]
    assert done[-1] == "completed"


def test_who_says_nothing_is_asked_and_then_hung_up_on() -> None:
    async def work(caller: Caller) -> None:
        await caller.listen(30)

    rules = CallRules(greeting="", prompts=("Hello?", "Still there?"), silence_s=5, unheard="Goodbye then.")
    caller = call(work, Caller(rules=rules))
    assert caller.voice.said == ["Hello?", "Still there?", "Goodbye then."]
    assert caller.closed == (1000, "nobody says anything")


def test_who_speaks_is_not_asked() -> None:
    async def work(caller: Caller) -> None:
        for _ in range(5):
            await caller.ask()

    rules = CallRules(greeting="", prompts=("Hello?",), silence_s=3.5)
    assert "Hello?" not in call(work, Caller(rules=rules)).voice.said


def test_a_call_ends_when_its_time_is_over_even_in_the_middle_of_an_answer() -> None:
    async def work(caller: Caller) -> None:
        caller.brain.words = [f" word{n}" for n in range(400)]
        await caller.speak(1.0)
        await caller.listen(20)

    caller = call(work, Caller(rules=CallRules(greeting="", longest_s=10, too_long="Time is up.")))
    assert caller.voice.said[-1] == "Time is up."
    assert caller.closed == (1000, "its 10 s are over")


def test_the_server_hangs_up_the_way_the_carrier_wants_it() -> None:
    async def work(caller: Caller) -> None:
        await caller.listen(10)

    rules = CallRules(greeting="", prompts=(), silence_s=2, unheard="Bye.")
    assert isinstance(call(work, Caller("audiosocket", rules)).orders[-1], HangUp)


def test_a_line_that_falls_silent_does_not_keep_a_turn_open() -> None:
    async def work(caller: Caller) -> None:
        await caller.speak(1.0)
        await asyncio.sleep(4)

    caller = call(work)
    assert caller.heard_s > 0.4


def test_frames_that_overtake_each_other_are_put_in_order() -> None:
    async def work(caller: Caller) -> None:
        block = np.full(160, 0.5, np.float32)
        frames = [caller.carrier.sound(encode(block, "pcmu")) for _ in range(50)]
        for n in range(1, 49, 2):
            frames[n], frames[n + 1] = frames[n + 1], frames[n]
        for frame in frames:
            caller.reply(frame)
            await asyncio.sleep(0.02)
        await caller.listen(3)

    assert call(work, Caller("telnyx")).heard_s > 0.4


def test_a_voice_that_breaks_costs_the_greeting_and_not_the_call() -> None:
    async def work(caller: Caller) -> None:
        caller.voice.failing = True
        await caller.listen(0.5)
        caller.voice.failing = False
        await caller.ask()

    caller = call(work, Caller(rules=CallRules(greeting="Hello.")))
    assert caller.told[-1] == ("assistant", "The capital of France is Paris.")


# What is wrong with a call.


def test_a_carrier_that_never_says_start_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> Caller:
        caller = Caller()
        caller.reply('{"event": "connected"}')
        await Line(caller, "test", caller.rules, Prompts(caller.stages), caller.begin).run(recognised)
        return caller

    caller = virtually(run)
    assert caller.closed == (1008, "no start came within 10 s")
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("frame", "code"),
    [("{nonsense", 1007), ("[]", 1007), (b"\x00", 1007)],
)
def test_malformed_messages_end_a_call_with_the_code_for_it(
    frame: Frame, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(caller: Caller) -> None:
        await caller.listen(0.1)
        caller.reply(frame)
        await caller.listen(0.2)

    caller = call(work)
    assert caller.closed is not None
    assert caller.closed[0] == code
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


@pytest.mark.parametrize("what", ["unknown event", "unknown stream", "no base64"])
def test_what_makes_no_sense_is_logged_once_and_bounded(what: str, caplog: pytest.LogCaptureFixture) -> None:
    sound = json.loads(CARRIERS["twilio"]({}).sound(bytes(160)))
    bad = {
        "unknown event": {"event": "dance"},
        "unknown stream": {**sound, "streamSid": "MZ0"},
        "no base64": {**sound, "media": {"payload": "%"}},
    }[what]

    async def work(caller: Caller) -> None:
        for _ in range(150):
            caller.reply(json.dumps({**bad, "streamSid": bad.get("streamSid") or caller.carrier.stream}))
        await caller.ask()
        assert caller.heard_s > 0.4
        for _ in range(250):
            caller.reply(json.dumps({**bad, "streamSid": bad.get("streamSid") or caller.carrier.stream}))
        await caller.listen(0.5)

    caller = call(work)
    assert caller.closed is not None
    assert caller.closed[0] == 1008
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 2  # the first of them, and the end


def test_a_carrier_that_does_not_read_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "_UNREAD_FRAMES", 50)

    class Deaf(Caller):
        async def send(self, frame: Frame) -> None:
            await asyncio.sleep(1e6)

    async def work(caller: Caller) -> None:
        caller.brain.words = [f" word{n}" for n in range(400)]
        await caller.speak(1.0)
        await caller.listen(20)

    caller = call(work, Deaf())
    assert caller.closed == (1013, "the carrier does not read")


def test_a_stop_in_the_middle_of_an_answer_ends_everything() -> None:
    async def work(caller: Caller) -> None:
        caller.brain.words = [f" word{n}" for n in range(400)]
        await caller.speak(1.0)
        await caller.listen(1.0)

    caller = call(work)
    assert caller.closed == (1000, "the caller hung up")
    assert caller.brain.cancelled

"""Clauses, history, timeline, and the guards around transcription."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice.asr import GivenUp, Partial, Recognizer, Segment, Utterance, Window, without_loops
from voice.audio import HEARING_RATE, Samples
from voice.clauses import ClauseSplitter, speakable
from voice.history import History, Item, Span, UnknownItem
from voice.timeline import Timeline, percentile


def split(text: str, size: int = 3) -> list[str]:
    """Clauses of a text that comes a few letters at a time."""
    splitter, clauses = ClauseSplitter(), []
    for start in range(0, len(text), size):
        clauses += splitter.push(text[start : start + size])
    return [clause.text for clause in clauses + splitter.flush()]


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Paris. It lies on the Seine.", ["Paris.", " It lies on the Seine."]),
        ("Well, it is Paris.", ["Well,", " it is Paris."]),
        ("The capital of France is Paris.", ["The capital of France", " is Paris."]),
        ("About 3.5 million people live there.", ["About 3.5 million people", " live there."]),
        ("Yes. Dr. Smith and Mr. J. Jones know.", ["Yes.", " Dr. Smith and Mr. J. Jones", " know."]),
        ("No. Tomatoes are fruits.", ["No.", " Tomatoes are fruits."]),
        ("It is 5 p.m. in Lisbon.", ["It is 5 p.m. in Lisbon."]),
        ("I have eighteen cats at home.", ["I have eighteen cats", " at home."]),
        ("Sure! One, two, three.", ["Sure!", " One, two, three."]),
        (
            "Good. When you have boiled the water, add the eggs and wait.",
            ["Good.", " When you have boiled", " the water, add the eggs and wait."],
        ),
        ("", []),
        ("Hi", ["Hi"]),
    ],
)
def test_clauses_end_where_a_speaker_would_breathe(text: str, clauses: list[str]) -> None:
    assert split(text) == clauses


def test_the_first_clause_comes_early_and_a_long_one_is_cut() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("Water boils at ") == []
    (first,) = splitter.push("sea level temperatures around ")
    assert first.text == "Water boils at sea"
    cut = splitter.push("word " * 70)
    assert [len(clause.text.split()) for clause in cut] == [10, 24, 24]  # each while what is before it is spoken
    assert not any(clause.ends_sentence for clause in cut)


@given(st.text(alphabet="ab .,!?\n—1", max_size=200), st.integers(1, 9))
def test_clauses_joined_are_the_text_letter_for_letter(text: str, size: int) -> None:
    assert "".join(split(text, size)) == text


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("**Paris** is *nice*", "Paris is nice"),
        ("# Answer\n- one\n- two", "Answer one two"),
        ("see [the docs](http://x.y/z)", "see the docs"),
        ("`code` & 5% more 🙂!", "code and 5 percent more!"),
        ("1. First", "First"),
        ("***", ""),
        ("=====", "equals"),
        ("It is 20 °C.", "It is 20 degrees Celsius."),
    ],
)
def test_markup_is_not_read_aloud(written: str, said: str) -> None:
    assert speakable(written) == said


def answer(*clauses: tuple[str, float]) -> Item:
    item, at = Item("a", "assistant", complete=True), 0.0
    for text, length in clauses:
        item.spans.append(Span(text, at, at + length))
        item.text += text
        at += length
    return item


def test_history_keeps_only_the_words_that_were_heard() -> None:
    history = History()
    history.add(answer(("The capital of France", 1000), (" is Paris.", 500)))
    said = {}
    for heard_ms in (0, 249, 500, 1000, 1300, 1500):
        history.truncate("a", heard_ms)
        said[heard_ms] = history.get("a").heard
    assert said == {
        0: "",
        249: "The",
        500: "The",
        1000: "The capital of France",
        1300: "The capital of France is",
        1500: "The capital of France is Paris.",
    }


@given(st.floats(0, 3000), st.floats(0, 3000))
def test_more_time_never_means_fewer_words(a: float, b: float) -> None:
    item = answer(("One two three four", 1200), (" five six,", 700), (" seven.", 1100))
    heard = []
    for item.heard_ms in sorted((a, b)):
        heard.append(item.heard)
    assert heard[1].startswith(heard[0])
    assert item.text.startswith(heard[1])


def test_what_was_never_heard_is_not_told_to_the_model() -> None:
    history = History()
    history.add(Item("u", "user", "Hello"))
    history.add(answer(("Hi there.", 800)))
    history.truncate("a", 0)
    assert [(m.role, m.content) for m in history.messages("Be kind.")] == [("system", "Be kind."), ("user", "Hello")]


def test_items_have_their_places() -> None:
    history = History()
    assert history.add(Item("1", "user")) is None
    assert history.add(Item("2", "user")) == "1"
    assert history.add(Item("0", "system"), after="root") is None
    assert history.add(Item("1b", "user"), after="1") == "1"
    assert [item.id for item in history.items] == ["0", "1", "1b", "2"]
    history.delete("1")
    assert [item.id for item in history.items] == ["0", "1b", "2"]
    for wrong in (lambda: history.get("9"), lambda: history.delete("9"), lambda: history.add(Item("x", "user"), "9")):
        with pytest.raises(UnknownItem, match="no item '9'"):
            wrong()
    with pytest.raises(ValueError, match="in the conversation already"):
        history.add(Item("2", "user"))


def test_truncating_needs_an_answer_that_is_long_enough() -> None:
    history = History()
    history.add(Item("u", "user", "Hello"))
    history.add(answer(("Hi.", 800)))
    with pytest.raises(ValueError, match="is no spoken answer"):
        history.truncate("u", 0)
    with pytest.raises(ValueError, match="has 800 ms of audio, less than 801 ms"):
        history.truncate("a", 801)


def test_a_timeline_adds_up() -> None:
    timeline = Timeline("turn_1")
    names = [
        "speech_end",
        "soft_end",
        "transcript_final",
        "first_committed",
        "first_clause",
        "first_audio",
        "first_sent",
    ]
    for n, name in enumerate(names):
        timeline.stamp(name, 10 + 0.1 * n)  # type: ignore[arg-type]
        timeline.stamp(name, 99)  # type: ignore[arg-type]
    assert timeline.latency_ms() == 600
    assert sum(timeline.stages_ms().values()) == pytest.approx(600)
    timeline.stamp("end_decided", 10.4)
    assert timeline.stages_ms()["end_of_turn"] == 400
    assert Timeline("turn_2").latency_ms() is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_percentiles_are_numpys(values: list[float], share: float) -> None:
    assert percentile(values, share) == pytest.approx(np.percentile(values, share * 100), abs=1e-3)


@pytest.mark.parametrize(
    ("said", "kept", "strict"),
    [
        ("to leave the conference, to leave the conference,", "to leave the conference,", True),
        ("to leave the conference, to leave the conference,", None, False),
        ("I am I am I am I am so", "I am", False),
        ("no no no", None, False),
        ("no no no no no no no", "no", False),
        ("call five five five one two one two", None, False),
        ("", None, True),
    ],
)
def test_a_runaway_decoder_is_cut_and_a_person_who_repeats_is_not(said: str, kept: str | None, strict: bool) -> None:
    assert without_loops(said, strict=strict) == (said if kept is None else kept)


class ScriptedRecognizer(Recognizer):
    """Says what the script has for the length of audio that it hears, in seconds."""

    def __init__(self, script: dict[float, list[Segment]]) -> None:
        self.script, self.heard = script, list[float]()

    def transcribe(
        self, audio: Samples, window: Window | None = None, unwanted: Callable[[], bool] = lambda: False
    ) -> list[Segment]:
        if unwanted():
            raise GivenUp
        self.heard.append(len(audio) / HEARING_RATE)
        return self.script[self.heard[-1]]


class SlowRecognizer(ScriptedRecognizer):
    """More is asked for while it listens for the first time."""

    ask: Callable[[], object]

    def transcribe(
        self, audio: Samples, window: Window | None = None, unwanted: Callable[[], bool] = lambda: False
    ) -> list[Segment]:
        found = super().transcribe(audio, window, unwanted)
        if len(self.heard) == 1:
            self.ask()
        if unwanted():
            raise GivenUp
        return found


@pytest.mark.parametrize("asked", ["partial", "final"])
def test_a_partial_is_given_up_for_what_is_asked_for_after_it(asked: str) -> None:
    recognizer = SlowRecognizer({1.0: said("One too"), 2.0: said("One two three")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(HEARING_RATE, np.float32))
    newer = list[object]()

    def ask() -> None:
        utterance.add(np.zeros(HEARING_RATE, np.float32))
        newer.append(text_of(utterance.partial(ahead=True)) if asked == "partial" else utterance.final())

    recognizer.ask = ask
    late = utterance.partial()
    assert newer == ["One two three"]
    assert (late is None) == (asked == "partial")  # a final text is asked for beside it
    assert text_of(utterance.partial()) == "One two three"


def test_the_final_text_waits_for_what_is_transcribed_ahead() -> None:
    listening, go_on = Event(), Event()
    recognizer = SlowRecognizer({1.0: said("One two")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(HEARING_RATE, np.float32))

    def ask() -> None:
        listening.set()
        assert go_on.wait(5)

    recognizer.ask = ask
    with ThreadPoolExecutor(2) as threads:
        threads.submit(utterance.partial, ahead=True)
        assert listening.wait(5)
        final = threads.submit(utterance.final, HEARING_RATE, HEARING_RATE)
        go_on.set()
        assert final.result(5) == "One two"
    assert len(recognizer.heard) == 1


def test_an_old_final_text_does_not_stand_in_the_way_of_a_newer_partial() -> None:
    recognizer = ScriptedRecognizer({1.0: said("One"), 2.0: said("One two")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(HEARING_RATE, np.float32))
    old, newer = utterance.ask(), utterance.ask()
    with pytest.raises(GivenUp):
        utterance.final(HEARING_RATE, number=old)
    utterance.add(np.zeros(HEARING_RATE, np.float32))
    assert text_of(utterance.partial(newer, ahead=True)) == "One two"
    assert utterance.final(2 * HEARING_RATE, 2 * HEARING_RATE) == "One two"


def test_a_final_text_is_given_up_when_the_user_goes_on() -> None:
    recognizer = SlowRecognizer({1.0: said("One"), 2.0: said("One two")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(HEARING_RATE, np.float32))

    def ask() -> None:
        utterance.add(np.zeros(HEARING_RATE, np.float32))
        assert text_of(utterance.partial()) == "One two"

    recognizer.ask = ask
    with pytest.raises(GivenUp):
        utterance.final(HEARING_RATE)
    assert utterance.final(2 * HEARING_RATE) == "One two"


def test_what_was_transcribed_with_care_and_covers_the_speech_is_the_final_text() -> None:
    recognizer = ScriptedRecognizer({1.0: said("One two"), 0.5: said("One")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(HEARING_RATE, np.float32))
    assert text_of(utterance.partial(ahead=True)) == "One two"
    assert utterance.final(HEARING_RATE, HEARING_RATE) == "One two"
    assert len(recognizer.heard) == 1


def text_of(partial: Partial | None) -> str:
    assert partial is not None
    return partial.text


def said(text: str, start: float = 0, end: float = 1) -> list[Segment]:
    return [Segment(text, start, end, closed=True)]


def test_words_that_two_partials_agree_on_become_stable_and_stay() -> None:
    script = {1: said("What is"), 2: said("what is the cat"), 3: said("What is the capital of"), 4: said("Whether it")}
    utterance = Utterance(ScriptedRecognizer(script))
    partials = list[Partial]()
    for _ in range(4):
        utterance.add(np.zeros(HEARING_RATE, np.float32))
        partials += filter(None, [utterance.partial()])
    assert [p.stable for p in partials] == ["", "what is", "What is the", "What is the"]
    assert [p.unstable for p in partials] == ["What is", "the cat", "capital of", ""]


def test_a_long_turn_is_settled_in_pieces_and_heard_once() -> None:
    script = {
        20.0: [Segment("first part", 0, 12, True), Segment("cut of", 12, 20, True)],
        13.0: said("cut off and last"),
    }
    recognizer = ScriptedRecognizer(script)
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(25 * HEARING_RATE, np.float32))
    assert utterance.final() == "first part cut off and last"
    assert utterance.final() == "first part cut off and last"
    assert recognizer.heard == [20.0, 13.0, 13.0]


def test_the_final_text_hears_no_further_than_the_speech() -> None:
    recognizer = ScriptedRecognizer({1.0: said("hello")})
    utterance = Utterance(recognizer)
    utterance.add(np.zeros(2 * HEARING_RATE, np.float32))
    assert utterance.final(HEARING_RATE) == "hello"

"""The conversation history, and what the user heard of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice.history import FunctionCall, FunctionCallOutput, History, Item, Span, UnknownItem, item_bytes


def response(*clauses: tuple[str, float]) -> Item:
    item, start_ms = Item("a", "assistant", complete=True), 0.0
    for text, length_ms in clauses:
        item.spans.append(Span(text, start_ms, start_ms + length_ms))
        item.text += text
        start_ms += length_ms
    return item


def test_history_keeps_only_the_words_that_were_heard() -> None:
    history = History()
    history.add(response(("The capital of France", 1000), (" is Paris.", 500)))
    heard = {}
    for heard_ms in (0, 249, 500, 1000, 1300, 1500):
        history.truncate("a", heard_ms)
        heard[heard_ms] = history.get("a").heard_text
    assert heard == {
        0: "",
        249: "The",
        500: "The",
        1000: "The capital of France",
        1300: "The capital of France is",
        1500: "The capital of France is Paris.",
    }


@given(st.floats(0, 3000), st.floats(0, 3000))
def test_hearing_more_never_means_fewer_words(a: float, b: float) -> None:
    item = response(("One two three four", 1200), (" five six,", 700), (" seven.", 1100))
    heard = []
    for item.heard_ms in sorted((a, b)):
        heard.append(item.heard_text)
    assert heard[1].startswith(heard[0])
    assert item.text.startswith(heard[1])


def test_unheard_responses_are_not_passed_to_the_model() -> None:
    history = History()
    history.add(Item("u", "user", "Hello"))
    history.add(response(("Hi there.", 800)))
    history.truncate("a", 0)
    assert [(m.role, m.content) for m in history.messages("Be kind.")] == [("system", "Be kind."), ("user", "Hello")]


def said(number: int, text: str, *, goes_on: bool = True) -> Item:
    return Item(f"user_{number}", "user", text, complete=True, goes_on=goes_on)


@pytest.mark.parametrize(
    ("first", "heard_ms", "then", "prompt"),
    [
        ("Turn off the.", 0, said(2, "Kitchen light."), ["Turn off the Kitchen light."]),
        ("Set a timer for,", 350, said(2, "ten minutes."), ["Set a timer for, ten minutes."]),
        ("I lost my wallet.", 0, said(2, "What should I do?"), ["I lost my wallet. What should I do?"]),
        ("Set a timer.", 900, said(2, "For ten minutes."), ["Set a timer.", "Hello there,", "For ten minutes."]),
        ("Set a timer.", 0, said(2, "Tell me a joke.", goes_on=False), ["Set a timer.", "Tell me a joke."]),
        ("Tell me a story.", 350, said(2, "Stop."), ["Tell me a story.", "Hello", "Stop."]),
        ("Tell me a story.", 350, said(2, "Mhm."), ["Tell me a story.", "Hello", "Mhm."]),
        ("Tell me a story.", 0, Item("typed", "user", "A joke.", spoken=False), ["Tell me a story.", "A joke."]),
    ],
)
def test_a_turn_that_goes_on_before_anything_was_heard_is_one_message(
    first: str, heard_ms: float, then: Item, prompt: list[str]
) -> None:
    history = History([said(1, first), response(("Hello there, friend.", 1000))])
    history.truncate("a", heard_ms)
    assert [message.content for message in history.messages("", [then])[1:]] == prompt
    history.add(then)
    assert [message.content for message in history.messages("")[1:]] == prompt


def test_an_output_that_comes_between_two_parts_of_a_turn_stays() -> None:
    history = History([said(1, "Search the web."), FunctionCall("f", "call", "search", "{}", complete=True)])
    history.add(said(2, "And what's the"))
    history.add(FunctionCallOutput("o", "call", "Train at 9:40."))
    history.add(said(3, "weather in Paris?"))
    assert "Train at 9:40." in [message.content for message in history.messages("")]
    assert history.messages("")[-1].content == "weather in Paris?"


def test_a_turn_after_a_call_is_a_message_of_its_own() -> None:
    history = History([said(1, "Set a timer."), FunctionCall("f", "call", "set_timer", "{}", complete=True)])
    history.add(said(2, "For ten minutes."))
    assert [message.role for message in history.messages("")] == ["system", "user", "assistant", "tool", "user"]


def test_items_are_inserted_after_the_given_item() -> None:
    history = History()
    assert history.add(Item("1", "user")) is None
    assert history.add(Item("2", "user")) == "1"
    assert history.add(Item("0", "system"), after="root") is None
    assert history.add(Item("1b", "user"), after="1") == "1"
    assert [item.id for item in history.items] == ["0", "1", "1b", "2"]
    history.delete("1")
    assert [item.id for item in history.items] == ["0", "1b", "2"]
    for invalid in (lambda: history.get("9"), lambda: history.delete("9"), lambda: history.add(Item("x", "user"), "9")):
        with pytest.raises(UnknownItem, match="no item '9'"):
            invalid()
    with pytest.raises(ValueError, match="already has an item"):
        history.add(Item("2", "user"))


def test_only_a_response_that_is_long_enough_can_be_truncated() -> None:
    history = History()
    history.add(Item("u", "user", "Hello"))
    history.add(response(("Hi.", 800)))
    with pytest.raises(ValueError, match="is not a spoken response"):
        history.truncate("u", 0)
    with pytest.raises(ValueError, match="has 800 ms of audio, less than 801 ms"):
        history.truncate("a", 801)


def test_the_oldest_items_make_room_for_new_ones() -> None:
    history = History(max_bytes=3 * item_bytes(Item("1", "user", "Hello.")))
    for number in "1234":
        history.add(Item(number, "user", "Hello."))
    assert [item.id for item in history.items] == ["2", "3", "4"]
    assert history.size == 3 * item_bytes(history.items[0])
    spoken = Item("5", "assistant", "Hello.", spans=[Span("Hello.", 0.0, 400.0)])
    history.add(spoken)
    assert [item.id for item in history.items] == ["4", "5"]

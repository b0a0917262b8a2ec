"""The dialogue that fills in a form."""

from __future__ import annotations

from datetime import date, time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.capture import Amount, Choice, Date, Digits, Email, Form, PhoneNumber, SpelledName, Time, yes_or_no
from agent.capture.form import FormState, Heard, Pause, Phase, Pressed
from agent.words.language import DateParts

PHONE = Form(phone=PhoneNumber())


def say(form: Form, *inputs: str, state: FormState | None = None) -> FormState:
    """The state after the caller has said this, having heard everything; `*`, `#` and digits in brackets are keys."""
    state = state or form.start()
    for text in inputs:
        event = Pressed(text[1:-1]) if text.startswith("[") else Heard(text, after=state.say)
        state = form.step(state, event)
    return state


def test_a_number_is_read_back_and_confirmed() -> None:
    state = say(PHONE, "five five five one two three four five six seven")
    assert state.say == "I have five five five, one two three, four five six seven. Is that right?"
    assert state.pause is Pause.SHORT
    done = say(PHONE, "Yes.", state=state)
    assert (done.outcome, done.values, done.say) == ("filled", {"phone": "5551234567"}, "Thank you.")


def test_a_caller_who_pauses_is_waited_for_and_asked_to_go_on() -> None:
    state = say(PHONE, "It's five five five")
    assert state.say == "five five five. Please go on."
    assert state.pause is Pause.PATIENT
    assert say(PHONE, "one two three", "four five six seven", "yes", state=state).values == {"phone": "5551234567"}


@pytest.mark.parametrize(
    ("correction", "phone"),
    [
        (["No, the last digit is eight."], "5551234568"),
        (["No.", "The third one is four."], "5541234567"),
        (["No, four one five, one two three, four five six seven."], "4151234567"),
        (["4151234567"], "4151234567"),
        (["Change the third one to nine."], "5591234567"),
        (["No.", "four one five", "one two three four five six seven"], "4151234567"),
        (["Start over.", "4151234567"], "4151234567"),
        (["yes, but the last one is five"], "5551234565"),
        (["no", "the area code is 212"], "2121234567"),
        (["no", "the last two digits", "seven eight"], "5551234578"),
        (["no, the last two digits", "seven eight"], "5551234578"),
        (["The last digit is wrong.", "eight"], "5551234568"),
        (["no", "the area code is wrong", "212"], "2121234567"),
        (["no", "the last two digits", "4151234567"], "4151234567"),
    ],
)
def test_corrections(correction: list[str], phone: str) -> None:
    state = say(PHONE, "5551234567", *correction)
    assert state.phase is Phase.CONFIRMING
    assert say(PHONE, "yes", state=state).values == {"phone": phone}


def test_an_agreement_before_the_value_was_heard_does_not_count() -> None:
    state = say(PHONE, "5551234567")
    early = PHONE.step(state, Heard("yeah", after="I have five five five,"))
    assert early.outcome is None
    assert early.say == state.say
    heard = PHONE.step(early, Heard("yes", after=state.say[:-20]))
    assert heard.outcome == "filled"


def test_words_after_an_unheard_read_back_continue_the_entry() -> None:
    form = Form(account=Digits(prompt="?", length=6, max_length=10))
    state = say(form, "one two three four five six")
    assert say(form, "yes", state=form.step(state, Heard("seven eight", after=""))).values == {"account": "12345678"}


def test_a_number_that_may_go_on_is_waited_for() -> None:
    form = Form(account=Digits(prompt="?", length=6, max_length=10))
    assert say(form, "one two three four five six").pause is Pause.DICTATION


def test_keys_enter_and_confirm() -> None:
    state = say(PHONE, "[5551234567#]")
    assert state.say == (
        "I have five five five, one two three, four five six seven. If that is right, press 1, otherwise 2."
    )
    assert say(PHONE, "[1]", state=state).values == {"phone": "5551234567"}
    assert say(PHONE, "[#]", state=state).values == {"phone": "5551234567"}


def test_a_star_deletes_the_last_key() -> None:
    assert say(PHONE, "[555123456*67#]", "[1]").values == {"phone": "5551234567"}


def test_keys_and_speech_mix() -> None:
    assert say(PHONE, "five five five", "[1234567#]", "yes").values == {"phone": "5551234567"}


def test_a_part_that_is_only_named_asks_what_it_should_be_and_keeps_the_number() -> None:
    state = say(PHONE, "5551234567", "no", "the last two digits")
    assert (state.say, state.entry) == ("What should it be?", "5551234567")
    lost = say(PHONE, "seven", state=state)  # that is one digit
    assert lost.say.startswith("Sorry, I didn't get that.") and lost.entry == "5551234567"
    partial = say(PHONE, "five five five", "the last digit is wrong", "six")
    assert partial.entry == "556"


def test_what_was_wrong_once_may_be_any_part_of_a_date() -> None:
    form = Form(day=Date(today=lambda: date(2026, 11, 22)))
    state = say(form, "Tuesday", "no", "Tuesday is wrong")
    assert state.say == "What should it be?"
    assert say(form, "Wednesday", "yes", state=state).values == {"day": date(2026, 11, 25)}


def test_keys_that_mean_nothing_are_ignored() -> None:
    state = say(PHONE, "[A]", "[555123A4567#]")
    assert state.entry == "5551234567"
    assert say(PHONE, "[A]", state=state).outcome is None
    at = Form(at=Time())
    assert say(at, "[D]", "[1430#]", "[1]").values == {"at": time(14, 30)}


def test_keys_of_a_choice_are_its_place() -> None:
    form = Form(choice=Choice(prompt="?", options={f"option {n}": () for n in "abcdefghijklm"}))
    assert say(form, "[12#]").values == {"choice": "option l"}
    assert say(form, "[1*2#]").values == {"choice": "option b"}
    assert say(form, "[1*]").outcome is None


def test_the_year_of_a_birthday_is_typed() -> None:
    form = Form(day=Date(today=lambda: date(2026, 11, 22), when="past"))
    assert say(form, "[0503#]", "[1984#]", "[1]").values == {"day": date(1984, 5, 3)}
    assert say(form, "[0503#]", "[0504#]").entry == DateParts(None, 5, 4)


def test_a_date_is_the_one_that_was_read_back_even_after_midnight() -> None:
    today = date(2026, 11, 22)
    form = Form(day=Date(today=lambda: today))
    state = say(form, "Monday")
    assert state.say == "I have Monday, November twenty-third. Is that right?"
    today = date(2026, 11, 24)
    state = say(form, "could you repeat that?", state=state)
    assert state.say == "I have Monday, November twenty-third. Is that right?"
    assert say(form, "yes", state=state).values == {"day": date(2026, 11, 23)}


def test_two_refuses_what_was_read_back() -> None:
    state = say(PHONE, "[5551234567#]", "[2]")
    assert state.say == "All right. What is your phone number?"
    assert say(PHONE, "[4151234567#]", "yes", state=state).values == {"phone": "4151234567"}


def test_a_name_cannot_be_typed() -> None:
    form = Form(name=SpelledName())
    assert say(form, "[76484#]").say.startswith("Sorry, I didn't get that. Please spell it")


def test_fields_follow_each_other() -> None:
    form = Form(
        name=SpelledName(),
        email=Email(),
        day=Date(today=lambda: date(2026, 11, 22)),
        at=Time(earliest=time(8), latest=time(18)),
        amount=Amount(),
        sure=yes_or_no("Shall I book it?"),
    )
    state = say(form, "S-M-I-T-H", "yes")
    assert state.say == "Thank you. What is your e-mail address?"
    state = say(form, "j.smith@example.com", "yes", "next Tuesday", "that's right", "half past two", "yes", state=state)
    state = say(form, "twenty five fifty", "yes", state=state)
    assert state.say == "Thank you. Shall I book it?"
    state = say(form, "yes please", state=state)
    assert state.outcome == "filled"
    assert form.to_json(state.values) == {
        "name": "Smith",
        "email": "j.smith@example.com",
        "day": "2026-11-24",
        "at": "14:30",
        "amount": "25.50",
        "sure": "yes",
    }
    assert form.schema["required"] == ["name", "email", "day", "at", "amount", "sure"]


def test_it_gives_up_after_several_misunderstandings() -> None:
    state = say(PHONE, "what a lovely day", "really", "I don't know what you mean")
    assert state.outcome is None
    assert state.say.startswith("Sorry, I didn't get that. Please say the phone number digit by digit")
    assert say(PHONE, "hmm what now", state=state).outcome == "given_up"


def test_a_caller_may_leave() -> None:
    assert say(PHONE, "five five five", "never mind").outcome == "cancelled"


def test_waiting_and_repeating_are_no_misunderstandings() -> None:
    state = say(PHONE, "one moment")
    assert state.say == "Take your time."
    state = say(PHONE, "5551234567", "could you repeat that?", state=state)
    assert state.say == "I have five five five, one two three, four five six seven. Is that right?"
    assert state.failures == 0


def test_an_optional_field_is_skipped() -> None:
    form = Form(email=Email(optional=True), phone=PhoneNumber())
    state = say(form, "I don't have one")
    assert state.values == {"email": None}
    assert form.schema["properties"]["email"] == {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]}
    assert say(PHONE, "skip").failures == 1


def test_a_value_that_the_application_refuses_is_asked_for_again() -> None:
    closed = Date(
        today=lambda: date(2026, 11, 22), check=lambda day: "We are closed on Sundays." if day.weekday() == 6 else ""
    )
    assert say(Form(day=closed), "November 29").say == "We are closed on Sundays. For which date?"


def test_a_word_after_the_read_back_of_a_name_is_no_other_name() -> None:
    form = Form(name=SpelledName())
    assert say(form, "S-M-I-T-H", "Jesus").say == "I have S, M, I, T, H. Please say yes or no."
    assert say(form, "S-M-I-T-H", "It's Smythe.", "yes").values == {"name": "Smythe"}


def test_a_choice_is_not_read_back() -> None:
    form = Form(service=Choice(prompt="Cleaning or check-up?", options={"cleaning": (), "check-up": ()}))
    assert say(form, "the second").values == {"service": "check-up"}
    assert say(form, "[1]").values == {"service": "cleaning"}


def test_what_people_utter_while_they_listen_changes_nothing() -> None:
    state = say(PHONE, "5551234567")
    assert say(PHONE, "mhm", state=state).say == state.say


TEXTS = st.lists(
    st.sampled_from(
        ["yes", "no", "five five five", "5551234567", "the last digit is seven", "start over", "um", "S M I T H", "at",
         "dot com", "the fifteenth of March", "next Tuesday", "half past two", "no, the sixteenth", "twenty five fifty",
         "[12*#]", "[#]", "[*]", "[0]", "delete the last digit", "", "…", "that's it", "skip", "second", "in a week",
         "[A]", "the last two digits", "that's wrong", "the third is wrong"]
    ),
    max_size=25,
)  # fmt: skip
ALL = Form(
    phone=PhoneNumber(), email=Email(), name=SpelledName(), day=Date(), at=Time(), amount=Amount(), sure=yes_or_no("?")
)


@pytest.mark.parametrize("name", list(ALL.fields))
@settings(max_examples=30)
@given(texts=TEXTS)
def test_a_form_always_has_something_to_say_and_ends_after_a_bounded_number_of_inputs(
    name: str, texts: list[str]
) -> None:
    form = Form(**{name: ALL.fields[name]})
    state = say(form, *texts)
    assert state.say
    assert state.inputs <= 40
    assert (state.outcome == "filled") == (name in state.values)

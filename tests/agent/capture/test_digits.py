"""Numbers and telephone numbers."""

from __future__ import annotations

from agent.capture.digits import Digits, PhoneNumber
from agent.capture.field import Progress

PHONE = PhoneNumber()


def test_a_number_comes_in_parts() -> None:
    entry = PHONE.hear("five five five", "")
    assert entry == "555"
    assert PHONE.progress(entry) is Progress.PARTIAL
    entry = PHONE.hear("one two three", entry)
    assert entry is not None
    entry = PHONE.hear("4567.", entry)
    assert entry == "5551234567"
    assert PHONE.progress(entry) is Progress.COMPLETE
    assert PHONE.read_back(entry, careful=False) == "five five five, one two three, four five six seven"


def test_a_whole_number_replaces_a_part() -> None:
    assert PHONE.hear("5551234567", "555") == "5551234567"


def test_a_number_that_is_said_twice_counts_once() -> None:
    assert PHONE.hear("5551234567, that's 5551234567", "") == "5551234567"
    assert PHONE.hear("4, 1, 5, 5, 5, 5, 0, 1, 3, 2, 1, 4, 1, 5, 5, 5, 0,", "") == "4155550132"
    assert PHONE.hear("55512345678", "") == "55512345678"


def test_a_long_number_that_lacks_a_digit_is_asked_for_again() -> None:
    assert PHONE.ask_rest("415555132") == (
        "four one five, five five five, one three two. One digit is missing. Please go on, or say the whole phone "
        "number again."
    )
    assert PHONE.hear("415-555-0132", "415555132") == "4155550132"


def test_the_country_code_is_left_out_and_other_countries_keep_theirs() -> None:
    assert PHONE.hear("1-555-123-4567", "") == "5551234567"
    other = PHONE.hear("plus four nine thirty 1234567", "")
    assert other == "+49301234567"
    assert PHONE.progress(other) is Progress.POSSIBLE
    assert PHONE.value(other) == "+49301234567"


def test_an_area_code_is_corrected() -> None:
    assert PHONE.correct("no, the area code is four one five", "5551234567") == "4151234567"


def test_the_plus_sign_is_no_digit_for_corrections() -> None:
    assert PHONE.correct("the first digit is five", "+49301234567") == "+59301234567"
    assert PHONE.correct("the third one is nine", "+49301234567") == "+49901234567"
    assert PHONE.correct("the first three digits are 4 3 1", "+49301234567") == "+43101234567"


def test_a_number_that_is_too_long_is_refused_with_its_length() -> None:
    assert PHONE.problem("55512345678") == "I heard 11 digits, but the phone number has 10."


def test_a_number_of_several_lengths_may_go_on() -> None:
    account = Digits(prompt="?", length=6, max_length=8, name="account number")
    assert account.progress("123456") is Progress.POSSIBLE
    assert account.hear("seven eight", "123456") == "12345678"
    assert account.progress("12345678") is Progress.COMPLETE
    assert account.schema == {"type": "string", "pattern": "^[0-9]{6,8}$"}


def test_keys_add_digits() -> None:
    assert PHONE.press("5", "555123456") == "5551234565"

"""When an alarm is due, on a Sunday at three in the afternoon."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from agent.tools.recurrence import REPEAT_PATTERN, first_due, next_due, spoken_repeat, stored_repeat

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("clock", "day", "repeat", "alarm", "reminder"),
    [
        ("7:00", "", "", "Mon 23 07:00", "Sun 22 19:00"),
        ("2:30", "", "", "Mon 23 02:30", "Mon 23 02:30"),
        ("3:30", "", "", "Sun 22 15:30", "Sun 22 15:30"),
        ("6:30", "", "", "Mon 23 06:30", "Sun 22 18:30"),
        ("4:30", "tomorrow morning", "", "Mon 23 04:30", "Mon 23 04:30"),
        ("", "tonight", "", "Sun 22 21:00", "Sun 22 21:00"),
        ("", "friday evening", "", "Fri 27 19:00", "Fri 27 19:00"),
        ("7 am", "", "", "Mon 23 07:00", "Mon 23 07:00"),
        ("18:30", "", "", "Sun 22 18:30", "Sun 22 18:30"),
        ("noon", "", "", "Mon 23 12:00", "Mon 23 12:00"),
        ("8", "tonight", "", "Sun 22 20:00", "Sun 22 20:00"),
        ("2:00", "tonight", "", "Mon 23 02:00", "Mon 23 02:00"),
        ("12:00", "tonight", "", "Mon 23 00:00", "Mon 23 00:00"),
        ("2 am", "tonight", "", "Mon 23 02:00", "Mon 23 02:00"),
        ("1:00", "tomorrow night", "", "Tue 24 01:00", "Tue 24 01:00"),
        ("9", "tomorrow", "", "Mon 23 09:00", "Mon 23 09:00"),
        ("3", "tomorrow", "", "Mon 23 15:00", "Mon 23 15:00"),
        ("", "friday", "", "Fri 27 09:00", "Fri 27 09:00"),
        ("6:40 am", "", "weekdays", "Mon 23 06:40", "Mon 23 06:40"),
        ("4 pm", "", "weekends", "Sun 22 16:00", "Sun 22 16:00"),
        ("7 am", "", "wednesday, friday", "Wed 25 07:00", "Wed 25 07:00"),
    ],
)
def test_an_alarm_is_due_at_the_next_such_time(clock: str, day: str, repeat: str, alarm: str, reminder: str) -> None:
    due = [first_due(clock, day, repeat, NOW, morning=morning) for morning in (True, False)]
    assert [f"{moment:%a %d %H:%M}" for moment in due] == [alarm, reminder]


@pytest.mark.parametrize(
    ("now", "clock", "due"),
    [
        ("00:30", "2:00", "Sun 22 02:00"),
        ("00:30", "12:00", "Mon 23 00:00"),
        ("00:30", "midnight", "Mon 23 00:00"),
        ("04:30", "1:00", "Mon 23 01:00"),
        ("04:30", "8", "Sun 22 20:00"),
    ],
)
def test_tonight_after_midnight_is_this_night_or_the_next(now: str, clock: str, due: str) -> None:
    hour, minute = map(int, now.split(":"))
    moment = first_due(clock, "tonight", "", NOW.replace(hour=hour, minute=minute), morning=True)
    assert f"{moment:%a %d %H:%M}" == due


@pytest.mark.parametrize(
    ("clock", "day", "repeat", "alarm", "reminder"),
    [
        ("10:00", "", "wednesday", "Wed 25 10:00", "Wed 25 10:00"),  # not the evening, which is next only today
        ("3:00", "", "wednesday", "Wed 25 15:00", "Wed 25 15:00"),
        ("6:00", "today", "", "Sun 22 18:00", "Sun 22 18:00"),
        ("3:30", "today", "", "Sun 22 15:30", "Sun 22 15:30"),
    ],
)
def test_half_a_day_is_chosen_by_the_day_it_is_due_on(
    clock: str, day: str, repeat: str, alarm: str, reminder: str
) -> None:
    due = [first_due(clock, day, repeat, NOW, morning=morning) for morning in (True, False)]
    assert [f"{moment:%a %d %H:%M}" for moment in due] == [alarm, reminder]


def test_clocks_that_are_put_forward_change_no_later_day() -> None:
    first = datetime(2026, 3, 28, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    due, found = first, list[str]()
    for _ in range(3):
        following = next_due(due, stored_repeat("daily", first), due)
        assert following is not None
        due = datetime.fromtimestamp(following.timestamp(), first.tzinfo)  # as the file has it
        found.append(f"{due:%d %H:%M}")
    assert found == ["29 03:30", "30 02:30", "31 02:30"]


@pytest.mark.parametrize(
    ("clock", "day", "message"),
    [
        ("12:30", "today", "already passed"), ("2:30", "yesterday", "already passed"),
        ("2 pm", "today", "already passed"), ("7:00", "yesterday", "already passed"), ("7:00", "2028-01-01", "too far"),
        ("7:00", "someday", "no day"), ("half past", "", "no time of day"),
    ],
)  # fmt: skip
def test_a_time_that_cannot_come_is_refused(clock: str, day: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        first_due(clock, day, "", NOW, morning=True)


@pytest.mark.parametrize(
    ("repeat", "after", "spoken"),
    [
        ("", [], ""),
        ("daily", ["02-01", "02-02", "02-03"], "every day"),
        ("weekdays", ["02-02", "02-03", "02-04"], "on weekdays"),
        ("weekends", ["02-01", "02-07", "02-08"], "on weekends"),
        ("weekly", ["02-07", "02-14", "02-21"], "every week"),
        ("monthly", ["02-28", "03-31", "04-30"], "every month"),
        ("yearly", ["01-31", "01-31", "01-31"], "every year"),
        ("monday", ["02-02", "02-09", "02-16"], "every Monday"),
        ("monday, wednesday, friday", ["02-02", "02-04", "02-06"], "every Monday, Wednesday and Friday"),
    ],
)
def test_an_alarm_that_repeats_is_due_again_and_again(repeat: str, after: list[str], spoken: str) -> None:
    assert not repeat or re.fullmatch(REPEAT_PATTERN, repeat)
    assert spoken_repeat(repeat) == spoken
    due: datetime | None = datetime(2026, 1, 31, 7, 0, tzinfo=UTC)  # a Saturday
    found = []
    while due is not None and len(found) < 3:
        due = next_due(due, stored_repeat(repeat, datetime(2026, 1, 31, 7)), due)
        if due is not None:
            found.append(f"{due:%m-%d}")
    assert found == after


def test_times_that_nobody_was_there_for_are_left_out() -> None:
    due = datetime(2026, 11, 2, 7, 0, tzinfo=UTC)
    assert next_due(due, "daily", NOW) == datetime(2026, 11, 23, 7, 0, tzinfo=UTC)
    assert next_due(due, "weekdays", NOW) == datetime(2026, 11, 23, 7, 0, tzinfo=UTC)

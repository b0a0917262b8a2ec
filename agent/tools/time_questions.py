"""The built-in tool for sums with times and days. It reads the user's words and takes no arguments. Questions that it
understands as a whole are answered whatever the language model decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from agent.tools.date_sums import UNTIL_DATE, date_answer
from agent.tools.function_tool import NO_RESULT, Caller, ServerTool, Spoken, function_tool, tool
from agent.tools.sums.words import has_new_words, is_question
from agent.tools.time_sums import ANY_RELATIVE, DURATION, FROM_NOW, WEEKDAY, without_spans, work_out
from agent.tools.when import WEEKDAYS, UnknownTime, clock_spans, clock_times, duration_spans, plain_words

_ABOUT_SUMS = (
    rf"\b({WEEKDAY}|today|tomorrow|yesterday|noon|midnight|o'clock|[ap]\.?m\b|past|\d:\d\d|now|at|it's|it is)\b.*"
    rf"({DURATION}|\b{ANY_RELATIVE})|{DURATION}.*\b({WEEKDAY}|after|before|from now|ago)\b|"
    rf"\b(day|date)\b.*\bin {DURATION}|"
    r"\b(how long|how many (hours|minutes|days|weeks))\b.*\b(between|from|until|till)\b"
)
"""What people say who want such a sum: a time and a duration, two days, or what lies between two times."""

_SUM_OF_TIMES = rf"^(?!.*\b(remind|reminder|timer|alarm|note|write)\b)(?=.*\b(when|what|which|how)\b).*({_ABOUT_SUMS})"


_DAY_WORDS = frozenset(
    "if when what what's s which day weekday date days of the week is it was will be would does do comes come falls "
    "fall on a an in after before from now ago then and so today tomorrow yesterday that this have we today's how "
    "about please tell me can you know hey ok okay later earlier next to let's say suppose".split()
)
"""What questions about weekdays consist of, besides weekdays and durations."""

_WHEN = re.compile(r"(?:and |so |then )*(?:at |by |until )?(?:when|what time)\b.*")
_ASKING = frozenset(
    "and so then at by until when what time will would does do did is was it be been i we you he she they the my "
    "our his her to there have must should shall need needs can get gets arrive over done finish finished end ready "
    "wake up leave start begin come back home return land set off out expect here that if takes take lasts in after "
    "before from past now go going again an a half quarter hours hour minutes minute seconds later ago noon "
    "midnight am pm m p".split()
)
"""Words of questions after the time when something begins or ends."""

_UNTIL_CLOCK = re.compile(
    r"(?:and |so )*how (?:long|many hours|many minutes|much time)"
    r"(?: is it| are there| is there| do (?:i|we) have)?(?: left)? (?:until|till|to|before)(?: [ap] m)?"
)
"""Questions that are counted from now, without their times and durations."""

_HOW_LONG = re.compile(
    r"(?:and |so )*how (?:long|many hours|many minutes|much time) (?:is|are|was|were|lies?|do|does|from|between)\b"
)
_NOT_ASKED = re.compile(r"\b(?:remind|reminder|timer|alarm|note|write|opens?|closes?|time zone|why|who|where)\b")


_OTHER_DURATION = re.compile(
    r"(?:and|or|what about|how about|what if it s)(?: in| after| for)? (?P<duration>.+?)"
    r"(?: (?:after|before|later|earlier|from now))?"
)
_MAX_CHARACTERS = 400
"""Nobody speaks a longer question of this kind."""

_MAX_TURNS = 6
"""How far back a follow-up may refer."""


def is_certain(said: str, now: datetime) -> bool:
    """Whether a question can be worked out, and nothing in it is left over that a sum of times has no use for."""
    with suppress(UnknownTime):
        return _is_whole(said, now) and bool(work_out(said, now))
    return False


def _is_whole(said: str, now: datetime) -> bool:
    if len(said) > _MAX_CHARACTERS:
        return False
    plain = plain_words(said)
    if date_answer(plain, now):
        return True
    if _NOT_ASKED.search(plain):
        return False
    words = re.sub(r"[.-]", " ", without_spans(plain, [*clock_spans(plain), *duration_spans(plain)])).split()
    if not clock_times(plain):
        text = " ".join(words)
        is_form = UNTIL_DATE.fullmatch(text) or FROM_NOW.fullmatch(text)
        return is_form is not None or all(word in _DAY_WORDS or word in WEEKDAYS for word in words)
    if len(clock_times(plain)) == 1 and _UNTIL_CLOCK.fullmatch(" ".join(words)):
        return True
    if re.search(r"\d", without_spans(plain, [*clock_spans(plain), *duration_spans(plain)])):
        return False
    clauses = [part.strip(" .?!,;") for part in re.split(r"[.?!,;]\s", f"{said.lower()} ") if part.strip(" .?!,;")]
    question, story = clauses[-1], " ".join(clauses[:-1])
    if len(clock_times(plain)) == 2:
        return not duration_spans(plain) and _HOW_LONG.match(question) is not None
    asks = _WHEN.fullmatch(question) is not None and not has_new_words(plain_words(question), story, _ASKING)
    return asks and bool(duration_spans(plain))


def certain_words(turns: Sequence[str], now: datetime) -> str | None:
    """What the last of the user's turns asks for, in words that need no earlier ones; None if it is not certain."""
    words, before = None, ""
    for said in turns[-_MAX_TURNS:]:
        told = bool(before) and not is_question(before)
        candidates = [said, *([f"{before} {said}"] if told else []), *([_follow_up(said, words)] if words else [])]
        words, before = next((each for each in candidates if each.strip() and is_certain(each, now)), None), said
    return words


def _follow_up(said: str, before: str) -> str:
    """The question before with another duration: "and in five days?". Empty if it is no such follow-up."""
    match = _OTHER_DURATION.fullmatch(plain_words(said).strip(" ."))
    plain = plain_words(before)
    spans = duration_spans(plain)
    if match is None or len(spans) != 1 or len(duration_spans(match["duration"])) != 1:
        return ""
    ((start, end),) = spans
    return f"{plain[:start]}{match['duration']}{plain[end:]}"


def time_sum_tools(now: Callable[[], datetime]) -> list[ServerTool]:
    """The tool, on a clock that returns the time here."""

    def certain_sum(turns: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], str] | None:
        words = certain_words([said for said, _ in turns], now())
        return None if words is None else ({}, words)

    @tool(read_only=True, said=_SUM_OF_TIMES, certain=certain_sum)
    def work_out_time(caller: Caller) -> Spoken | str:
        """Work out a time, weekday or date from another one, or how long it is between two times."""
        try:
            return Spoken(work_out(caller.said, now()))
        except UnknownTime:
            return NO_RESULT

    return [function_tool(work_out_time)]

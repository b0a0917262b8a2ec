"""What callers say to the dialogue itself, rather than as a value: yes, no, "start over", "say that again". English."""

from __future__ import annotations

import re
from enum import Enum
from typing import Literal

from agent.confirmation import reply_to_question, with_plain_yes
from agent.matched_text import for_patterns

SILENCE = "(The user has said nothing for "
"""Begins the message of a turn in which the user said nothing, which is no input either."""

_MAX_WORDS = 9
"""A longer text is an answer, whatever words it begins with."""


class Command(Enum):
    """What a caller asks of the dialogue."""

    START_OVER = "start over"
    REPEAT = "repeat"
    WAIT = "wait"
    DONE = "done"
    SKIP = "skip"
    CANCEL = "cancel"


_COMMANDS = {
    Command.START_OVER: re.compile(
        r"(let's |let me |can (i|we) |i want to |i'd like to )?(start (over|again|from the beginning)|"
        r"begin again|try (that )?again|from the (beginning|start|top)|scratch that|clear (it|that|everything))"
    ),
    Command.REPEAT: re.compile(
        r"((can|could|would) you )?(please )?(repeat|say) (that|it|this|the question)?"
        r"( again| please| once more)*|(i beg your )?pardon( me)?|what( was that| did you say)?|sorry|come again|"
        r"i (didn't|did not|couldn't) (hear|catch|get|understand) (that|you|it)|what do you have( so far)?"
    ),
    Command.WAIT: re.compile(
        r"hold on|(just )?(a|one) (second|moment|minute|sec)|wait( (a|one) (second|moment|minute|sec))?|"
        r"let me (see|check|think|look)( it up| that up)?|give me a (second|moment|minute|sec)|hang on"
    ),
    Command.DONE: re.compile(
        r"that's (it|all|everything)|that is (it|all|everything)|done|i'm done|finished|end of (the )?number"
    ),
    Command.SKIP: re.compile(
        r"skip( it| that| this)?|none|i (don't|do not) (have|want to give) (one|an?y?|that|you)( [a-z-]+)*|"
        r"i('d| would) rather not( say)?|not applicable"
    ),
    Command.CANCEL: re.compile(
        r"cancel( (it|that|this|everything|the [a-z]+))?|never ?mind|forget (it|that|about it)|stop|quit|"
        r"i (want|would like|need) to (stop|cancel|quit)|"
        r"(can i |let me |i (want|need|would like) to )?(speak|talk) (to|with) (a|an|someone|somebody|the).*|"
        r"operator|representative|goodbye|bye( bye)?"
    ),
}
_COURTESY = re.compile(r"^(?:(?:no|oh|okay|ok|well|um|uh|please|actually|sorry)\b[,. ]+)+|[,. ]+(?:please|now|for me)$")
_FILLERS = frozenset("um uh er erm uhm hm hmm mm mmm mhm mm-hmm mhmm uh-huh uhhuh ah huh".split())
_MORE_YES = frozenset("right exactly perfect good great fine yes".split())
_ALL = ("that's it", "that's all", "that is it", "that is all")
_AROUND_YES = frozenset("that's that is all it it's".split())
_NO_START = re.compile(r"^(?:um |uh |oh |well )*(?:no|nope|nah|wrong|incorrect|not (?:quite|right|correct))\b|"
                       r"\b(?:that's|that is|it's|it is) (?:wrong|not (?:right|correct)|incorrect)\b")  # fmt: skip


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w' -]", " ", for_patterns(text.lower()).replace("’", "'")).split())


def command_in(text: str) -> Command | None:
    """The command that a text is; None if it is an answer."""
    plain = _plain(text)
    if not plain or len(plain.split()) > _MAX_WORDS:
        return None
    for candidate in (plain, _COURTESY.sub("", plain)):
        for command, pattern in _COMMANDS.items():
            if pattern.fullmatch(candidate):
                return command
    return None


def is_filler(text: str) -> bool:
    """Whether a text is only what people utter while they think or listen ("um", "mhm")."""
    words = _plain(text).split()
    return bool(words) and set(words) <= _FILLERS


def agreement(text: str) -> Literal["yes", "no", "unclear"]:
    """The reply to "Is that right?". "No" may be followed by more."""
    plain = with_plain_yes(re.sub(r"\b(?:sir|madam|ma'am|miss)\b", "", _plain(text)))
    reply = reply_to_question(plain)
    words = set(plain.split())
    if reply == "unclear" and (plain in _ALL or (words & _MORE_YES and words <= _MORE_YES | _AROUND_YES)):
        return "yes"
    if reply != "yes" and _NO_START.search(plain):
        return "no"
    return reply

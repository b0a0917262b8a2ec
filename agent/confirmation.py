"""Whether the user agreed to a consequential call: only a clear yes counts. English."""

from __future__ import annotations

import re
from itertools import dropwhile
from typing import Literal

_YES = frozenset(
    "yes yeah yep yup yea aye sure ok okay alright absolutely definitely certainly correct affirmative".split()
)
_YES_PHRASES = (
    "go ahead", "do it", "do that", "please do", "of course", "all right", "that's right", "that is right",
    "that's correct", "that is correct", "sounds good", "go for it", "i agree", "i do", "i am sure", "i'm sure",
    "you can", "you may", "make it so",
)  # fmt: skip
_FILLERS = frozenset("please thanks thank you uh um well oh i think so that's is it the exactly right now then".split())
_NO = frozenset("no nope nah never cancel stop don't wrong negative".split())
_NO_PHRASES = ("do not", "not now", "never mind", "forget it", "leave it", "rather not")
_UNDECIDED = ("don't know", "do not know", "don't mind", "don't care", "don't understand", "not sure")
_HESITATIONS = frozenset("um uh well oh ok okay so".split())
_NO_PROBLEM = ("no problems at all", "no problem at all", "no problems", "no problem")


def reply_to_question(text: str) -> Literal["yes", "no", "unclear"]:
    """What the user said to "Shall I …?". A yes with anything more in it ("yes, but tomorrow") is unclear, and so are a
    question ("is it okay?") and "that's okay", which declines as often as it agrees."""
    normalized = with_plain_yes(_normalized(text))
    for phrase in _UNDECIDED:
        normalized = normalized.replace(phrase, "unsure")
    words = normalized.split()
    if set(words) & _NO or any(phrase in normalized for phrase in _NO_PHRASES):
        return "no" if len(words) <= 6 and not set(words) & _YES else "unclear"
    if "?" in text or " ".join(dropwhile(_HESITATIONS.__contains__, words)).startswith("is it"):
        return "unclear"
    normalized = re.sub(r"\bthat(?:'s| is) (?:ok|okay|alright|all right)\b", " ", normalized)
    agreed = bool(set(normalized.split()) & _YES)
    for phrase in _YES_PHRASES:
        found = re.search(rf"\b{re.escape(phrase)}\b", normalized)
        if found:
            agreed, normalized = True, normalized.replace(phrase, " ")
    return "yes" if agreed and set(normalized.split()) <= _YES | _FILLERS else "unclear"


def begins_with_yes(text: str) -> bool:
    """Whether an answer to any question begins with a yes that nothing after it takes back: "yes, for two people"."""
    words = _normalized(text)
    agrees = words.partition(" ")[0] in _YES or any(f"{words} ".startswith(f"{phrase} ") for phrase in _YES_PHRASES)
    return agrees and "?" not in text and not set(words.split()) & (_NO | {"not", "but"})


def with_plain_yes(normalized: str) -> str:
    """A text in lower case with "yes" in place of "no problem"."""
    for phrase in _NO_PROBLEM:
        normalized = normalized.replace(phrase, "yes")
    return normalized


def _normalized(text: str) -> str:
    return " ".join(re.sub(r"[^\w' ]", " ", text.lower().replace("’", "'")).split())

"""How likely the user's turn is over, and how much silence that is worth waiting for.

Two kinds of evidence: the words, by rules and by the language model's own sense of a finished sentence, and the sound.
Each shifts the log-odds; their sum is the probability, and the probability sets the wait.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import deque
from dataclasses import dataclass, field

from voice.timing import Timing

_SURE, _UNSURE = 0.85, 0.25
"""From the one probability on the shortest wait is enough, up to the other the longest is needed."""

_TRUST_YES, _TRUST_NO = 0.7, 1.3
"""How much of the language model's log-odds counts. What it calls unfinished is; of "On the way to the airport" it is
as sure as of a whole sentence."""

_NEVER = 0.2
"""Below this the words cannot be all ("to the", "um"): nobody waits for an answer to them."""

_SLACK = 1.25
"""A pause is waited for so many times as long as the longest one this speaker made before within the same turn."""

_REMEMBERED = 6
"""Pauses of this speaker that say how long the next one may be."""

_UNFINISHED = frozenset(
    "a an the my your our their every of to with at by into and or but because if while as than very i".split()
)
"""Words that hardly anybody ends with."""

_LONG, _LONG_SHARE = 10, 0.4
"""So many words most likely hold the main clause as well, and what speaks against a mere clause counts for less."""

_SUBORDINATE = frozenset(
    "if when whenever because while although though before after since until unless once suppose supposed supposing "
    "assuming provided as whether".split()
)
_OPENING = frozenset("on in at for during from with without instead under over behind between near".split())
"""First words of a clause, or of a phrase, that another one follows."""

_HESITATION = re.compile(
    r"(?:^|\b)(?:um|uh|er|erm|uhm|hmm|hm|ah|okay so|let me (?:see|think)|(?:^|[,.] )(?:well|like|you know))$"
)
"""How somebody ends who is thinking; "well" and "like" end sentences, too, unless they stand apart."""

_QUESTION = frozenset(
    "who what when where why which whose how is are was were am do does did can could will would should shall may "
    "might have has had".split()
)
_COMMAND = frozenset(
    "tell give show explain describe name list say set turn play stop start find call remind help make open read write "
    "please add translate count spell sing".split()
)
_DIGITS = frozenset("zero oh one two three four five six seven eight nine double triple".split())
_DICTATED = re.compile(r"\b(?:number|code|zip|phone|card|pin|spell|spelled|account|digits?|extension|serial|address)\b")

_ASIDES = frozenset(
    "mhm mm mmm mmhmm mm-hmm mhmm uh-huh uhhuh hm hmm huh yeah yep yes right okay ok sure aha ah oh i see wow nice "
    "good great cool alright got it true exactly interesting really indeed of course uh um".split()
)
_LONGEST_ASIDE = 3
"""Words. "Oh I see", "yeah yeah yeah": more is a sentence."""


@dataclass
class Pauses:
    """How this speaker pauses within a turn."""

    longest_here_ms: int = 0
    _before_ms: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def note(self, length_ms: int) -> None:
        """The user paused for so long and went on."""
        self.longest_here_ms = max(self.longest_here_ms, length_ms)
        self._before_ms.append(length_ms)

    def usual_ms(self, timing: Timing) -> float:
        """How long this speaker's pauses are that could be mistaken for the end of a turn; 0 before there were two."""
        long = [pause for pause in self._before_ms if pause >= timing.shortest_wait_ms]
        return statistics.median(long) if len(long) >= 2 else 0.0

    def begin(self) -> None:
        """Another turn."""
        self.longest_here_ms = 0


@dataclass(frozen=True)
class Verdict:
    """What the endpointer makes of a pause.

    Attributes:
        over: probability that the turn is over.
        wait_ms: silence that ends it.
    """

    over: float
    wait_ms: int


def judge(
    text: str,
    timing: Timing,
    *,
    words: float | None = None,
    sound: float | None = None,
    pauses: Pauses | None = None,
    asked: bool = False,
) -> Verdict:
    """What is to be made of a pause behind `text`.

    Args:
        words: the language model's probability that the sentence is complete.
        sound: the same from the sound of its end.
        pauses: of this speaker.
        asked: these words answer a question, and need be no sentence.
    """
    odds = _odds_of_words(text, asked)
    if words is not None:
        odds += _log_odds(words) * (_TRUST_YES if words > 0.5 else _TRUST_NO)
    if sound is not None:
        odds += _log_odds(sound)
    over = 1 / (1 + math.exp(-odds))
    share = min(1.0, max(0.0, (_SURE - over) / (_SURE - _UNSURE)))
    wait = timing.shortest_wait_ms + share * (timing.longest_wait_ms - timing.shortest_wait_ms)
    if over < _NEVER:
        wait = timing.patient_wait_ms
    elif dictates(text):
        wait = max(wait, timing.dictation_wait_ms)
    if pauses is not None and over < _SURE:
        wait = max(wait, min(pauses.usual_ms(timing), timing.longest_wait_ms))
        wait = max(wait, min(_SLACK * pauses.longest_here_ms, timing.patient_wait_ms))
    return Verdict(round(over, 3), round(wait))


def dictates(text: str) -> bool:
    """Whether the user is in the middle of a number or of spelling a word."""
    words = _words(text)
    tail = 0
    while tail < len(words) and _is_digit(words[-1 - tail]):
        tail += 1
    digits = sum(len(word) if word.isdigit() else 1 for word in words[len(words) - tail :])
    if not tail or "?" in text or (words[0] in _QUESTION and not _DICTATED.search(text.lower())):
        return False
    groups = tail == len(words) or tail >= 3 or (words[-1].isdigit() and digits == 3)  # 415, as a number begins
    return digits < 10 and (groups or bool(_DICTATED.search(text.lower())))


def is_aside(text: str) -> bool:
    """Whether these are words that people say while they listen, and that want no answer."""
    words = [word for word in re.split(r"[^\w'-]+", text.lower()) if word]
    return len(words) <= _LONGEST_ASIDE and all(word in _ASIDES for word in words)


def _odds_of_words(text: str, asked: bool = False) -> float:
    """Log-odds that these words are all, by rules. Transcribers put a full stop behind anything, so that one says
    little; a question mark, a comma and dots say more."""
    words = _words(text)
    if not words:
        return 0.0
    last, stripped = words[-1], text.rstrip().rstrip("\"')")
    if _HESITATION.search(stripped.lower().rstrip(".,…-–—")):
        return -4.0
    odds = 0.0
    if stripped.endswith(("...", "…", "-", "–", "—")):
        odds -= 2.0
    elif stripped.endswith((",", ";", ":")):
        odds -= 1.5
    elif stripped.endswith("?"):
        odds += 1.5
    elif stripped.endswith((".", "!")):
        odds += 0.3
    if last in _UNFINISHED and not stripped.endswith("?"):
        odds -= 2.5
    elif words[0] in _QUESTION and len(words) >= 3:
        odds += 1.0
    elif words[0] in _COMMAND and len(words) >= 2:
        odds += 0.5
    if not asked and not stripped.endswith("?") and not re.search(r"[,;.] ", text):
        against = 5.0 if words[0] in _SUBORDINATE else 3.5 if words[0] in _OPENING else 0.0
        odds -= against if len(words) < _LONG else _LONG_SHARE * against
    return odds


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[^\w']+", text.lower()) if word]


def _is_digit(word: str) -> bool:
    return word.isdigit() or word in _DIGITS or (len(word) == 1 and word not in ("a", "i"))


def _log_odds(probability: float) -> float:
    bounded = min(max(probability, 0.02), 0.98)
    return math.log(bounded / (1 - bounded))

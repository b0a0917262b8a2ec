"""Estimates how likely the user's turn is over, and how much silence to wait for.

There are two kinds of evidence: the text, judged by rules and by the language model's probability of a complete turn,
and the audio. Each shifts the log-odds; their sum gives the probability, and the probability sets the wait.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.matched_text import for_patterns
from voice.stranded_prepositions import ends_in_stranded_preposition
from voice.timing import Timing

_SHORTEST_WAIT_FROM, _LONGEST_WAIT_BELOW = 0.85, 0.25
"""From the first probability on, the shortest wait is enough; below the second, the longest is needed."""

_COMPLETE_WEIGHT, _INCOMPLETE_WEIGHT = 0.7, 1.3
"""Weight of the language model's log-odds. It is reliable when it calls a text incomplete, but it is as certain that
"On the way to the airport" is complete as it is of a whole sentence."""

_INCOMPLETE_WEIGHT_IN_NOISE = 0.4
"""The same in noise, where words are misheard: "Why do cats purr when they are half" looks incomplete as well."""

_INCOMPLETE_BELOW = 0.2
"""Below this probability the text cannot be complete ("to the", "um"), and the user expects no response yet."""

_UNFINISHED_FORM, _UNFINISHED_BELOW = -1.4, 0.05
"""A text is unfinished by its form below these log-odds ("to the", "um", "if it rains"), and by the language model's
judgement below this probability. What is only unlikely to be complete has a misheard word as often as a missing one."""

_PAUSE_MARGIN = 1.25
"""The wait is this many times as long as the longest pause that the user made before within the same turn."""

_MAX_PAUSES = 6
"""Recent pauses of the user that predict how long the next one may be."""

_UNFINISHED = frozenset(
    "a an the my your our their every of to with at by into and or but because if while as than very i".split()
)
"""Words that rarely end a sentence."""

_LONG_TEXT_WORDS, _LONG_TEXT_WEIGHT = 10, 0.4
"""A text of this many words most likely contains the main clause as well, so the evidence against a lone subordinate
clause or phrase counts less."""

_SUBORDINATE = frozenset(
    "if when whenever because while although though before after since until unless once suppose supposed supposing "
    "assuming provided as whether".split()
)
_PREPOSITIONS = frozenset("on in at for during from with without instead under over behind between near".split())
"""First words of a clause or phrase that a main clause usually follows."""

_HESITATION = re.compile(
    r"(?:^|\b)(?:um|uh|er|erm|uhm|hmm|hm|ah|okay so|let me (?:see|think)|(?:^|[,.] )(?:well|like|you know))$"
)
"""How a user ends who is still thinking. "well" and "like" also end sentences, unless they are set apart."""

_FILLER = re.compile(r"\w\W+(?:um|uh|er|erm|uhm)\?$")
"""A filler at the end of what the recognizer takes for a question, as it begins like one ("Could you, um?")."""

_QUESTION_WORDS = frozenset(
    "who what when where why which whose how is are was were am do does did can could will would should shall may "
    "might have has had".split()
)
_COMMAND_VERBS = frozenset(
    "tell give show explain describe name list say set turn play stop start find call remind help make open read write "
    "please add translate count spell sing book cancel order switch dim send text move delete check look go skip "
    "repeat continue pause wait convert buy wake lock close recommend suggest teach compare summarize pick choose let "
    "put get take bring change speak talk keep leave run search".split()
)
_OPENERS = frozenset("and so but okay ok hey please well oh um uh then now hi hello also".split())
"""Words in front of a question or a command."""

_MIN_STATEMENT_WORDS = 3
"""Shorter texts ("thank you", "hello there") are whole turns."""

_DIGIT_WORDS = frozenset("zero oh one two three four five six seven eight nine double triple".split())
_DICTATED_THINGS = frozenset(
    "number code zip phone card pin spell spelled account digit digits extension serial address".split()
)

_MIN_GROUPED_DIGITS = 6
"""A number of this many digits, or more, is said in groups."""

_GROUP_DIGITS = range(3, 6)
"""Digits of the first group of a number."""

_TELEPHONE_DIGITS, _LAST_GROUP_DIGITS = 10, (1, 2, 4, 7, 10)
"""A dictated number of so many digits whose last group has so many is most likely a whole telephone number, and so is
one with a digit more that begins with 0 or 1."""

_WHOLE: Mapping[str, tuple[int, ...]] = {
    "card": (15, 16), "zip": (5, 9), "account": (), "iban": (), "serial": (), "tracking": ()
}  # fmt: skip
"""How many digits the number of other things has; none, if that is not known."""

_PERHAPS_WHOLE: Mapping[str, tuple[int, ...]] = {"extension": (3, 4), "pin": (4, 6), "code": (4, 6)}
"""The same of things whose numbers differ in length: what is usual, and may be half of a longer one. Few are
longer than the last."""

_LONGEST_USUAL = {name: lengths[-1:] for name, lengths in _PERHAPS_WHOLE.items()}

_NUM_LAST_DIGITS = 4
"""The digits of a number that people name in place of all of them: "It ends in 3826"."""

_BACKCHANNELS = frozenset(
    "mhm mm mmm mmhmm mm-hmm mhmm uh-huh uhhuh hm hmm huh yeah yep yes right okay ok sure aha ah oh i see wow nice "
    "good great cool alright got it true exactly interesting really indeed of course uh um".split()
)
_MAX_BACKCHANNEL_WORDS = 3
"""As in "oh I see" or "yeah yeah yeah"; a longer text is a sentence."""


@dataclass
class PauseHistory:
    """How the user pauses within a turn."""

    longest_in_turn_ms: int = 0
    _recent_ms: deque[int] = field(default_factory=lambda: deque(maxlen=_MAX_PAUSES))

    def add(self, length_ms: int) -> None:
        """Record a pause after which the user continued."""
        self.longest_in_turn_ms = max(self.longest_in_turn_ms, length_ms)
        self._recent_ms.append(length_ms)

    def typical_ms(self, timing: Timing) -> float:
        """Typical length of the pauses that are long enough to be mistaken for the end of a turn; 0 with fewer than
        two of them."""
        long = [pause for pause in self._recent_ms if pause >= timing.shortest_wait_ms]
        return statistics.median(long) if len(long) >= 2 else 0.0

    def begin_turn(self) -> None:
        """A new turn begins."""
        self.longest_in_turn_ms = 0


@dataclass(frozen=True)
class EndpointPrediction:
    """The endpointer's prediction for a pause.

    Attributes:
        end_probability: probability that the turn is over.
        wait_ms: silence that ends the turn.
    """

    end_probability: float
    wait_ms: int


def predict_endpoint(
    text: str,
    timing: Timing,
    *,
    text_probability: float | None = None,
    audio_probability: float | None = None,
    pauses: PauseHistory | None = None,
    answers_question: bool = False,
    noisy: bool = False,
) -> EndpointPrediction:
    """Predict whether a turn is over that has reached `text`.

    Args:
        text_probability: the language model's probability that the text is complete.
        audio_probability: the same from the end of the audio.
        pauses: the user's earlier pauses.
        answers_question: the text answers a question, so it need not be a sentence.
        noisy: there is noise around the user, so some words may be wrong.
    """
    odds = by_form = _text_log_odds(text, answers_question)
    if text_probability is not None and not (text_probability < 0.5 and ends_in_stranded_preposition(text)):
        incomplete_weight = _INCOMPLETE_WEIGHT_IN_NOISE if noisy else _INCOMPLETE_WEIGHT
        odds += _log_odds(text_probability) * (_COMPLETE_WEIGHT if text_probability > 0.5 else incomplete_weight)
    if audio_probability is not None:
        odds += _log_odds(audio_probability)
    probability = 1 / (1 + math.exp(-odds))
    share = (_SHORTEST_WAIT_FROM - probability) / (_SHORTEST_WAIT_FROM - _LONGEST_WAIT_BELOW)
    share = min(1.0, max(0.0, share))
    wait = timing.shortest_wait_ms + share * (timing.longest_wait_ms - timing.shortest_wait_ms)
    number_is_whole = _ends_in_whole_number(text)
    nothing_is_missing = _is_whole_question(text) or number_is_whole or _ends_in_number_of(text, _LONGEST_USUAL)
    if is_dictating(text):  # after any digit the number may be complete, whatever the sentence looks like
        may_be_whole = _ends_in_number_of(text, _PERHAPS_WHOLE)
        wait = max(wait, timing.statement_wait_ms if may_be_whole else timing.dictation_wait_ms)
    elif probability < _INCOMPLETE_BELOW and not nothing_is_missing:
        by_words = text_probability is not None and text_probability < _UNFINISHED_BELOW
        certain = by_words or by_form < _UNFINISHED_FORM
        wait = timing.patient_wait_ms if certain else timing.doubtful_wait_ms
    if not answers_question and not number_is_whole and _is_statement(text):
        wait = max(wait, min(timing.statement_wait_ms, timing.longest_wait_ms))
    if pauses is not None and probability < _SHORTEST_WAIT_FROM:
        wait = max(wait, min(pauses.typical_ms(timing), timing.longest_wait_ms))
        limit = timing.longest_wait_ms if nothing_is_missing else timing.patient_wait_ms
        wait = max(wait, min(_PAUSE_MARGIN * pauses.longest_in_turn_ms, limit))
    return EndpointPrediction(round(probability, 3), round(wait))


def _is_whole_question(text: str) -> bool:
    """Whether a question mark follows a word that can end a question. A misheard word makes such a text look incomplete
    to the language model ("What should I bring to a paper?"), but what is missing is not still to come."""
    words = _words(text)
    if not words or words[-1] in _UNFINISHED or _hesitates(text):
        return False
    return text.rstrip().rstrip("\"')").endswith("?")


def _hesitates(text: str) -> bool:
    """Whether the last word shows that the user is still thinking."""
    stripped = text.lower().rstrip().rstrip("\"')")
    return bool(_FILLER.search(stripped) or _HESITATION.search(stripped.rstrip(".,…-–—")))


def _is_statement(text: str) -> bool:
    """Whether the last sentence is neither a question nor a command, after which nothing has to follow."""
    sentence = re.split(r"(?<=[.!?]) ", text.strip())[-1]
    words = _words(sentence)
    first = next((word for word in words if word not in _OPENERS), "")
    return len(words) >= _MIN_STATEMENT_WORDS and not (
        sentence.endswith("?") or first in _QUESTION_WORDS - _SUBORDINATE or first in _COMMAND_VERBS
    )


def is_dictating(text: str) -> bool:
    """Whether the user is in the middle of a number or of spelling a word."""
    words = _words(text)
    spoken, digits = _trailing_digits(words)
    named = not _DICTATED_THINGS.isdisjoint(words)
    if not spoken or "?" in text or (words[0] in _QUESTION_WORDS and not named) or _ends_in_whole_number(text):
        return False
    in_groups = _looks_like_a_group(words) or digits >= _MIN_GROUPED_DIGITS or spoken >= 3
    return in_groups or spoken == len(words) or named


def _looks_like_a_group(words: list[str]) -> bool:
    """Whether the last word may begin a number that is said in groups: "415", "It's 9383", "on 07405", "LD63"."""
    last = words[-1]
    if not last.isdigit():
        return last[0].isalpha() and last[-1].isdigit() and len(last) in _GROUP_DIGITS
    if len(last) not in _GROUP_DIGITS:
        return len(last) == 2 and last[0] == "0"
    is_year = len(last) == 4 and last[:2] in ("18", "19", "20")
    return len(last) == 3 or last[0] == "0" or (len(words) <= 2 and not is_year)


def _ends_in_whole_number(text: str) -> bool:
    """Whether the text ends in as many digits as the number has that it names, in a telephone number, or in the last
    digits of one."""
    words = _words(text)
    spoken, digits = _trailing_digits(words)
    if words[:-spoken][-2:] in (["ends", "in"], ["ending", "in"]):
        return digits == _NUM_LAST_DIGITS
    if not _WHOLE.keys().isdisjoint(words):
        return _ends_in_number_of(text, _WHOLE)
    if digits == _TELEPHONE_DIGITS + 1:
        return words[-spoken][0] in "01o"
    return digits == _TELEPHONE_DIGITS and len(words[-1]) in _LAST_GROUP_DIGITS


def _ends_in_number_of(text: str, lengths: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the text ends in as many digits as something has that it names."""
    words = _words(text)
    _, digits = _trailing_digits(words)
    return any(digits in lengths[word] for word in words if word in lengths)


def _trailing_digits(words: list[str]) -> tuple[int, int]:
    """How many words at the end are digits or spelled letters, and how many digits they are."""
    trailing = list(itertools.takewhile(_is_digit, reversed(words)))
    return len(trailing), sum(_num_digits(word) for word in trailing)


def is_backchannel(text: str) -> bool:
    """Whether these are words that people say while they listen, which need no response."""
    words = [word for word in re.split(r"[^\w'-]+", for_patterns(text.lower())) if word]
    return len(words) <= _MAX_BACKCHANNEL_WORDS and all(word in _BACKCHANNELS for word in words)


def is_unfinished(text: str) -> bool:
    """Whether the form of a text shows that more follows ("turn off the", "um", "if it rains")."""
    return _text_log_odds(text) < _UNFINISHED_FORM


def _text_log_odds(text: str, answers_question: bool = False) -> float:
    """Log-odds by rules that the text is complete. Transcribers put a full stop after anything, so that it says little;
    a question mark, a comma and an ellipsis say more."""
    words = _words(text)
    if not words:
        return 0.0
    last, stripped = words[-1], text.rstrip().rstrip("\"')")
    if _hesitates(text):
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
    if last in _UNFINISHED and not stripped.endswith("?") and not ends_in_stranded_preposition(text):
        odds -= 2.5
    elif words[0] in _QUESTION_WORDS and len(words) >= 3:
        odds += 1.0
    elif words[0] in _COMMAND_VERBS and len(words) >= 2:
        odds += 0.5
    if not answers_question and not stripped.endswith("?") and not re.search(r"[,;.] ", text):
        penalty = 5.0 if words[0] in _SUBORDINATE else 3.5 if words[0] in _PREPOSITIONS else 0.0
        odds -= penalty if len(words) < _LONG_TEXT_WORDS else _LONG_TEXT_WEIGHT * penalty
    return odds


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[^\w']+", text.lower()) if word]


def _num_digits(word: str) -> int:
    """The digits, or spelled letters, of a word that `_is_digit`."""
    if word in _DIGIT_WORDS:
        return 1
    return sum(map(str.isdigit, word.replace("o", "0"))) or 1


def _is_digit(word: str) -> bool:
    """Whether this has digits ("o2o", "ld63"), or is a digit's name or a spelled letter."""
    return any(map(str.isdigit, word)) or word in _DIGIT_WORDS or (len(word) == 1 and word not in ("a", "i"))


def _log_odds(probability: float) -> float:
    bounded = min(max(probability, 0.02), 0.98)
    return math.log(bounded / (1 - bounded))

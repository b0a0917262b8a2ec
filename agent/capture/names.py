"""A name that is spelled, or said and then read back letter by letter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from agent.capture.corrections import corrected, without_denial
from agent.capture.field import Field, Progress
from agent.capture.letters import say_letters, spelled_letters

_CARRIER = re.compile(
    r"^(?:(?:hi|hello|yes|sure|okay|ok|well|um|uh|so)\b[,. ]*+)*"
    r"(?P<named>(?:(?:my|the|his|her|our) )?(?:(?:full|first|last|sur|family|given) ?)?name(?: is|'s|:)|"
    r"it's|it is|i'm|i am|this is|that's|that is|you spell (?:it|that)|i spell (?:it|that)|spelled|spelt|"
    r"spell it)?[,: ]*",
    re.IGNORECASE,
)
_NOT_NAMES = frozenset(
    "what why how who where when can could do does did don't not the a this that is are was have please know name "
    "spell sorry hello hi yes no okay ok sure thanks thank repeat you your it my i we".split()
)
"""Words that a text has which is no name."""

_MAX_WORDS = 4


@dataclass(frozen=True)
class SpelledEntry:
    """A name as heard so far: `text` in lower case; whether it was `spelled`."""

    text: str = ""
    spelled: bool = False


@dataclass(frozen=True, kw_only=True)
class SpelledName(Field[SpelledEntry, str]):
    """A name. Its value has capital letters where names have them: "O'Brien"."""

    prompt: str = "What is your last name? Please spell it."

    kind: ClassVar[str] = "name"
    schema: ClassVar[dict[str, Any]] = {"type": "string", "minLength": 1}
    empty: ClassVar[SpelledEntry] = SpelledEntry()
    hint: ClassVar[str] = "Please spell it letter by letter, for example: S as in Sierra, M as in Mike."

    def hear(self, text: str, entry: SpelledEntry) -> SpelledEntry | None:
        carrier = _CARRIER.match(text)
        rest, named = text[carrier.end() if carrier else 0 :].strip(" .,!?"), bool(carrier and carrier["named"])
        words = re.findall(r"[^\W\d_]+(?:['’-][^\W\d_]+)*", rest)
        if len(words) == 1 and len(words[0]) > 1 and not entry.text and not re.search(r"(?:\w[-.]){2}", rest):
            return SpelledEntry(words[0].lower().replace("’", "'"), spelled=words[0].isupper())
        letters = spelled_letters(rest, alone=entry.spelled)
        if letters:
            again = len(letters) >= len(entry.text) or letters[:2] == entry.text[:2]
            return SpelledEntry(letters if again or not entry.spelled else entry.text + letters, spelled=True)
        plain = [word.lower().replace("’", "'") for word in words]
        if not plain or len(plain) > _MAX_WORDS or set(plain) & _NOT_NAMES or (entry.text and not named):
            return None
        return SpelledEntry(" ".join(plain))

    def correct(self, text: str, entry: SpelledEntry) -> SpelledEntry | None:
        after = corrected(entry.text, text, lambda named: spelled_letters(named, alone=True))
        if after is None and (match := re.match(r"without (?:an? |the )?(.+)$", without_denial(text))):
            letter = spelled_letters(match[1], alone=True)
            after = entry.text.replace(letter, "") if letter and entry.text.count(letter) == 1 else None
        return None if after is None else SpelledEntry(after, spelled=True)

    def progress(self, entry: SpelledEntry) -> Progress:
        if not entry.text:
            return Progress.EMPTY
        return Progress.PARTIAL if entry.spelled and len(entry.text) < 2 else Progress.POSSIBLE

    def ask_rest(self, entry: SpelledEntry) -> str:
        return f"{say_letters(entry.text)}. Please go on."

    def value(self, entry: SpelledEntry) -> str:
        return re.sub(r"(^|[ '-])(\w)", lambda match: match[1] + match[2].upper(), entry.text)

    def read_back(self, entry: SpelledEntry, *, careful: bool) -> str:
        spelled = ", then ".join(say_letters(word, by_alphabet=careful) for word in entry.text.split(" "))
        return spelled if entry.spelled else f"{self.value(entry)}, spelled {spelled}"

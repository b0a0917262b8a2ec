"""An e-mail address as people say it: "john dot smith, all one word, at example dot com"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from agent.capture.corrections import corrected, without_denial
from agent.capture.field import Field, Progress
from agent.capture.letters import say_letters, spelled_letters
from agent.words.language import language

_ENGLISH = language("en")

_CARRIER = re.compile(
    r"^(?:(?:yes|sure|okay|ok|well|um|uh|so)\b[,. ]*+)*(?:(?:my |the )?e-?mail(?: address)?(?: is|'s|:)|"
    r"it's|it is|that's|that is|you can (?:write|send it) to|that would be)?[,: ]*"
)
_ASIDES = re.compile(
    r"\b(?:all (?:in )?(?:lower ?case|one word|together)|(?:in )?(?:lower|upper) ?case|no spaces?|"
    r"without (?:a )?spaces?|capital|the letters?|the word|the numbers?|sign|symbol)\b"
)
_SYMBOLS = {
    "dot": ".", "period": ".", "point": ".", "underscore": "_", "dash": "-", "hyphen": "-", "minus": "-", "plus": "+",
}  # fmt: skip
_PROVIDERS = "gmail yahoo hotmail outlook icloud aol proton protonmail live gmx web mail example".split()
_LOST_AT = re.compile(r"(?:[-. ](?:and|add|that|hat))?[-. ]?\b(g ?mail|yahoo|hotmail|outlook|icloud)(\.com| dot com)")
"""The "at" before a well-known provider, which a recognizer loses or writes as another word."""

_FINAL_DOMAINS = frozenset("com org net edu gov de uk fr eu info".split())
"""After these nothing follows; after "co" often "uk" does."""

_ADDRESS = re.compile(r"[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*@[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9-]+)*\.[a-z]{2,}")
_QUESTION = frozenset("what why how who where when can could do does don't repeat sorry again".split())
_MAX_WORDS = 6
"""More words without an "at" are a sentence."""


@dataclass(frozen=True, kw_only=True)
class Email(Field[str, str]):
    """An e-mail address, in lower case."""

    prompt: str = "What is your e-mail address?"

    kind: ClassVar[str] = "e-mail address"
    schema: ClassVar[dict[str, Any]] = {"type": "string", "format": "email"}
    hint: ClassVar[str] = "Please say it slowly, with at and dot, and spell what is hard to understand."

    def hear(self, text: str, entry: str) -> str | None:
        said = _fragment(text)
        if not said or (not entry and not _plausible(text, said)):
            return None
        if not entry or "@" in said[1:]:
            return said
        if "@" in entry and (said.startswith("@") or (_ADDRESS.fullmatch(entry) and not said.startswith("."))):
            return None
        return entry + said

    def correct(self, text: str, entry: str) -> str | None:
        local, at, domain = entry.partition("@")
        after = corrected(local, text, lambda named: spelled_letters(named, alone=True))
        if after is not None:
            return after + at + domain
        said = _fragment(without_denial(text))
        if said.startswith("@") and _ADDRESS.fullmatch(f"a{said}"):
            return local + said
        if _ADDRESS.fullmatch(f"a@{said}"):
            return f"{local}@{said}"
        if re.fullmatch(r"\.[a-z]{2,}", said) and "." in domain:
            return f"{local}@{domain.rpartition('.')[0]}{said}"
        return None

    def progress(self, entry: str) -> Progress:
        if not _ADDRESS.fullmatch(entry):
            return Progress.PARTIAL if entry else Progress.EMPTY
        return Progress.COMPLETE if entry.rpartition(".")[2] in _FINAL_DOMAINS else Progress.POSSIBLE

    def ask_rest(self, entry: str) -> str:
        if "@" not in entry:
            return f"{_say(entry)}. Please go on, with at and what follows."
        return f"{_say(entry)}. Please go on, to the end of the address."

    def value(self, entry: str) -> str:
        return entry

    def read_back(self, entry: str, *, careful: bool) -> str:
        return _say(entry, careful=careful)


def _say(entry: str, *, careful: bool = False) -> str:
    """The local part spelled, the domain in words where it is well known."""
    local, at, domain = entry.partition("@")
    said = [say_letters(local, by_alphabet=careful)] if local else []
    words = {*_PROVIDERS, *_FINAL_DOMAINS}
    labels = [label if label in words else say_letters(label, by_alphabet=careful) for label in domain.split(".")]
    if at:
        said.append(f"at {' dot '.join(labels)}")
    return ", ".join(said)


def _plausible(text: str, said: str) -> bool:
    """Whether a first text is an address or its beginning, and not a sentence."""
    words = set(re.findall(r"[a-z']+", text.lower()))
    return "@" in said or (len(text.split()) <= _MAX_WORDS and not words & _QUESTION)


def _fragment(text: str) -> str:
    """The part of an address that a text says."""
    plain = re.sub(r"\.+$", "", " ".join(text.lower().replace("’", "'").split()).strip(" ,;:!?"))
    carrier = _CARRIER.match(plain)
    plain = _ENGLISH.with_numerals(_ASIDES.sub(" ", plain[carrier.end() if carrier else 0 :]))
    plain = _with_at(_without_written_hyphens(plain.replace("under score", "underscore")))
    parts = re.split(r"([@._+-])|\b(" + "|".join(_SYMBOLS) + r")\b", plain)
    joined = "".join(_SYMBOLS.get(part, part if part in "@._+-" else _segment(part)) for part in parts if part)
    joined = re.sub(r"\.+", ".", joined).strip()
    return re.sub(rf"@({'|'.join(_PROVIDERS)})com$", r"@\1.com", joined)


def _without_written_hyphens(plain: str) -> str:
    """The text without hyphens and full stops that a recognizer writes among spelled letters ("j-o-h-n-dot-s")."""
    plain = re.sub(rf"[-.]?\b({'|'.join(_SYMBOLS)})\b[-.]?(?=\w)", r" \1 ", plain)
    spelled = re.search(r"(?:\b\w[-.]){2,}\w\b", plain)
    return re.sub(r"\b(\w)[-.](?=\w\b)", r"\1 ", plain) if spelled else plain


def _with_at(plain: str) -> str:
    """The text with a sign for its "at": the last one, as names may have one as well."""
    if "@" in plain:
        return plain
    if not re.search(r"\bat\b", plain):
        plain = _LOST_AT.sub(r" at \1\2", plain)
    if " at " in plain:
        before, _, after = plain.rpartition(" at ")
        return f"{before} @ {after}"
    return f"@ {plain[3:]}" if plain.startswith("at ") else plain


def _segment(text: str) -> str:
    """The characters between two symbols: spelled, or words without spaces, in which numbers are digits."""
    if letters := spelled_letters(text):
        return letters
    words = re.findall(r"[^\W_]+", text)
    return "".join(_word(word) for word in words)


def _word(word: str) -> str:
    is_digit = word.isalpha() and word not in ("o", "oh", "to", "too", "for", "won", "ate", "tree", "nil")
    return (_ENGLISH.spoken_digits(word) or word) if is_digit else word

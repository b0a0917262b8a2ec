"""Rewrites dictated words as their speaker would have written them: without fillers and restarts, with spoken
corrections applied, and lists as lists. What the check refuses stays as it was said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass

from agent.dictation.check import objection
from agent.dictation.expectation import HESITATIONS, SENTENCE_ENDS, expected_text, plain_word
from agent.language_model import LanguageModel
from chat.types import Ask, Message

_log = logging.getLogger("rejoinder.agent")

_MAX_WORDS = 80
"""Of a passage that is rewritten at once: a small model loses words of longer ones. They are cut at ends of
sentences."""

_MAX_TOKENS_PER_WORD, _MIN_TOKENS = 3, 24
"""Limits what a runaway model writes. Nothing becomes longer by more than the numbers of a list."""

_CORRECTIONS = frozenset(
    tuple(cue.split())
    for cue in (
        "no", "sorry", "wait", "scratch that", "make that", "i mean", "correction", "i meant", "oh wait", "or rather",
        "not",
    )
)  # fmt: skip
"""How a sentence begins that may correct the one before it."""

_INSTRUCTIONS = (
    "You clean up dictated text. Remove fillers (um, uh, you know, like), repeated words and false starts. When the "
    "speaker corrects something, keep only the corrected version. Write enumerations as lists. Keep all other words "
    "exactly as they are, in their order. Add nothing, answer nothing, and output only the text."
)

_EXAMPLES = (
    ("Um, so I'll, I'll send you the, uh, the contract by Wednesday.", "I'll send you the contract by Wednesday."),
    ("We can deliver it on the 3rd. No, make that the 5th.", "We can deliver it on the 5th."),
    ("Is the museum open on Sundays?", "Is the museum open on Sundays?"),
    (
        "For the trip we need, first, the tickets. Second, two passports. Third, some cash.",
        "For the trip we need:\n1. The tickets.\n2. Two passports.\n3. Some cash.",
    ),
    ("Ask Julia, sorry, ask Martin to lock the door, you know.", "Ask Martin to lock the door."),
    ("We need ten plates, sorry, twelve plates for the party.", "We need twelve plates for the party."),
    ("The doctor comes at two. Sorry, the doctor comes at quarter to three.", "The doctor comes at quarter to three."),
    ("I think, you know, she's kind of tired, you know?", "I think she's tired."),
    ("They have a big, they have three dogs that bark all night.", "They have three dogs that bark all night."),
    ("Mix one spoon of honey, no wait, two spoons of honey, and milk.", "Mix two spoons of honey, and milk."),
    ("Go past the bank, then left. No, right at the bakery.", "Go past the bank, then right at the bakery."),
    ("I'd love to, I mean, I'd rather stay at home.", "I'd rather stay at home."),
    ("I want to go, I wanted to thank you for the 30 roses.", "I wanted to thank you for the 30 roses."),
    ("No, I can't come to the office today.", "No, I can't come to the office today."),
    ("Things to bring: a ball, a net, and a whistle.", "Things to bring:\n- A ball\n- A net\n- A whistle"),
    ("The taxi costs 18 dollars. Actually, it costs 28 dollars.", "The taxi costs 28 dollars."),
)


@dataclass(frozen=True)
class CleanText:
    """A dictation as it is written.

    Attributes:
        text: what was made of it, or the words as they were said.
        raw: the words as they were said.
        objection: why the text is as it was said, a sentence; empty if it is not.
    """

    text: str
    raw: str
    objection: str = ""


class DictationCleaner:
    """Rewrites dictations with a language model that has nothing else to do.

    Args:
        language_model: reads the instructions once. Each dictation is rewritten by a fork of it.
    """

    def __init__(self, language_model: LanguageModel) -> None:
        self._language_model = language_model
        self._prompt = [Message("system", _INSTRUCTIONS)]
        for raw, clean in _EXAMPLES:
            self._prompt += [Message("user", raw), Message("assistant", clean)]

    def prepare(self) -> None:
        """Read the instructions ahead. Returns at once."""
        self._language_model.prepare(Ask(self._prompt))

    def read_ahead(self, raw: str, reader: LanguageModel | None = None) -> LanguageModel:
        """Read what was said so far, while its speaker goes on. Returns at once, with what `clean` continues from.

        Args:
            reader: what an earlier call returned for this dictation.
        """
        reader = reader or self._language_model.fork()
        reader.prepare(Ask([*self._prompt, Message("user", without_hesitations(raw))]))
        return reader

    async def clean(self, raw: str, reader: LanguageModel | None = None) -> CleanText:
        """Rewrite a dictation. If the language model fails, it stays as it was said."""
        passages, objections = list[str](), list[str]()
        for passage in _passages(without_hesitations(raw)):
            try:
                text = await self._rewrite(passage, reader or self._language_model.fork())
            except (ValueError, RuntimeError) as error:
                _log.warning("a dictation could not be cleaned up: %s", error)
                why = f"the language model failed: {error}"
            else:
                why = objection(passage, text)
            passages.append(passage if why else text)
            objections += [why] if why else []
            reader = None
        return CleanText(_joined(passages), raw, "; ".join(objections))

    async def _rewrite(self, passage: str, language_model: LanguageModel) -> str:
        limit = max(_MIN_TOKENS, _MAX_TOKENS_PER_WORD * len(passage.split()))
        ask = Ask([*self._prompt, Message("user", passage)], max_tokens=limit, prediction=expected_text(passage))
        replying, text = language_model.reply(ask), ""
        async with aclosing(replying):  # type: ignore[type-var]
            async for progress in replying:
                text += progress.committed
                if progress.finished == "length":
                    raise ValueError("it wrote more than was said")
        return text.strip()


def _joined(passages: list[str]) -> str:
    """Passages one after another. What follows a list begins a line."""
    text, separator = "", ""
    for passage in filter(None, passages):
        text += separator + passage
        separator = "\n" if "\n" in passage else " "
    return text


def without_hesitations(raw: str) -> str:
    """The text without sounds that are no words: a small model copies the rest in fewer steps."""
    kept = list[str]()
    for word in raw.split():
        if plain_word(word) not in HESITATIONS or sum(map(str.isupper, word)) > 1:  # "the ER"
            kept.append(word)
        elif word.endswith(SENTENCE_ENDS) and kept and not kept[-1].endswith(SENTENCE_ENDS):
            kept[-1] = kept[-1].rstrip(",") + word[-1]
    return " ".join(kept)


def corrects_what_precedes(raw: str) -> bool:
    """Whether a sentence may correct the one before it, which is then to be rewritten together with it."""
    words = tuple(map(plain_word, raw.split()[:2]))
    return words in _CORRECTIONS or words[:1] in _CORRECTIONS


def _passages(raw: str) -> Iterator[str]:
    """The text in parts that are not too long, each of whole sentences where they are short enough. A sentence that may
    correct the one before it begins no part."""
    passage: list[str] = []
    sentence: list[str] = []
    words = raw.split()
    for number, word in enumerate(words):
        sentence.append(word)
        last = number == len(words) - 1
        if not last and not word.endswith(SENTENCE_ENDS) and len(sentence) < _MAX_WORDS:
            continue
        fits = len(passage) + len(sentence) <= _MAX_WORDS or corrects_what_precedes(" ".join(sentence))
        if passage and not fits:
            yield " ".join(passage)
            passage = []
        passage, sentence = [*passage, *sentence], []
    if passage:
        yield " ".join(passage)

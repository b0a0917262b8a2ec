"""How words are said that a voice would say wrongly: names above all. A server's lexicon has some, and a conversation
learns others."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from itertools import chain, takewhile
from pathlib import Path
from types import MappingProxyType

from agent.tool_runs import NOT_CONFIRMED
from agent.words.language import language
from chat.types import Message

_ENGLISH = language("en")

PHONEMES = re.compile(r"\[\[(.*?)\]\]")
"""Phonemes in place of a word, in IPA, in a text that a synthesizer gets."""

_BRACKETS = r"\[{2,}"
_WORD = re.compile(r"\w+(?:['’](?!s\b)\w+)*")
_POSSESSIVE = re.compile(r"['’]s\b")

_MAX_ENTRIES, _MAX_LEARNED = 10_000, 100
_IPA_SIGNS = frozenset(" .|‖‿ˈˌːˑʰʲʷˠˤ˞")
_SIBILANTS, _VOICELESS = "szʃʒ", "ptkfθ"


class Lexicon:
    """Words, and how they are said.

    Args:
        entries: by the word, or several words. One with a capital letter is meant as it is written, others in any case.
            It is said like another spelling ("win"), or like phonemes in IPA ("/wɪn/").

    Raises:
        ValueError: an entry is empty, or its phonemes are none.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        if len(entries) > _MAX_ENTRIES:
            raise ValueError(f"a lexicon has at most {_MAX_ENTRIES:,} words, and this one has {len(entries):,}")
        self._said = {word: _spelling(word, said) for word, said in entries.items()}
        self._most_words = max((len(_WORD.findall(word)) for word in entries), default=0)

    @staticmethod
    def read(path: Path) -> Lexicon:
        """Read a TOML file with a line `word = "how it is said"` for each word.

        Raises:
            ValueError: the file cannot be read, or is no such file.
        """
        try:
            return Lexicon(tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise ValueError(f"the lexicon {path} cannot be used ({error.strerror})") from None
        except ValueError as error:  # of TOML and of UTF-8, too
            raise ValueError(f"the lexicon {path} cannot be used: {error}") from None

    @staticmethod
    def learned(messages: Sequence[Message], taught: Mapping[str, str] = MappingProxyType({})) -> Lexicon:
        """What a conversation says of pronunciations: its user; if they do not, its instructions; if these do not, what
        tools returned. What is said later counts. Where the user is asked to agree to a call, outputs do not count:
        they must hear what they agree to.

        Args:
            taught: what the user has said of them in earlier conversations, which counts before the instructions.
        """
        spoken, instructions, said_before = list[tuple[str, str]](), list[str](), ""
        for message in messages:
            if message.role == "assistant":
                said_before = message.content or said_before
            elif message.role == "user":
                spoken.append((message.content, said_before))
            elif message.role != "tool":
                instructions.append(message.content)
        by_user = (_ENGLISH.pronunciations(*each) for each in reversed(spoken))
        by_operator = (_ENGLISH.pronunciations(text) for text in reversed(instructions))
        outputs = [message.content for message in messages if message.role == "tool"]
        asks = any(message.content == NOT_CONFIRMED for message in takewhile(_is_not_user, reversed(messages)))
        returned = NO_LEXICON if asks else Lexicon.respelled(outputs)
        return returned.including(_of_newest(chain(by_user, [dict(taught)], by_operator)))

    @staticmethod
    def respelled(texts: Sequence[str]) -> Lexicon:
        """What texts that anyone may have written say of pronunciations."""
        return _of_newest(_ENGLISH.pronunciations(text, trusted=False) for text in reversed(texts))

    def including(self, other: Lexicon) -> Lexicon:
        """These words with those of another lexicon, which takes precedence."""
        if not other._said:
            return self
        both = copy(self)
        both._said = self._said | other._said
        both._most_words = max(self._most_words, other._most_words)
        return both

    def apply(self, text: str) -> str:
        """What a synthesizer gets for a text: words replaced by their other spelling, or by phonemes (`PHONEMES`)."""
        text = re.sub(_BRACKETS, "[", text)  # only the lexicon writes phonemes
        if not self._said:
            return text
        words, parts, done = [word.span() for word in _WORD.finditer(text)], list[str](), 0
        for number, (start, _) in enumerate(words):
            ends = [end for _, end in words[number : number + self._most_words]] if start >= done else []
            end = next((end for end in reversed(ends) if self._find(text[start:end])), None)  # the longest entry
            if end is None:
                continue
            said = self._find(text[start:end])
            if said.endswith("]]") and (possessive := _POSSESSIVE.match(text, end)):
                said, end = f"{said[:-2]}{_ending(said[-3])}]]", possessive.end()
            parts += (text[done:start], said)
            done = end
        return "".join(parts) + text[done:]

    def _find(self, words: str) -> str:
        """How some words are said; empty if they have no entry."""
        return self._said.get(words) or self._said.get(words.lower(), "")


NO_LEXICON = Lexicon({})


def _is_not_user(message: Message) -> bool:
    return message.role != "user"


def _of_newest(found: Iterable[dict[str, str]]) -> Lexicon:
    """The newest entries, without those whose phonemes are none.

    Args:
        found: those of each text, the newest first. No more texts are read than it takes.
    """
    valid = dict[str, str]()
    for entries in found:
        for word, said in reversed(entries.items()):
            with suppress(ValueError):
                _spelling(word, said)
                valid.setdefault(word, said)
        if len(valid) >= _MAX_LEARNED:
            break
    return Lexicon(dict(list(valid.items())[:_MAX_LEARNED]))


def _spelling(word: str, said: object) -> str:
    if not isinstance(said, str) or not said.strip(" /") or not word.strip():
        raise ValueError(f'{word!r} needs a text that says how it is said, like "win" or "/wɪn/"')
    if not (said.startswith("/") and said.endswith("/")):
        return re.sub(_BRACKETS, "[", said.strip())
    phonemes = said.strip("/ ")
    for sign in phonemes:
        if unicodedata.category(sign)[0] not in "LM" and sign not in _IPA_SIGNS:
            raise ValueError(f"{sign!r} in the phonemes of {word!r} is no sign of the International Phonetic Alphabet")
    return f"[[{phonemes}]]"


def _ending(sound: str) -> str:
    """The English possessive after a sound."""
    return "ɪz" if sound in _SIBILANTS else "s" if sound in _VOICELESS else "z"

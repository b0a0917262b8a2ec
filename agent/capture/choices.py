"""One of several options: by its name, by its place ("the second one") or by a key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agent.capture.commands import Command, agreement, command_in
from agent.capture.field import Field, Progress
from agent.confirmation import begins_with_yes, reply_to_question
from agent.words.language import language

_ENGLISH = language("en")


@dataclass(frozen=True, kw_only=True)
class Choice(Field[str, str]):
    """One of several options. Its value is the option's name.

    Attributes:
        options: names, as they are read out, and other words for each of them.
    """

    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    confirm: bool = False

    kind: ClassVar[str] = "choice"
    answers_first: ClassVar[bool] = True

    @property
    def hint(self) -> str:
        names = list(self.options)
        listed = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)
        return f"Please say {listed}."

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.options)}

    def hear(self, text: str, entry: str) -> str | None:
        plain = f" {' '.join(_ENGLISH.tokens(text))} "
        named = {
            name
            for name, others in self.options.items()
            if any(f" {' '.join(_ENGLISH.tokens(phrase))} " in plain for phrase in (name, *others))
        }
        longest = [name for name in named if not any(name in other and name != other for other in named)]
        if len(longest) == 1:
            return longest[0]
        return self._by_place(plain) if not named else None

    def _by_place(self, plain: str) -> str | None:
        """ "the second one", "number two", "the last one"; a bare number only if no option has one in its name."""
        found = plain.split()
        number = next((place for i in range(len(found)) if (place := _ENGLISH.ordinal(found, i)) is not None), None)
        if number is None and (match := re.search(r"\b(?:number|option) (\w+)", plain)):
            number = _ENGLISH.cardinal([match[1]])
        if number is None and " last " in plain:
            return list(self.options)[-1]
        return self._at(number[0]) if number is not None else None

    def _at(self, place: int) -> str | None:
        return list(self.options)[place - 1] if 1 <= place <= len(self.options) else None

    def press(self, keys: str, entry: str) -> str | None:
        return self._at(int(keys)) if keys else None

    def progress(self, entry: str) -> Progress:
        return Progress.COMPLETE if entry else Progress.EMPTY

    def value(self, entry: str) -> str:
        return entry

    def read_back(self, entry: str, *, careful: bool) -> str:
        return entry


class _YesOrNo(Choice):
    """An answer that begins with yes or no. "I'm not sure" is neither, and "cancel" is left to the dialogue."""

    def hear(self, text: str, entry: str) -> str | None:
        if command_in(text) is Command.CANCEL:
            return None
        if begins_with_yes(text) or reply_to_question(text) == "yes":
            return "yes"
        return "no" if agreement(text) == "no" else None


def yes_or_no(prompt: str) -> Choice:
    """A question whose value is "yes" or "no"."""
    return _YesOrNo(prompt=prompt, options={"yes": (), "no": ()})

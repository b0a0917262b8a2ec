"""What a form asks for: the interface of all kinds of fields. A field is a value; what was heard of it is an entry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from agent.capture.corrections import without_denial

Entry = TypeVar("Entry")
Value = TypeVar("Value")


class Progress(Enum):
    """How far an entry is from a value."""

    EMPTY = "empty"
    PARTIAL = "partial"
    POSSIBLE = "possible"
    """A value, which may go on."""
    COMPLETE = "complete"


@dataclass(frozen=True, kw_only=True)
class Field(ABC, Generic[Entry, Value]):
    """One piece of data. All methods are pure.

    Attributes:
        prompt: asks for it.
        confirm: whether the value is read back and has to be confirmed.
        optional: whether the caller may do without ("skip"); the value is then None.
        check: says in a sentence what is wrong with a value ("We are closed on Sundays."), or nothing if it is right.
            It may be called for values that are never confirmed, so it must change nothing and return at once.
        tries: misunderstandings before the form gives up.
    """

    prompt: str
    confirm: bool = True
    optional: bool = False
    check: Callable[[Value], str] | None = None
    tries: int = 4

    kind: ClassVar[str]
    """What the field is called when it is spoken about, such as "phone number"."""

    empty: ClassVar[Any] = ""
    """The entry while nothing was heard."""

    answers_first: ClassVar[bool] = False
    """Whether an answer may sound like a command ("cancel"), and then is no command."""

    key_by_key: ClassVar[bool] = False
    """Whether every key that is pressed adds to the entry, which is a text. Otherwise keys are a whole entry."""

    @property
    @abstractmethod
    def hint(self) -> str:
        """Says how to answer, after something that was not understood."""

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON schema of the value in JSON."""

    @abstractmethod
    def hear(self, text: str, entry: Entry) -> Entry | None:
        """The entry after the caller has said more; None if nothing in the text belongs to it."""

    def press(self, keys: str, entry: Entry) -> Entry | None:
        """The entry after digits were pressed on a telephone; None if it cannot be entered by keys."""
        return None

    def correct(self, text: str, entry: Entry) -> Entry | None:
        """The entry as the caller corrects it once it was read back; None if the text is no correction."""
        return self.hear(without_denial(text), entry)

    @abstractmethod
    def progress(self, entry: Entry) -> Progress:
        """How far the entry is from a value."""

    def ask_rest(self, entry: Entry) -> str:
        """Asks for what a partial entry lacks."""
        return self.prompt

    @abstractmethod
    def value(self, entry: Entry) -> Value:
        """The value of a possible or complete entry. Raises ValueError, with a sentence for the caller, if there is no
        such value."""

    @abstractmethod
    def read_back(self, entry: Entry, *, careful: bool) -> str:
        """The entry in words, grouped as people say it.

        Args:
            careful: the caller has corrected it: leave no room for mishearing.
        """

    def to_json(self, value: Value) -> Any:
        """The value as its schema describes it."""
        return str(value)

    def problem(self, entry: Entry) -> str:
        """What is wrong with a possible or complete entry, as a sentence; empty if nothing is."""
        try:
            value = self.value(entry)
        except ValueError as error:
            return str(error)
        return self.check(value) if self.check is not None else ""

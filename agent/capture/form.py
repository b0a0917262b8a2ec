"""A form: fields that are asked for one after another, and the pure dialogue that fills them in.

    asking ──value──▶ confirming ──yes──▶ next field … ──▶ done
      ▲  └─part─▶ asks for the rest   │
      └──────────no, correction───────┘

`step` takes what was heard or pressed and returns the next state, which holds what to say. There is no clock and no
model in it; `agent.capture.form_runner` connects it to a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal

from agent.capture.commands import Command, agreement, command_in, is_filler
from agent.capture.corrections import is_correction, without_denial, wrong_part
from agent.capture.field import Field, Progress

_MAX_INPUTS = 40
"""Inputs to one field before the form gives up, however many of them were understood."""

_HEARD_SLACK = 12
"""Characters of a read-back that may be unheard when the caller agrees: how much was heard is an estimate."""

_KEYS = "0123456789*#"
"""What can be pressed; the keys A to D of some telephones mean nothing here."""

_RIGHT = "Is that right?"
_RIGHT_BY_KEY = "If that is right, press 1, otherwise 2."


@dataclass(frozen=True)
class Heard:
    """The caller has said something.

    Attributes:
        after: what they had heard of the assistant since they last said something.
    """

    text: str
    after: str = ""


@dataclass(frozen=True)
class Pressed:
    """The caller has pressed keys: digits, `*` and `#`."""

    keys: str


class Phase(Enum):
    """Where the dialogue about one field is."""

    ASKING = "asking"
    CONFIRMING = "confirming"
    CORRECTING = "correcting"
    """The value that was read back is wrong, and the caller has not said how."""


class Pause(Enum):
    """How long to wait for more after an input."""

    SHORT = "short"
    """There is no more to come."""
    DICTATION = "dictation"
    """There may be more."""
    PATIENT = "patient"
    """There must be more."""


Outcome = Literal["filled", "given_up", "cancelled"]


@dataclass(frozen=True)
class FormState:
    """The state of a form.

    Attributes:
        say: what the assistant says next.
        pause: how long to wait after the newest input; None to judge by the words.
        values: of the fields so far.
        index: number of the current field.
        entry: what was heard of the current field.
        failures: inputs for this field that did not help.
        inputs: all inputs for this field.
        careful: the value was wrong once.
        value: of the entry that was read back, as it was then: "tomorrow" may be another day by now.
        read_back: the value in words, which have to be heard before an agreement counts.
        wrong: the part of the entry that the caller has called wrong, such as "the last digit"; empty if none.
        by_keys: the caller uses the telephone's keys.
        outcome: how the form ended; None while it has not.
    """

    say: str
    values: Mapping[str, Any] = field(default_factory=dict)
    index: int = 0
    phase: Phase = Phase.ASKING
    entry: Any = None
    failures: int = 0
    inputs: int = 0
    careful: bool = False
    value: Any = None
    read_back: str = ""
    wrong: str = ""
    by_keys: bool = False
    pause: Pause | None = None
    outcome: Outcome | None = None


class Form:
    """Fields to fill in, in this order.

    Args:
        closing: said when the last field is filled in; what follows takes a moment.
        giving_up: said when a field was not understood too often.
        fields: by name.
    """

    def __init__(
        self,
        *,
        closing: str = "Thank you.",
        giving_up: str = "Sorry, I cannot understand it.",
        **fields: Field[Any, Any],
    ) -> None:
        if not fields:
            raise ValueError("a form needs at least one field: Form(phone=PhoneNumber())")
        self.closing, self.giving_up = closing, giving_up
        self.fields: Mapping[str, Field[Any, Any]] = MappingProxyType(dict(fields))
        self._names = tuple(fields)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the values in JSON."""
        return {
            "type": "object",
            "properties": {
                name: {"anyOf": [field.schema, {"type": "null"}]} if field.optional else field.schema
                for name, field in self.fields.items()
            },
            "required": list(self.fields),
        }

    def to_json(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values as the schema describes them."""
        return {name: None if value is None else self.fields[name].to_json(value) for name, value in values.items()}

    def start(self) -> FormState:
        """The state before anything was heard."""
        field = self.fields[self._names[0]]
        return FormState(field.prompt, entry=field.empty)

    def field(self, state: FormState) -> Field[Any, Any]:
        """The current field."""
        return self.fields[self.field_name(state)]

    def field_name(self, state: FormState) -> str:
        """The name of the current field, or of the last one."""
        return self._names[min(state.index, len(self._names) - 1)]

    def step(self, state: FormState, event: Heard | Pressed) -> FormState:
        """The state after an input."""
        keys = "".join(key for key in event.keys if key in _KEYS) if isinstance(event, Pressed) else ""
        is_input = bool(keys) if isinstance(event, Pressed) else not is_filler(event.text)
        if state.outcome is not None or not is_input:
            return replace(state, pause=None)
        counted = replace(state, inputs=state.inputs + 1, pause=None)
        if isinstance(event, Pressed):
            after = self._on_keys(replace(counted, by_keys=True), keys)
        else:
            after = self._on_speech(replace(counted, by_keys=False), event)
        field = self.field(state)
        if after.index == state.index and (after.failures >= field.tries or after.inputs >= _MAX_INPUTS):
            return replace(after, outcome="given_up", say=self.giving_up, pause=Pause.SHORT)
        return after

    # Speech.

    def _on_speech(self, state: FormState, heard: Heard) -> FormState:
        command, field = command_in(heard.text), self.field(state)
        if command is Command.DONE and state.phase is Phase.CONFIRMING:
            command = None  # "that's it" agrees then
        if field.answers_first and field.hear(heard.text, field.empty) is not None:
            command = None
        if command is not None:
            return self._on_command(state, command)
        match state.phase:
            case Phase.CONFIRMING:
                return self._on_confirmation(state, heard)
            case Phase.CORRECTING:
                return self._on_correction(state, heard.text)
            case _:
                return self._on_answer(state, heard.text)

    def _on_answer(self, state: FormState, text: str) -> FormState:
        field = self.field(state)
        if field.progress(state.entry) is not Progress.EMPTY:
            corrected = field.correct(text, state.entry) if is_correction(text) else None
            if corrected in (None, state.entry) and (wrong := wrong_part(text)):
                return self._ask_right(state, wrong)
            if corrected is not None:
                return self._take(state, corrected)
        entry = field.hear(text, state.entry)
        return self._not_understood(state) if entry is None else self._take(state, entry)

    def _on_confirmation(self, state: FormState, heard: Heard) -> FormState:
        field, text = self.field(state), heard.text
        was_heard = len(heard.after.strip()) >= len(state.read_back) - _HEARD_SLACK
        reply = agreement(text)
        if reply == "yes":
            return self._accept(state) if was_heard else replace(state, pause=Pause.SHORT)
        if reply == "no" and not without_denial(text):
            say = f"Sorry. What is wrong with it? Or say the {field.kind} again."
            return replace(
                state, phase=Phase.CORRECTING, failures=state.failures + 1, careful=True, say=say, pause=Pause.DICTATION
            )
        if reply == "no" or wrong_part(text):
            return self._on_correction(replace(state, careful=True), text)
        if (corrected := field.correct(text, state.entry)) is not None:
            return self._take(replace(state, careful=True), corrected)
        entry = self._continued(field, state, text, was_heard)
        if entry is not None:
            return self._take(state, entry)
        say = f"{state.read_back} Please say yes or no."
        return replace(state, failures=state.failures + 1, say=say)

    def _continued(self, field: Field[Any, Any], state: FormState, text: str, was_heard: bool) -> Any:
        """The entry if a text goes on with it after its end, or says another value; None if it does neither."""
        known, fresh = field.hear(text, state.entry), field.hear(text, field.empty)
        if known is None:
            return None
        if fresh is not None and field.progress(fresh) in (Progress.POSSIBLE, Progress.COMPLETE) and was_heard:
            return fresh
        if field.progress(state.entry) is Progress.POSSIBLE or not was_heard:
            return known
        return None

    def _on_correction(self, state: FormState, text: str) -> FormState:
        """The value that was read back is wrong: the text corrects it, or says it again."""
        field = self.field(state)
        entry = field.correct(text, state.entry)
        if entry in (None, state.entry) and (wrong := wrong_part(text)):
            return self._ask_right(state, wrong)
        if entry is None and state.wrong:
            entry = field.correct(f"{state.wrong} is {without_denial(text)}", state.entry)
        if entry is None:
            entry = field.hear(without_denial(text), field.empty)
            if entry is None or (state.wrong and field.progress(entry) is Progress.PARTIAL):
                return self._not_understood(replace(state, wrong=""))
        return self._take(state, entry)

    def _ask_right(self, state: FormState, wrong: str) -> FormState:
        """The caller has said which part of the entry is wrong: ask what it should be."""
        say = "What should it be?"
        return replace(state, phase=Phase.CORRECTING, careful=True, wrong=wrong, say=say, pause=Pause.DICTATION)

    def _on_command(self, state: FormState, command: Command) -> FormState:
        field = self.field(state)
        match command:
            case Command.CANCEL:
                return replace(state, outcome="cancelled", say="All right.", pause=Pause.SHORT)
            case Command.START_OVER:
                return self._again(state, "All right, from the beginning.")
            case Command.WAIT:
                return replace(state, say="Take your time.", pause=Pause.DICTATION)
            case Command.REPEAT:
                return replace(state, say=self._question(state), pause=Pause.SHORT)
            case Command.SKIP if field.optional:
                return self._next(state, None)
            case Command.DONE if field.progress(state.entry) is Progress.POSSIBLE:
                return self._take(state, state.entry)
        return self._not_understood(state)

    # Keys.

    def _on_keys(self, state: FormState, keys: str) -> FormState:
        field, digits = self.field(state), keys.replace("#", "")
        if state.phase is Phase.CONFIRMING:
            if digits in ("1", "") and "*" not in keys:
                return self._accept(state)
            if digits in ("2", "*"):
                return self._again(replace(state, careful=True, failures=state.failures + 1))
        known: Any = state.entry if state.phase is Phase.ASKING else field.empty
        if field.key_by_key:
            for key in digits:
                known = known[:-1] if key == "*" else field.press(key, known)
        else:
            typed = digits.rpartition("*")[2]  # what was typed before a star is withdrawn
            known = field.press(typed, known) if typed else None
        if known is None:
            return self._not_understood(state)
        if field.progress(known) is Progress.EMPTY:
            return self._again(state)
        return self._take(replace(state, phase=Phase.ASKING), known)

    # What follows.

    def _take(self, state: FormState, entry: Any) -> FormState:
        """Another entry: ask for the rest, or read it back."""
        field, progress, state = self.field(state), self.field(state).progress(entry), replace(state, wrong="")
        if progress in (Progress.EMPTY, Progress.PARTIAL):
            say = field.ask_rest(entry) if progress is Progress.PARTIAL else field.prompt
            return replace(state, phase=Phase.ASKING, entry=entry, say=say, pause=Pause.PATIENT)
        if problem := field.problem(entry):
            return replace(self._again(state, problem), failures=state.failures + 1, pause=Pause.DICTATION)
        pause = Pause.SHORT if progress is Progress.COMPLETE else Pause.DICTATION
        taken = replace(state, phase=Phase.CONFIRMING, entry=entry, value=field.value(entry), pause=pause)
        if not field.confirm:
            return replace(self._accept(taken), pause=pause)
        read_back = f"I have {field.read_back(entry, careful=state.careful)}."
        right = _RIGHT_BY_KEY if state.by_keys else _RIGHT
        return replace(taken, say=f"{read_back} {right}", read_back=read_back)

    def _question(self, state: FormState) -> str:
        """What the caller is to answer now."""
        field = self.field(state)
        if state.phase is Phase.CONFIRMING:
            return f"{state.read_back} {_RIGHT}"
        partial = field.progress(state.entry) is Progress.PARTIAL
        return field.ask_rest(state.entry) if partial else field.prompt

    def _accept(self, state: FormState) -> FormState:
        return self._next(state, state.value)

    def _next(self, state: FormState, value: Any) -> FormState:
        """The field has its value: ask for the next one."""
        values = MappingProxyType({**state.values, self.field_name(state): value})
        index = state.index + 1
        if index == len(self._names):
            return replace(state, values=values, index=index, outcome="filled", say=self.closing, pause=Pause.SHORT)
        field = self.fields[self._names[index]]
        say = f"Thank you. {field.prompt}"
        return FormState(say, values, index, entry=field.empty, pause=Pause.SHORT, by_keys=state.by_keys)

    def _again(self, state: FormState, opening: str = "All right.") -> FormState:
        field = self.field(state)
        say = f"{opening} {field.prompt}"
        return replace(state, phase=Phase.ASKING, entry=field.empty, say=say, pause=Pause.SHORT)

    def _not_understood(self, state: FormState) -> FormState:
        field = self.field(state)
        say = f"Sorry, I didn't get that. {field.hint}"
        return replace(state, failures=state.failures + 1, say=say)

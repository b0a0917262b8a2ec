"""Runs forms in a conversation: while one runs, it speaks instead of the language model.

The dialogue itself is `agent.capture.form`. Its state follows the conversation: what the user said since the state was
committed is an input, so that a speculative response can be prepared from a state that nobody has committed to yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.capture.commands import SILENCE, is_filler
from agent.capture.form import Form, FormState, Heard, Outcome, Pause, Pressed
from agent.capture.keys import pressed_keys
from agent.matched_text import for_patterns
from chat.types import Message


class NotCaptured(ValueError):
    """A form was not filled in.

    Attributes:
        field: the name of the field that it ended with.
        outcome: `given_up` after too many misunderstandings, or `cancelled` by the user.
        values: of the fields before.
    """

    def __init__(self, field: str, kind: str, outcome: Outcome, values: dict[str, Any]) -> None:
        reason = "the user cancelled it" if outcome == "cancelled" else "it was not understood"
        super().__init__(f"The {kind} is not known: {reason}.")
        self.field, self.outcome, self.values = field, outcome, values


@dataclass
class _Run:
    """A form that runs: its committed state, and how many inputs have led to it."""

    form: Form
    state: FormState
    inputs: int
    filled: asyncio.Future[FormState]

    def after(self, inputs: Sequence[Heard | Pressed]) -> FormState:
        """The state after these inputs of the whole conversation."""
        state = self.state
        for event in inputs[self.inputs :]:
            state = self.form.step(state, event)
        return state


class FormRunner:
    """The forms of one conversation, one at a time.

    Args:
        conversation: returns its messages.
        on_question: called when a form has something to ask that nobody has just said anything before.

    Attributes:
        active: set while a form runs.
    """

    def __init__(self, conversation: Callable[[], Sequence[Message]], on_question: Callable[[], None]) -> None:
        self._conversation, self._on_question = conversation, on_question
        self._lock = asyncio.Lock()
        self._run: _Run | None = None
        self.active = asyncio.Event()

    async def fill_in(self, form: Form) -> dict[str, Any]:
        """Run a form, after those that run already. Returns the values by name; raises NotCaptured."""
        async with self._lock:
            filled: asyncio.Future[FormState] = asyncio.get_running_loop().create_future()
            self._run = _Run(form, form.start(), len(_inputs(self._conversation())), filled)
            self.active.set()
            self._on_question()
            try:
                state = await filled
            finally:
                self._run = None
                self.active.clear()
        if state.outcome is None or state.outcome == "filled":
            return dict(state.values)
        raise NotCaptured(form.field_name(state), form.field(state).kind, state.outcome, dict(state.values))

    def reply(self, prompt: Sequence[Message]) -> str | None:
        """What the form says to a conversation; None if the language model is to respond to it. Changes nothing."""
        run = self._run
        if run is None:
            return None
        inputs = _inputs(prompt)
        over = run.state.outcome is not None
        if over and (len(inputs) > run.inputs or not _input(prompt[-1], "")):
            return None
        return run.after(inputs).say

    def commit(self, prompt: Sequence[Message]) -> None:
        """The response to this conversation is no longer a speculative one."""
        run = self._run
        if run is not None and run.state.outcome is None:
            inputs = _inputs(prompt)
            run.state, run.inputs = run.after(inputs), len(inputs)

    def settle(self) -> None:
        """Both sides are silent: a form whose last words were said is done."""
        run = self._run
        if run is not None and run.state.outcome is not None and not run.filled.done():
            run.filled.set_result(run.state)

    def pause_after(self, prompt: Sequence[Message]) -> Pause | None:
        """How long to wait for more after the last message; None to judge by its words."""
        run, inputs = self._run, _inputs(prompt)
        if run is None or run.state.outcome is not None or len(inputs) == run.inputs:
            return None  # "um" is no input
        return run.after(inputs).pause


class Dialogue:
    """The conversation with the user, for one call of a tool that asks for data. While a form runs, the call's time
    limit does not."""

    def __init__(self, forms: FormRunner, limit: asyncio.Timeout, timeout_s: float) -> None:
        self._forms, self._limit, self._timeout_s = forms, limit, timeout_s

    async def fill_in(self, form: Form) -> dict[str, Any]:
        """Ask the user for the fields of a form, in the language model's place. Returns their values by name.

        Raises:
            NotCaptured: a field was not understood too often, or the user does not want to go on.
        """
        self._limit.reschedule(None)
        try:
            return await self._forms.fill_in(form)
        finally:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)


def _inputs(messages: Sequence[Message]) -> list[Heard | Pressed]:
    """What the user has said and pressed, with what they heard before."""
    inputs: list[Heard | Pressed] = []
    heard = ""
    for message in messages:
        if message.role == "assistant":
            heard += message.content
        elif (event := _input(message, heard)) is not None:
            inputs.append(event)
            heard = ""
    return inputs


def _input(message: Message, heard: str) -> Heard | Pressed | None:
    """A message as an input; None if it is none."""
    text = for_patterns(message.content)
    if message.role == "user":
        return None if is_filler(text) or text.startswith(SILENCE) else Heard(text, heard)
    keys = pressed_keys(text) if message.role == "system" else ""
    return Pressed(keys) if keys else None

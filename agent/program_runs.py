"""Programs as evidence: what comes of those that the language model writes for a turn, and of the closed forms."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from agent.closed_forms import closed_form
from agent.matched_text import named_in, words_of
from agent.plan import Evidence, MakeCall, Turn, refusal
from agent.program.check import ignores_supposed_day, missing_number
from agent.program.evaluator import Outcome, run_program
from agent.program.prompt import inability, with_missing
from agent.program.speech import answer
from agent.program.values import BadProgram, Duration, NeedsRate
from agent.quotation import is_quoted
from agent.tools.calculator import CALCULATE
from chat.progress import Progress

_log = logging.getLogger("rejoinder.agent")

_MAX_PROGRAMS = 16
"""Programs that are remembered, for what the user says next."""

_FILLERS = frozenset("a all any every my of our that the these those your".split())

TALK = "talk()"
"""The program for what is no task."""


class ProgramRuns:
    """Runs the programs of one conversation, and remembers them.

    Args:
        now: the time here, with its zone.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._programs: OrderedDict[str, str] = OrderedDict()
        self._beside: Outcome | None = None

    def taken_beside(self) -> Outcome | None:
        """What the newest program asks or refuses besides its calls, if it has not been taken."""
        beside, self._beside = self._beside, None
        return beside

    def earlier(self, said: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """What the user said before, each with its program."""
        return tuple((before, self._programs.get(before, TALK)) for before in said)

    def closed_form(self, turn: Turn) -> tuple[MakeCall, ...]:
        """The call that answers a closed form."""
        program = closed_form(turn.said) if turn.said and CALCULATE in turn.replaced else None
        if program is None:
            return ()
        try:
            outcome = run_program(program, self._now(), {})
        except BadProgram:
            return ()
        if any(isinstance(value, Duration) and value.seconds < 0 for value, _ in outcome.answers):
            return ()  # the days until one that is over
        self._remember(turn.said, program)
        return (MakeCall(CALCULATE, json.dumps({"program": program})),)

    def with_program(self, turn: Turn, evidence: Evidence, program: str) -> Evidence:
        """The evidence with what came of a program. If nothing did, what the user said is answered as talk."""
        now, available = self._now(), {tool.name for tool in turn.functions}
        try:
            outcome = self._run(turn, program)
            speech = " ".join(answer(value, unit, now) for value, unit in outcome.answers)
        except NeedsRate:
            outcome, speech, program = Outcome(refusal="tell exchange rates"), "", 'cannot("tell exchange rates")'
        except BadProgram as error:
            _log.info("the program for a task, of %d characters, could not be run", len(program))
            if error.begin and not evidence.program_begin:
                return replace(evidence, program_begin=error.begin)
            return replace(evidence, is_task=False)
        if ignores_supposed_day(outcome, turn.said):
            return replace(evidence, is_task=False)
        known = [turn.said, *(said for said, _ in turn.programs)]
        if question := missing_number(outcome, known):
            outcome, speech, program = Outcome(question=question), "", f"ask({json.dumps(question)})"
        if missing := inability([call.name for call in outcome.calls if call.name not in available]):
            outcome = replace(outcome, refusal=" or ".join(filter(None, [outcome.refusal, missing])))
        calls = [
            MakeCall(call.name, json.dumps(dict(call.arguments))) for call in outcome.calls if call.name in available
        ]
        if outcome.refusal and not (calls or speech or outcome.question) and (able := _able(turn, outcome.refusal)):
            outcome, calls, program = Outcome(), [MakeCall(able, "{}")], f"{able}()"
        others = any(tool.name not in turn.replaced for tool in turn.ask.tools)
        if outcome.refusal and others and not (calls or speech or outcome.question):
            return replace(evidence, is_task=False, refused=refusal(outcome))  # one of the others may be able to
        if outcome.answers and CALCULATE in turn.replaced:
            calls.insert(0, MakeCall(CALCULATE, json.dumps({"program": outcome.computing})))
        elif not (calls or speech or outcome.question or outcome.refusal):
            return replace(evidence, is_task=False, program=outcome)
        self._remember(turn.said, program)
        self._beside = outcome if calls else None
        return replace(evidence, program=outcome, program_calls=tuple(calls), program_speech=speech)

    def keeps_quoted(self, turn: Turn, held: Sequence[Progress], program: str) -> bool:
        """Whether a call that is held was named in a text that a program keeps, or would keep with functions that are
        not here: a reminder to unlock the door unlocks nothing either."""
        try:
            outcome = self._run(turn, program)
        except BadProgram:
            return False
        if outcome.refusal:
            return False
        texts = [value for call in outcome.calls for value in dict(call.arguments).values() if isinstance(value, str)]
        names = {delta.name for progress in held for delta in progress.tool_calls}
        return any(is_quoted(name, turn.said, texts) for name in names)

    def _run(self, turn: Turn, program: str) -> Outcome:
        """Run a program. Raises BadProgram."""
        functions = {tool.name: list(tool.parameters["properties"]) for tool in with_missing(turn.functions)}
        return run_program(program, self._now(), functions)

    def _remember(self, said: str, program: str) -> None:
        self._programs[said] = program
        self._programs.move_to_end(said)
        while len(self._programs) > _MAX_PROGRAMS:
            self._programs.popitem(last=False)


def _able(turn: Turn, refused: str) -> str:
    """The function that does what a program says cannot be done, and needs no arguments; empty if there is none."""
    words = set(words_of(refused)) - _FILLERS
    tools = (tool for tool in turn.functions if not tool.parameters.get("properties"))
    return next((tool.name for tool in tools if words == set(named_in(tool.name))), "")

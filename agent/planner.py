"""Carries out plans: gathers the evidence about a turn, asks the language models, and plans again with what they say.

One planner serves one conversation. Everything that it waits for can be cancelled at any time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, cast

from agent.brevity import brief
from agent.claims import deeds_of, without_claims
from agent.closed_forms import closed_form
from agent.language_model import LanguageModel, RemoteRequest
from agent.plan import Decision, Evidence, MakeCall, Say, Turn, plan, refusal
from agent.program.check import ignores_supposed_day, missing_number
from agent.program.evaluator import Outcome, run_program
from agent.program.prompt import inability, with_missing
from agent.program.speech import THINKING_PHRASE, answer
from agent.program.values import BadProgram, Duration, local_time
from agent.quotation import is_quoted, may_be_quoted
from agent.reasoning.reasoner import Reasoner, ReasoningEffort, with_conclusion
from agent.tool_runs import NOT_CONFIRMED, ToolRuns
from agent.tools.calculator import CALCULATE
from agent.tools.tool_selection import ToolSelection
from agent.words.language import language
from chat.progress import Progress
from chat.types import HANDED_OVER, Ask, HandedOver, Message, Tool, Truncation

if TYPE_CHECKING:
    from agent.documents.evidence import DocumentEvidence
    from agent.documents.grounding import Grounding
    from agent.remote.remote_llm import RemoteLLM

_log = logging.getLogger("rejoinder.voice")

_ENGLISH = language("en")

_MAX_PROGRAMS = 16
"""Programs that are remembered, for what the user says next."""

_NUM_EARLIER = 2
"""Earlier turns that a program's prompt has: what "and in Berlin?" takes up."""

_MAX_CORRECTION = 12
"""Words of a sentence that only says how a name is pronounced."""

_BRIDGED_AFTER_S = 0.6
"""A program that is not written so long after the first clause was needed is bridged by a phrase: the user has heard
nothing for about a second."""

_TALK = "talk()"
"""The program for what is no task."""


class Planner:
    """Decides what the responses of one conversation say, and with which language model.

    Args:
        runs: the calls of the conversation's tools; None if there are none.
        documents: what documents have to say; None if there are none.
        remote: the bigger model; None if there is none.
        now: the time here, with its zone.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        runs: ToolRuns | None = None,
        documents: DocumentEvidence | None = None,
        remote: RemoteLLM | None = None,
        now: Callable[[], datetime] = local_time,
    ) -> None:
        self.language_model = language_model
        self.runs = runs
        self._documents, self._remote, self._now = documents, remote, now
        self._remote_request: RemoteRequest | None = None  # the newest; others are cancelled
        self._programmer: LanguageModel | None = None  # reads the prompts of programs, which begin otherwise
        self._selection = ToolSelection()
        self._programs: OrderedDict[str, str] = OrderedDict()
        self._beside: Outcome | None = None  # what a program asks or refuses besides its calls
        self._preparing: asyncio.Task[None] | None = None

    # Reading ahead.

    def prepare(self, ask: Ask) -> None:
        """Let the language model read ahead what it would be asked: a plan for what the user has said so far."""
        self._stop_preparing()
        turn = self._turn(ask)
        if self._documents is not None and ask.messages[-1:] and self._documents.is_asked(ask.messages):
            self._preparing = asyncio.get_running_loop().create_task(self._prepare(turn, self._documents))
            return
        self.language_model.prepare(self._provisional(turn, None))

    async def _prepare(self, turn: Turn, documents: DocumentEvidence) -> None:
        grounding = await documents.find(turn.ask.messages, final=False)
        self.language_model.prepare(self._provisional(turn, grounding))

    def _provisional(self, turn: Turn, grounding: Grounding | None) -> Ask:
        """What a language model would be asked if this were all that the user says."""
        recognizes = self.language_model.recognizes_tasks
        do = plan(turn, Evidence(grounding=grounding, recognizes_tasks=recognizes)).do
        return do if isinstance(do, Ask) else turn.ask

    def _stop_preparing(self) -> None:
        """What is prepared later than this would cancel the request that is about to be made."""
        if self._preparing is not None:
            self._preparing.cancel()
            self._preparing = None

    # Responses.

    async def respond(
        self, ask: Ask, *, first: bool = True, remote_leads: bool = False
    ) -> AsyncIterator[Decision | Progress | RemoteRequest]:
        """One step of a response: each decision, followed by what a language model says to it. Before words are sent
        elsewhere, yields where.

        Args:
            ask: the conversation, with all functions that may be called.
            first: whether it is the response's first step.
            remote_leads: whether the bigger model has made the calls whose outputs come last.
        """
        self._stop_preparing()
        turn = self._turn(ask)
        beside, self._beside = None if first else self._beside, None
        if beside is not None and beside.refusal:
            yield Decision(Say(f"{refusal(beside)} "), "program", "part of it cannot be done")
        evidence = await self._evidence(turn, first=first, remote_leads=remote_leads)
        question = "" if beside is None else beside.question
        bridge_at = math.inf if ask.deadline is None else ask.deadline + _BRIDGED_AFTER_S
        effort = _reasoning_effort(turn)
        held = list[Progress]()  # calls that may only be dictated, until a program tells
        while True:
            decision = plan(turn, evidence)
            yield decision
            if isinstance(decision.do, Say) and question and not decision.do.text.endswith("?"):
                yield Decision(Say(f" {question}"), "program", "something is missing")
            if not isinstance(decision.do, Ask):
                return
            if decision.policy == "bigger model":
                assert self._remote is not None
                request, begun = self._remote.new_request(decision.reason), False
                self._remote_request = request
                yield request
                async with aclosing(self._remote.answer(request, decision.do)) as answering:  # type: ignore[type-var]
                    async for progress in answering:
                        if self._remote_request is not request:
                            return
                        begun = True
                        yield progress
                if begun or request.status not in ("slow", "failed"):
                    return
                evidence = replace(evidence, remote_reason=None)
            elif decision.policy == "program":
                program, ended = "", None
                async with aclosing(self._programming.reply(decision.do)) as writing:  # type: ignore[type-var]
                    async for written in writing:
                        program, ended = program + written.committed, written.finished
                        yield written.with_text("", finished=None)
                        if not ended and time.monotonic() > bridge_at:
                            bridge_at = math.inf
                            yield Decision(Say(THINKING_PHRASE), "program", "it takes a while")
                if ended == "length":  # what was cut off may have another value: 2 * 3 of 2 * 35
                    program = ""
                if held and not self._keeps_quoted(turn, held, program):
                    for answered in held:
                        yield answered
                    return
                is_dictated, held = bool(held), []
                evidence = self._with_program(turn, evidence, program)
                if is_dictated and evidence.refused:  # the language model would make the same call again
                    yield Decision(Say(evidence.refused), "program", "it cannot be done")
                    return
            else:
                ended = None
                if effort is not None and decision.policy == "local model" and not decision.do.tools:
                    reasoner = Reasoner(self.language_model.fork(), decision.do.messages, effort)
                    effort, ended = None, await self._verdict(decision.do)
                    if ended is None and await reasoner.kind() != "text":
                        yield Decision(Say(THINKING_PHRASE), "local model", "it is worked out first")
                        if (conclusion := await reasoner.conclude()) is not None:
                            messages = with_conclusion(decision.do.messages, conclusion)
                            decision = replace(decision, do=replace(decision.do, messages=messages))
                if ended is None:
                    asked, replies = decision.do, self._ask_local(turn, decision, self._uncalled(ask))
                    assert isinstance(asked, Ask)
                    is_refused = bool(evidence.refused) and decision.policy == "local model"
                    async with aclosing(_call_or_question(replies) if is_refused else replies) as replying:  # type: ignore[type-var]
                        async for answered in replying:
                            ended = answered.finished
                            if held or self._may_be_quoted(turn, asked, answered):
                                held.append(answered)
                            else:
                                yield answered if ended not in HANDED_OVER else answered.with_text("", finished=None)
                    if is_refused and ended is None:
                        yield Decision(Say(evidence.refused), "program", "no function does it either")
                        return
                if held:
                    evidence = replace(evidence, is_task=True)
                elif ended not in HANDED_OVER:
                    if question and ended == "stop":
                        yield Decision(Say(f" {question}"), "program", "something is missing")
                    return
                match ended:
                    case "task":
                        evidence = replace(evidence, is_task=True)
                    case "danger":
                        evidence = replace(evidence, is_danger=True)
                    case "dismissal":
                        evidence = replace(evidence, dismissed=True)

    def _turn(self, ask: Ask) -> Turn:
        newest = ask.messages[-1] if ask.messages else Message("system", "")
        said = newest.content if newest.role == "user" else ""
        if self.runs is None or ask.tool_choice != "auto":
            return Turn(ask, said=said if ask.tool_choice in ("auto", "none") and ask.grammar is None else "")
        replaced = self.runs.tools.replaced & {tool.name for tool in ask.tools}
        kept = replaced if self.language_model.recognizes_tasks else frozenset[str]()
        chosen = self._selection.select([tool for tool in ask.tools if tool.name not in kept], ask.messages)
        ask = replace(ask, tools=[tool for tool in ask.tools if tool.name in kept or tool in chosen])
        if ask.grammar is not None:
            return Turn(ask)
        users = [message.content for message in ask.messages if message.role == "user"]
        earlier = users[:-1][-_NUM_EARLIER:] if said else []
        programs = tuple((before, self._programs.get(before, _TALK)) for before in earlier)
        functions = tuple(tool for tool in self.runs.tools.functions if tool.name in replaced)
        return Turn(ask, functions, replaced, said, programs)

    async def _evidence(self, turn: Turn, *, first: bool, remote_leads: bool) -> Evidence:
        """What is known about a turn before a language model is asked."""
        messages, runs = turn.ask.messages, self.runs
        evidence = Evidence(recognizes_tasks=self.language_model.recognizes_tasks, is_task=None if first else False)
        if runs is not None:
            verbatim = not remote_leads and turn.ask.grammar is None  # a grammar is for what reads the answer
            output = runs.words_of_outputs(messages, verbatim=verbatim)
            manner = _ENGLISH.wanted_manner(turn.said) if first and turn.ask.spoken else None
            repeats = manner in ("slower", "louder") or (first and _ENGLISH.asks_to_repeat(turn.said))
            evidence = replace(
                evidence,
                form=runs.forms.reply(messages),
                opening=runs.opening(messages),
                output=output,
                confirmation=runs.confirmation(messages),
                dismissed=first and _ENGLISH.is_dismissal(turn.said),
                manner=manner,
                pronounced=_pronounced(turn) if first and turn.ask.spoken else "",
                repeated=_said_last(messages) if repeats else "",
                closed=() if remote_leads else self._closed_form(turn),
            )
        if self._remote is not None and self._remote.breaker.allows and turn.ask.grammar is None:
            from agent.remote.routing import reason_for_remote

            reason = reason_for_remote(self._remote.settings.scope, turn.ask)
            evidence = replace(evidence, remote_reason=reason)
        may_search = turn.ask.grammar is None and turn.ask.tool_choice in ("auto", "none")
        if self._documents is not None and may_search and self._documents.is_asked(messages) and not evidence.closed:
            evidence = replace(evidence, grounding=await self._documents.find(messages, final=True))
        return evidence

    def _closed_form(self, turn: Turn) -> tuple[MakeCall, ...]:
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

    async def _ask_local(self, turn: Turn, decision: Decision, uncalled: Sequence[Tool]) -> AsyncIterator[Progress]:
        """What the language model of this machine answers: with the certain opening said at once, without numbers that
        no passage has or claims to have done what the functions would do that were not called, and not too much of
        it."""
        ask, grounding = decision.do, decision.grounding
        assert isinstance(ask, Ask)
        replying = self.language_model.reply(ask)
        if grounding is not None and grounding.is_certain:
            replying = _begun_at_once(replying, grounding.openings[0])
        if grounding is not None and grounding.passages:
            from agent.documents.support import Support, only_supported

            texts = [message.content for message in ask.messages]
            replying = only_supported(replying, Support(grounding.source_openings, texts))
        if uncalled and turn.ask.grammar is None:
            replying = without_claims(replying, deeds_of(uncalled))
        if ask.spoken and ask.grammar is None and not _ENGLISH.wants_length(_asked_last(turn.ask.messages)):
            replying = brief(replying)
        async with aclosing(replying):  # type: ignore[type-var]
            async for progress in replying:
                yield progress

    def _uncalled(self, ask: Ask) -> list[Tool]:
        """The functions that change something, and that the conversation has not called yet."""
        called = {call.name for message in ask.messages for call in message.tool_calls}
        return [tool for tool in ask.tools if tool.name not in called and self._changes_something(tool.name)]

    def _changes_something(self, function: str) -> bool:
        traits = None if self.runs is None else self.runs.tools.traits(function)
        return traits is None or not traits.read_only

    def _may_be_quoted(self, turn: Turn, ask: Ask, progress: Progress) -> bool:
        """Whether there is a call that changes something, of a function that no program calls, and the user may only
        dictate it. A program shows whether they do."""
        if ask.task != "maybe":
            return False
        names = (delta.name for delta in progress.tool_calls)
        return any(may_be_quoted(name, turn.said) and self._changes_something(name) for name in names)

    def _keeps_quoted(self, turn: Turn, held: Sequence[Progress], program: str) -> bool:
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

    async def _verdict(self, ask: Ask) -> HandedOver | None:
        """The kind of request for which the local language model would end its response; None if it would answer."""
        if ask.task != "maybe" and not ask.verdicts:
            return None
        async with aclosing(self.language_model.reply(replace(ask, max_tokens=1))) as replying:  # type: ignore[type-var]
            async for progress in replying:
                if progress.finished in HANDED_OVER:
                    return cast(HandedOver, progress.finished)
        return None

    # Programs.

    @property
    def _programming(self) -> LanguageModel:
        if self._programmer is None:
            self._programmer = self.language_model.fork()
        return self._programmer

    def _with_program(self, turn: Turn, evidence: Evidence, program: str) -> Evidence:
        """The evidence with what came of a program. If nothing did, what the user said is answered as talk."""
        now, available = self._now(), {tool.name for tool in turn.functions}
        try:
            outcome = self._run(turn, program)
            speech = " ".join(answer(value, unit, now) for value, unit in outcome.answers)
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

    def _run(self, turn: Turn, program: str) -> Outcome:
        """Run a program. Raises BadProgram."""
        functions = {tool.name: list(tool.parameters["properties"]) for tool in with_missing(turn.functions)}
        return run_program(program, self._now(), functions)

    def _remember(self, said: str, program: str) -> None:
        self._programs[said] = program
        self._programs.move_to_end(said)
        while len(self._programs) > _MAX_PROGRAMS:
            self._programs.popitem(last=False)

    # The language models, as one.

    def pause(self, seconds: float) -> None:
        """Let the language model that writes what is said run no step for so long, or resume now (0)."""
        self.language_model.pause(seconds)

    def cancel(self) -> None:
        """Cancel the current response."""
        self._stop_preparing()
        self.language_model.cancel()
        if self._programmer is not None:
            self._programmer.cancel()
        self._remote_request = None

    def limit_context(self, truncation: Truncation) -> None:
        """Choose what happens when the conversation outgrows the context of the local language model."""
        self.language_model.limit_context(truncation)

    def names(self) -> list[str]:
        """Names that the user may say: all words of their notes, and names of the tools and of the documents."""
        tools = [] if self.runs is None else self.runs.tools.names()
        return [*tools, *([] if self._documents is None else self._documents.names)]

    @property
    def pronunciations(self) -> dict[str, str]:
        """How the user wants words to be said, as earlier conversations have learned."""
        return {} if self.runs is None else self.runs.tools.pronunciations

    def commit(self, messages: Sequence[Message]) -> None:
        """A response to this has begun, so it is certain: forms take it, and what the user teaches of pronunciations
        is kept."""
        if self.runs is None:
            return
        self.runs.forms.commit(messages)
        if messages and messages[-1].role == "user":
            self.runs.tools.add_pronunciations(_ENGLISH.pronunciations(messages[-1].content, _said_last(messages)))

    def fork(self) -> Planner:
        """A planner for a response outside the conversation, which uses no tools and no documents."""
        return Planner(self.language_model.fork(), None, None, self._remote, self._now)


def _said_last(messages: Sequence[Message]) -> str:
    """What the assistant said last; empty if it has said nothing."""
    if len(messages) > 2 and messages[-3].content == NOT_CONFIRMED:
        return ""  # a question that waits for "yes"
    said = (message.content for message in reversed(messages) if message.role == "assistant")
    return next((text for text in said if text.strip()), "")


def _pronounced(turn: Turn) -> str:
    """The name whose pronunciation the user teaches, and asks nothing else; empty if they do not."""
    sentence = turn.said.strip().rstrip(".!")
    if any(sign in sentence for sign in (". ", "! ", "?", ";", " and ")) or len(sentence.split()) > _MAX_CORRECTION:
        return ""
    return next(iter(_ENGLISH.pronunciations(turn.said, _said_last(turn.ask.messages))), "")


def _reasoning_effort(turn: Turn) -> ReasoningEffort | None:
    """At which effort the answer to a user is worked out before it is said; None if it is said at once."""
    effort = turn.ask.effort
    if effort is None or effort == "instant" or not turn.said or turn.ask.grammar is not None:
        return None
    return effort


def _asked_last(messages: Sequence[Message]) -> str:
    """What the user said last."""
    return next((message.content for message in reversed(messages) if message.role == "user"), "")


async def _begun_at_once(replying: AsyncIterator[Progress], opening: str) -> AsyncIterator[Progress]:
    """A response whose opening is certain: it is said before the language model has read the prompt. Nothing is a task
    then, as the plan says."""
    yield Progress(f"{opening} ")
    text, said = "", 0
    async with aclosing(replying):  # type: ignore[type-var]
        async for progress in replying:
            text += progress.committed
            if not said and (rest := text.removeprefix(opening).lstrip()):
                said = len(text) - len(rest)
            new, said = (text[said:], len(text)) if said else ("", 0)
            yield progress.with_text(new)


async def _call_or_question(replying: AsyncIterator[Progress]) -> AsyncIterator[Progress]:
    """A response, if it calls something or begins with a question; otherwise nothing: it would claim to have done what
    nobody can do."""
    held, text, is_certain = list[Progress](), "", False
    async with aclosing(replying):  # type: ignore[type-var]
        async for progress in replying:
            held.append(progress)
            text += progress.committed
            is_certain = is_certain or bool(progress.tool_calls) or "?" in text
            if is_certain:
                for one in held:
                    yield one
                held.clear()
            elif progress.finished or any(end in text for end in (". ", "! ", "\n")):
                return

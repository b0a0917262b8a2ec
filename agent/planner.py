"""Carries out plans: gathers the evidence about a turn, asks the language models, and plans again with what they say.

One planner serves one conversation. Everything that it waits for can be cancelled at any time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, cast

from agent.brevity import brief
from agent.claims import handing_over_tasks, without_claims
from agent.language_model import LanguageModel, RemoteRequest
from agent.matched_text import words_of
from agent.plan import Decision, Evidence, Say, Turn, plan, refusal
from agent.program.speech import THINKING_PHRASE
from agent.program.values import local_time
from agent.program_runs import TALK, ProgramRuns
from agent.quotation import may_be_quoted
from agent.reasoning.prompt import ReasoningEffort
from agent.reasoning.reasoner import Reasoner, with_conclusion
from agent.tool_runs import NOT_CONFIRMED, ToolRuns
from agent.tools.tool_selection import ToolSelection
from agent.words.language import language
from chat.progress import Progress
from chat.types import HANDED_OVER, Ask, HandedOver, Message, Tool, Truncation

if TYPE_CHECKING:
    from agent.documents.evidence import DocumentEvidence
    from agent.documents.grounding import Grounding
    from agent.remote.remote_llm import RemoteLLM

_ENGLISH = language("en")

_NUM_EARLIER = 2
"""Earlier turns that a program's prompt has: what "and in Berlin?" takes up."""

_MAX_CORRECTION = 12
"""Words of a sentence that only says how a name is pronounced."""

_TAKEN_BACK = frozenset("mind nevermind forget".split())
"""Words of those who want nothing more that also take back what they said before."""

_BRIDGED_AFTER_S = 0.6
"""A program that is not written so long after the first clause was needed is bridged by a phrase: the user has heard
nothing for about a second."""

Part = Decision | Progress | RemoteRequest
"""A part of a response: what was decided, what a language model says, or where words are about to be sent."""


@dataclass
class _Step:
    """One step of a response.

    Attributes:
        evidence: it is planned again whenever this changes.
        question: what is asked besides what is said.
        effort: at which the answer is worked out first; None once that has been tried.
        bridge_at: when a program that is not written yet is bridged, on `time.monotonic`.
        held: calls that may only be dictated, until a program tells.
    """

    turn: Turn
    evidence: Evidence
    question: str
    effort: ReasoningEffort | None
    bridge_at: float
    held: list[Progress] = field(default_factory=list)

    def asked_besides(self) -> Decision:
        """The question that follows what is said."""
        return Decision(Say(f" {self.question}"), "program", "something is missing")


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
        self._programs = ProgramRuns(now)
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

    async def respond(self, ask: Ask, *, first: bool = True, remote_leads: bool = False) -> AsyncIterator[Part]:
        """One step of a response: each decision, followed by what a language model says to it. Before words are sent
        elsewhere, yields where.

        Args:
            ask: the conversation, with all functions that may be called.
            first: whether it is the response's first step.
            remote_leads: whether the bigger model has made the calls whose outputs come last.
        """
        self._stop_preparing()
        turn = self._turn(ask)
        beside = self._programs.taken_beside()
        if first:
            beside = None
        if beside is not None and beside.refusal:
            yield Decision(Say(f"{refusal(beside)} "), "program", "part of it cannot be done")
        evidence = await self._evidence(turn, first=first, remote_leads=remote_leads)
        question = "" if beside is None else beside.question
        bridge_at = math.inf if ask.deadline is None else ask.deadline + _BRIDGED_AFTER_S
        step = _Step(turn, evidence, question, _reasoning_effort(turn), bridge_at)
        before = None
        while step.evidence is not before:  # what a language model says may be evidence, too
            before, decision = step.evidence, plan(turn, step.evidence)
            yield decision
            if not isinstance(decision.do, Ask):
                if isinstance(decision.do, Say) and step.question and not decision.do.text.endswith("?"):
                    yield step.asked_besides()
                return
            match decision.policy:
                case "bigger model":
                    parts = self._from_bigger_model(step, decision)
                case "program":
                    parts = self._from_program(step, decision.do)
                case _:
                    parts = self._from_local_model(step, decision, self._uncalled(ask))
            async with aclosing(parts):  # type: ignore[type-var]
                async for part in parts:
                    yield part

    async def _from_bigger_model(self, step: _Step, decision: Decision) -> AsyncIterator[Part]:
        """What the bigger model answers. If it is slow or fails before that, others are asked."""
        assert self._remote is not None and isinstance(decision.do, Ask)
        request, begun = self._remote.new_request(decision.reason), False
        self._remote_request = request
        yield request
        async with aclosing(self._remote.answer(request, decision.do)) as answering:  # type: ignore[type-var]
            async for progress in answering:
                if self._remote_request is not request:
                    return
                begun = True
                yield progress
        if not begun and request.status in ("slow", "failed"):
            step.evidence = replace(step.evidence, remote_reason=None)

    async def _from_program(self, step: _Step, asked: Ask) -> AsyncIterator[Part]:
        """Let a program be written. What comes of it is evidence, but where it shows what a call was about that is
        held."""
        program, ended = "", None
        async with aclosing(self._programming.reply(asked)) as writing:  # type: ignore[type-var]
            async for written in writing:
                program, ended = program + written.committed, written.finished
                yield written.with_text("", finished=None)
                if not ended and time.monotonic() > step.bridge_at:
                    step.bridge_at = math.inf
                    yield Decision(Say(THINKING_PHRASE), "program", "it takes a while")
        if ended == "length":  # what was cut off may have another value: 2 * 3 of 2 * 35
            program = ""
        held, step.held = step.held, []
        if held and not self._programs.keeps_quoted(step.turn, held, program):
            for progress in held:
                yield progress
            return
        evidence = self._programs.with_program(step.turn, step.evidence, program)
        if held and evidence.refused:  # the language model would make the same call again
            yield Decision(Say(evidence.refused), "program", "it cannot be done")
            return
        step.evidence = evidence

    async def _from_local_model(self, step: _Step, decision: Decision, uncalled: Sequence[Tool]) -> AsyncIterator[Part]:
        """What the language model of this machine answers, or as evidence what it takes the turn for instead."""
        assert isinstance(decision.do, Ask)
        ended: str | None = None
        if step.effort is not None and decision.policy == "local model" and not decision.do.tools:
            reasoner = Reasoner(self.language_model.fork(), decision.do.messages, step.effort)
            step.effort, ended = None, await self._verdict(decision.do)
            if ended is None and await reasoner.kind() != "text":
                yield Decision(Say(THINKING_PHRASE), "local model", "it is worked out first")
                if (conclusion := await reasoner.conclude()) is not None:
                    messages = with_conclusion(decision.do.messages, conclusion)
                    decision = replace(decision, do=replace(decision.do, messages=messages))
        if ended is None:
            asked, replying = decision.do, self._ask_local(step.turn, decision, uncalled)
            assert isinstance(asked, Ask)
            refused = step.evidence.refused if decision.policy == "local model" else ""
            async with aclosing(_call_or_question(replying) if refused else replying) as answering:  # type: ignore[type-var]
                async for progress in answering:
                    ended = progress.finished
                    if step.held or self._may_be_quoted(step.turn, asked, progress):
                        step.held.append(progress)
                    else:
                        yield progress if ended not in HANDED_OVER else progress.with_text("", finished=None)
            if refused and ended is None:
                yield Decision(Say(refused), "program", "no function does it either")
                return
        if step.held or ended == "task":
            step.evidence = replace(step.evidence, is_task=True)
        elif ended == "emergency":
            step.evidence = replace(step.evidence, is_emergency=True)
        elif ended == "danger":
            step.evidence = replace(step.evidence, is_danger=True)
        elif ended == "dismissal":
            step.evidence = replace(step.evidence, dismissed=True)
        elif step.question and ended == "stop":
            yield step.asked_besides()

    def _turn(self, ask: Ask) -> Turn:
        newest = ask.messages[-1] if ask.messages else Message("system", "")
        said = newest.content if newest.role == "user" else ""
        if self.runs is None or ask.tool_choice != "auto":
            return Turn(ask, said=said if ask.tool_choice in ("auto", "none") and ask.grammar is None else "")
        replaced = self.runs.tools.replaced & {tool.name for tool in ask.tools}
        kept = replaced if self.language_model.recognizes_tasks else frozenset[str]()
        offered = tuple(ask.tools)
        chosen = self._selection.select([tool for tool in ask.tools if tool.name not in kept], ask.messages)
        ask = replace(ask, tools=[tool for tool in ask.tools if tool.name in kept or tool in chosen])
        if ask.grammar is not None:
            return Turn(ask)
        users = [message.content for message in ask.messages if message.role == "user"]
        earlier = users[:-1][-_NUM_EARLIER:] if said else []
        functions = tuple(tool for tool in self.runs.tools.functions if tool.name in replaced)
        return Turn(ask, functions, replaced, said, self._programs.earlier(earlier), offered)

    async def _evidence(self, turn: Turn, *, first: bool, remote_leads: bool) -> Evidence:
        """What is known about a turn before a language model is asked."""
        messages, runs = turn.ask.messages, self.runs
        recognizes = self.language_model.recognizes_tasks
        dismisses = first and _ENGLISH.is_dismissal(turn.said)
        takes_back = dismisses and self._takes_back(turn)
        is_task = (recognizes and first and (takes_back or _answers_program(turn))) or (None if first else False)
        evidence = Evidence(recognizes_tasks=recognizes, is_task=is_task)
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
                dismissed=dismisses and not takes_back,
                manner=manner,
                pronounced=_pronounced(turn) if first and turn.ask.spoken else "",
                repeated=_said_last(messages) if repeats else "",
                closed=() if remote_leads else self._programs.closed_form(turn),
            )
        if self._remote is not None and self._remote.breaker.allows and turn.ask.grammar is None:
            from agent.remote.routing import reason_for_remote

            reason = reason_for_remote(self._remote.settings.scope, turn.ask)
            evidence = replace(evidence, remote_reason=reason)
        may_search = turn.ask.grammar is None and turn.ask.tool_choice in ("auto", "none")
        if self._documents is not None and may_search and self._documents.is_asked(messages) and not evidence.closed:
            evidence = replace(evidence, grounding=await self._documents.find(messages, final=True))
        return evidence

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
        if ask.task == "maybe" and grounding is None:
            replying = handing_over_tasks(replying)
        if uncalled and turn.ask.grammar is None:
            replying = without_claims(replying, uncalled)
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

    def _takes_back(self, turn: Turn) -> bool:
        """Whether a user who wants nothing more means what the program before has done: "never mind"."""
        said, program = turn.programs[-1] if turn.programs else ("", "")
        if _ENGLISH.is_dismissal(said) or _answers_program(turn):
            return False
        done = any(f"{tool.name}(" in program and self._changes_something(tool.name) for tool in turn.functions)
        return done and not _TAKEN_BACK.isdisjoint(words_of(turn.said))

    def _may_be_quoted(self, turn: Turn, ask: Ask, progress: Progress) -> bool:
        """Whether there is a call that changes something, of a function that no program calls, and the user may only
        dictate it. A program shows whether they do."""
        if ask.task != "maybe":
            return False
        names = (delta.name for delta in progress.tool_calls)
        return any(may_be_quoted(name, turn.said) and self._changes_something(name) for name in names)

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


def _answers_program(turn: Turn) -> bool:
    """Whether the user answers a question that a program has asked, or a tool that it called."""
    asked = bool(turn.programs) and turn.programs[-1][1] != TALK
    return asked and _said_last(turn.ask.messages).rstrip().endswith("?")


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

"""What a response does next: say something, make calls, or ask a language model. A pure function over one ordered list
of policies, so that an answer can be predicted from this page. `planner.py` gathers the evidence and carries it out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from agent.program.evaluator import Outcome
from agent.program.grammar import program_grammar
from agent.program.prompt import program_messages, with_missing
from agent.words.language import Manner
from chat.types import Ask, Handed, Lark, Opening, Tool, lark_string

if TYPE_CHECKING:
    from agent.documents.grounding import Grounding

Policy = Literal[
    "form",
    "opening",
    "output",
    "confirmation",
    "dismissal",
    "manner",
    "pronunciation",
    "repetition",
    "closed form",
    "emergency",
    "program",
    "danger",
    "documents",
    "bigger model",
    "local model",
]
"""What decides, in the order in which they are asked."""

_ADVISERS = (
    "a doctor or a pharmacist", "a doctor or poison control", "a vet", "an electrician",
    "the fire department or the gas company", "the maker, or read the label", "somebody who knows",
)  # fmt: skip
_BEFORE_ADVISER = lark_string("Careful, that could be dangerous. Please don't risk it, and ask ")
_AFTER_ADVISER = lark_string(" first. If somebody is in danger, call the emergency number at once.")
CAUTION = Lark(f"start: {_BEFORE_ADVISER} adviser {_AFTER_ADVISER}\nadviser: {' | '.join(map(lark_string, _ADVISERS))}")
"""What is said about dangers. In free words the 1.5B calls most of them safe (docs/benchmarks/conversation.md)."""

EMERGENCY = (
    "This could be an emergency. Call the emergency number now; they will tell you what to do. If there is gas, smoke "
    "or fire, touch no switch, get everybody out, and call from outside. I can't call for you."
)
"""What is said in an emergency. No language model has a part in it."""

MAX_PROGRAM_TOKENS = 160
"""Of a program; nobody asks for a longer one in one breath."""


@dataclass(frozen=True)
class Say:
    """Say this.

    Attributes:
        manner: how, from now on; None for as before.
    """

    text: str
    manner: Manner | None = None


@dataclass(frozen=True)
class MakeCall:
    """A call that the language model of the conversation has not made.

    Attributes:
        arguments: JSON text of an object.
        confirmed: the user has agreed to it.
    """

    name: str
    arguments: str
    confirmed: bool = False


@dataclass(frozen=True)
class Call:
    """Make these calls."""

    calls: tuple[MakeCall, ...]


@dataclass(frozen=True)
class Decision:
    """What a response does next, and why.

    Attributes:
        grounding: what documents add to it; None for nothing.
    """

    do: Say | Call | Ask
    policy: Policy
    reason: str
    grounding: Grounding | None = None


@dataclass(frozen=True)
class Turn:
    """What a response answers.

    Attributes:
        ask: what a language model would be asked for it, with the functions that may be called.
        functions: the server's tools among those that programs may call.
        replaced: names of the server's tools that programs take the place of, these and others.
        said: what the user said last; empty if the response does not follow their words.
        programs: what they said before, with the programs for it, the oldest first.
        tools: all functions that may be called, if those of `ask` are the ones that suit what was said.
    """

    ask: Ask
    functions: tuple[Tool, ...] = ()
    replaced: frozenset[str] = frozenset()
    said: str = ""
    programs: tuple[tuple[str, str], ...] = ()
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What is known about a turn.

    Attributes:
        form: what an open form says to it; None if none is open.
        opening: the tool that opens the conversation, and is yet to be called.
        output: the words of the newest outputs, which are said as they are.
        confirmation: what follows from the user's reply to a question before a consequential call.
        dismissed: whether the user only wants the assistant to stop what it is doing.
        manner: how the user wants to be spoken to from now on; None if they did not say.
        pronounced: the name whose pronunciation the user teaches; empty if they do not.
        repeated: what the assistant said last, if the user wants to hear it again; empty if not.
        is_emergency: whether the local language model has recognized that something dangerous is happening.
        is_danger: whether the local language model has recognized a question to which a wrong answer could do harm.
        closed: the calls that a closed form needs.
        recognizes_tasks: whether the local language model tells what is for a program from what is not.
        is_task: whether it has recognized that this is; None if it was not asked yet.
        program: what came of the program for it, which may be that it is talk; None if there is none, or it could not
            be run.
        refused: what the assistant says if none of the other functions is called, because a program cannot do it.
        program_begin: what the program is to begin with, after one that could not be run.
        program_calls: the calls that it makes.
        program_speech: what it has computed, in words, if no tool says it.
        grounding: what documents add; None for nothing.
        remote_reason: why the bigger model answers; None if it does not.
    """

    form: str | None = None
    opening: str = ""
    output: str = ""
    confirmation: Say | MakeCall | None = None
    dismissed: bool = False
    manner: Manner | None = None
    pronounced: str = ""
    repeated: str = ""
    is_emergency: bool = False
    is_danger: bool = False
    closed: tuple[MakeCall, ...] = ()
    recognizes_tasks: bool = False
    is_task: bool | None = None
    program: Outcome | None = None
    refused: str = ""
    program_begin: str = ""
    program_calls: tuple[MakeCall, ...] = ()
    program_speech: str = ""
    grounding: Grounding | None = None
    remote_reason: str | None = None


_VERDICTS: frozenset[Handed] = frozenset(get_args(Handed))
_WRITTEN_VERDICTS: frozenset[Handed] = frozenset({"emergency"})
"""A written answer can be read twice, and has room for reasons."""


def plan(turn: Turn, evidence: Evidence) -> Decision:
    """The decision of the first policy that has one."""
    if evidence.form is not None:
        return Decision(Say(evidence.form), "form", "a form is open")
    if evidence.opening:
        call = MakeCall(evidence.opening, "{}", confirmed=True)
        return Decision(Call((call,)), "opening", "the tool opens calls")
    if evidence.output:
        return Decision(Say(evidence.output), "output", "the tools say it themselves")
    match evidence.confirmation:
        case Say() as declined:
            return Decision(declined, "confirmation", "the user refused")
        case MakeCall() as agreed:
            return Decision(Call((agreed,)), "confirmation", "the user agreed")
    if evidence.dismissed:
        return Decision(Say("Okay."), "dismissal", "the user wants nothing more")
    if evidence.manner is not None:
        said = evidence.repeated or "Is this better?"
        return Decision(Say(said, evidence.manner), "manner", "the user wants it so")
    if evidence.pronounced:  # the voice has learned it from the conversation already, so the user hears it
        return Decision(Say(f"Thank you, I'll say {evidence.pronounced}."), "pronunciation", "the user teaches it")
    if evidence.repeated:
        return Decision(Say(evidence.repeated), "repetition", "the user did not hear it")
    if evidence.closed:
        return Decision(Call(evidence.closed), "closed form", "all words are understood")
    is_local = evidence.remote_reason is None
    if is_local and evidence.is_emergency:
        return Decision(Say(EMERGENCY), "emergency", "something dangerous is happening")
    if is_local and evidence.is_task and turn.replaced and (decision := _program(turn, evidence)) is not None:
        return decision
    if is_local and evidence.is_danger:  # a small model would say that it is safe: it only chooses whom to ask
        ask = replace(turn.ask, tools=(), tool_choice="none", grammar=CAUTION, task="", verdicts=frozenset())
        return Decision(ask, "danger", "a wrong answer could hurt somebody")
    grounding = evidence.grounding
    if grounding is not None and grounding.openings and not evidence.is_task and turn.ask.grammar is None:
        return _documents(turn, evidence, grounding)
    if evidence.remote_reason is not None:
        ask = replace(turn.ask, tools=turn.tools or turn.ask.tools)  # it reads more than those selected
        return Decision(ask, "bigger model", evidence.remote_reason)
    ask = _local_ask(turn, evidence)
    unknown = "may be a task" if ask.task == "maybe" else "nothing else suits"
    return Decision(ask, "local model", "no task" if evidence.is_task is False else unknown)


def _program(turn: Turn, evidence: Evidence) -> Decision | None:
    """A task is written as a program, and what comes of that is said or called."""
    outcome = evidence.program
    if outcome is None:
        messages = program_messages(turn.functions, turn.programs, turn.said)
        grammar = program_grammar(with_missing(turn.functions), evidence.program_begin)
        ask = Ask(messages, grammar=grammar, max_tokens=MAX_PROGRAM_TOKENS, deadline=turn.ask.deadline)
        return Decision(ask, "program", "not complete" if evidence.program_begin else "recognized as a task")
    if evidence.program_calls:
        return Decision(Call(evidence.program_calls), "program", "the program calls")
    if evidence.program_speech:
        return Decision(Say(evidence.program_speech), "program", "the program computes")
    if outcome.question:
        return Decision(Say(outcome.question), "program", "something is missing")
    if outcome.refusal:
        return Decision(Say(refusal(outcome)), "program", "it cannot be done")
    return None


def refusal(outcome: Outcome) -> str:
    """The sentence that declines what a program refuses; empty if it refuses nothing."""
    return f"Sorry, I can't {outcome.refusal.rstrip('.')}." if outcome.refusal else ""


def _documents(turn: Turn, evidence: Evidence, grounding: Grounding) -> Decision:
    """A response that has read passages calls nothing: anyone may have written them. It is not left to other policies
    but tasks either: what they were trained with has no passages."""
    ask = replace(_local_ask(turn, evidence), messages=grounding.prompt(turn.ask.messages))
    reason = "the best passage almost certainly answers" if grounding.is_certain else "passages may answer"
    if grounding.passages:
        ask = replace(ask, verdicts=frozenset())
    else:
        reason = "no passage fits"
    ask = replace(ask, grammar=Opening(grounding.openings), tools=(), tool_choice="none")
    if grounding.is_certain:
        ask = replace(ask, task="")  # its beginning is said before anything is computed
    return Decision(ask, "documents", reason, grounding)


def _local_ask(turn: Turn, evidence: Evidence) -> Ask:
    """What the local language model is asked: whether it is a task, if it can tell; then programs call the server's
    tools, and the prompt declares the other ones only."""
    ask = turn.ask
    if turn.said and ask.grammar is None and (ask.spoken or ask.assistant):
        ask = replace(ask, verdicts=_VERDICTS if ask.spoken else _WRITTEN_VERDICTS)
    if not turn.replaced or not evidence.recognizes_tasks:
        return ask
    tools = tuple(tool for tool in turn.ask.tools if tool.name not in turn.replaced)
    if evidence.is_task is None:
        return replace(ask, tools=tools, task="maybe" if turn.said else "")
    if evidence.refused:  # its text is dropped unless it asks, so a call needs as little certainty as in speech
        ask = replace(ask, spoken=True)
    is_talk = evidence.program is not None and evidence.program.is_talk
    return replace(ask, tools=tools, task="no" if is_talk else "")

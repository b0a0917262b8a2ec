"""Which policy decides what a response does next, and what it does."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from agent.documents.grounding import NOTHING_FOUND, OWN_KNOWLEDGE, Grounding
from agent.plan import CAUTION, EMERGENCY, MAX_PROGRAM_TOKENS, Call, Evidence, MakeCall, Policy, Say, Turn, plan
from agent.program.evaluator import FunctionCall, Outcome
from agent.program.grammar import program_grammar
from agent.program.prompt import program_messages, with_missing
from chat.types import Ask, Lark, Message, Opening, Tool
from tests.agent.documents.sample_documents import match

TIMER, PAY = Tool("set_timer"), Tool("pay")
MESSAGES = (Message("system", "Be kind."), Message("user", "Set a timer."))
ASK = Ask(MESSAGES, (TIMER, PAY), deadline=5.0, effort="high", spoken=True)
PLAIN = Turn(ASK)
TURN = Turn(ASK, (TIMER,), frozenset(("set_timer", "calculate")), "Set a timer.", (("Hi.", "talk()"),))
GRAMMAR = Lark('start: "yes"')
HELD = replace(TURN, ask=replace(ASK, grammar=GRAMMAR))

CALL, OTHER = MakeCall("set_timer", "{}"), MakeCall("calculate", '{"program": "answer = 2"}')
BEGUN = MakeCall("greet", "{}", confirmed=True)
FOUND = Grounding((match(1).found,), ("According to House,",))
UNCERTAIN = Grounding((match(1).found,), ("According to House,", NOTHING_FOUND))
UNKNOWN = Grounding((), (OWN_KNOWLEDGE,))
TASK = Evidence(recognizes_tasks=True, is_task=True)
COMPUTED = Outcome(answers=((Fraction(2), ""),))
EVERYTHING = Evidence(
    "What is your name?", "greet", "It is done.", Say("All right, I won't."), (OTHER,), True, True, COMPUTED, "",
    (CALL,), "That's 2.", FOUND, "asked for",
)  # fmt: skip
"""All that can be known about a turn. The first policy decides, and the next one where it knows nothing."""

SPOKEN = replace(ASK, verdicts=frozenset(("emergency", "danger", "dismissal")))
TALK = replace(SPOKEN, tools=(PAY,))
WRITTEN = replace(ASK, spoken=False, assistant=True)
CAUTIOUS = replace(ASK, tools=(), tool_choice="none", grammar=CAUTION)
PROGRAM = Ask(
    program_messages((TIMER,), TURN.programs, TURN.said), grammar=program_grammar(with_missing((TIMER,))),
    max_tokens=MAX_PROGRAM_TOKENS, deadline=5.0,
)  # fmt: skip


def told(outcome: Outcome, *calls: MakeCall, speech: str = "") -> Evidence:
    return replace(TASK, program=outcome, program_calls=calls, program_speech=speech)


def from_passages(ask: Ask, grounding: Grounding) -> Ask:
    grammar = Opening(grounding.openings)
    return replace(ask, messages=grounding.prompt(MESSAGES), grammar=grammar, tools=(), tool_choice="none")


@pytest.mark.parametrize(
    ("turn", "evidence", "policy", "do"),
    [
        (TURN, EVERYTHING, "form", Say("What is your name?")),
        (TURN, Evidence(form=""), "form", Say("")),
        (TURN, replace(EVERYTHING, form=None), "opening", Call((BEGUN,))),
        (TURN, replace(EVERYTHING, form=None, opening=""), "output", Say("It is done.")),
        (TURN, replace(EVERYTHING, form=None, opening="", output=""), "confirmation", Say("All right, I won't.")),
        (TURN, Evidence(confirmation=BEGUN, closed=(OTHER,)), "confirmation", Call((BEGUN,))),
        (
            TURN,
            Evidence(dismissed=True, confirmation=Say("All right, I won't.")),
            "confirmation",
            Say("All right, I won't."),
        ),
        (
            TURN,
            Evidence(dismissed=True, closed=(OTHER,), is_task=True, remote_reason="asked for"),
            "dismissal",
            Say("Okay."),
        ),
        (TURN, Evidence(closed=(OTHER,), is_task=True, remote_reason="asked for"), "closed form", Call((OTHER,))),
        (TURN, TASK, "program", PROGRAM),
        (
            TURN,
            replace(TASK, program_begin="x = 2\nanswer = "),
            "program",
            replace(PROGRAM, grammar=program_grammar(with_missing((TIMER,)), "x = 2\nanswer = ")),
        ),
        (TURN, told(COMPUTED, OTHER, CALL, speech="That's 2."), "program", Call((OTHER, CALL))),
        (TURN, told(COMPUTED, speech="That's 2."), "program", Say("That's 2.")),
        (TURN, told(Outcome(calls=(FunctionCall("set_timer", {}, {}),)), CALL), "program", Call((CALL,))),
        (TURN, told(Outcome(question="For how long?")), "program", Say("For how long?")),
        (
            TURN,
            told(Outcome(refusal="tell whether it snows.")),
            "program",
            Say("Sorry, I can't tell whether it snows."),
        ),
        (TURN, told(Outcome(is_talk=True)), "local model", replace(TALK, task="no")),
        (TURN, replace(TASK, remote_reason="asked for"), "bigger model", ASK),
        (TURN, replace(TASK, grounding=FOUND), "program", PROGRAM),
        (TURN, Evidence(repeated="It is done.", closed=(OTHER,)), "repetition", Say("It is done.")),
        (TURN, Evidence(manner="slower", closed=(OTHER,)), "manner", Say("Is this better?", "slower")),
        (TURN, Evidence(pronounced="Siobhan"), "pronunciation", Say("Thank you, I'll say Siobhan.")),
        (TURN, Evidence(manner="louder", repeated="It is done."), "manner", Say("It is done.", "louder")),
        (TURN, replace(TASK, is_emergency=True), "emergency", Say(EMERGENCY)),
        (PLAIN, Evidence(is_emergency=True, grounding=FOUND), "emergency", Say(EMERGENCY)),
        (PLAIN, Evidence(is_emergency=True, remote_reason="asked for"), "bigger model", ASK),
        (TURN, Evidence(is_danger=True), "danger", CAUTIOUS),
        (PLAIN, Evidence(is_danger=True, grounding=FOUND), "danger", CAUTIOUS),
        (PLAIN, Evidence(is_danger=True, remote_reason="asked for"), "bigger model", ASK),
        (PLAIN, Evidence(grounding=FOUND), "documents", from_passages(ASK, FOUND)),
        (PLAIN, Evidence(grounding=UNCERTAIN), "documents", from_passages(ASK, UNCERTAIN)),
        (PLAIN, Evidence(grounding=UNKNOWN), "documents", from_passages(ASK, UNKNOWN)),
        (TURN, Evidence(grounding=UNKNOWN), "documents", from_passages(SPOKEN, UNKNOWN)),
        (TURN, Evidence(is_danger=True, grounding=UNKNOWN), "danger", CAUTIOUS),
        (TURN, Evidence(grounding=UNCERTAIN), "documents", from_passages(ASK, UNCERTAIN)),
        (PLAIN, Evidence(grounding=FOUND, remote_reason="all questions"), "documents", from_passages(ASK, FOUND)),
        (
            TURN,
            Evidence(recognizes_tasks=True, grounding=FOUND),
            "documents",
            from_passages(ASK, FOUND),
        ),
        (HELD, Evidence(grounding=FOUND), "local model", HELD.ask),
        (PLAIN, Evidence(remote_reason="all questions"), "bigger model", ASK),
        (
            replace(TURN, ask=replace(ASK, tools=(PAY,)), tools=(TIMER, PAY)),
            Evidence(remote_reason="all questions"),
            "bigger model",
            ASK,
        ),
        (TURN, Evidence(recognizes_tasks=True), "local model", replace(TALK, task="maybe")),
        (TURN, Evidence(recognizes_tasks=True, is_task=False), "local model", TALK),
        (replace(TURN, said=""), Evidence(recognizes_tasks=True), "local model", replace(ASK, tools=(PAY,))),
        (TURN, Evidence(), "local model", SPOKEN),
        (replace(TURN, ask=replace(ASK, spoken=False)), Evidence(), "local model", replace(ASK, spoken=False)),
        (
            replace(TURN, ask=WRITTEN),
            Evidence(),
            "local model",
            replace(WRITTEN, verdicts=frozenset(("emergency",))),
        ),
        (PLAIN, Evidence(recognizes_tasks=True), "local model", ASK),
        (PLAIN, replace(TASK, program=COMPUTED, program_speech="That's 2."), "local model", ASK),
    ],
)
def test_the_first_policy_that_knows_something_decides(
    turn: Turn, evidence: Evidence, policy: Policy, do: Say | Call | Ask
) -> None:
    decision = plan(turn, evidence)
    assert (decision.policy, decision.do) == (policy, do)
    assert decision.reason
    assert decision.grounding == (evidence.grounding if policy == "documents" else None)

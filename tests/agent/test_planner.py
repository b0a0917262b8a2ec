"""Plans that are carried out: tasks become programs, and whatever is cancelled leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from agent.documents.evidence import DocumentEvidence
from agent.plan import EMERGENCY, Call, Decision, Say
from agent.program.check import MISSING
from chat.types import Ask, Lark, Message, Tool
from tests.agent.documents.sample_documents import FakeDocuments, match
from tests.agent.planning import LOCAL, PAY, POWER, SAID, SUM, SYSTEM, Setup, Steps, calls
from tests.agent.remote.scripted_server import ScriptedServer, remote_llm, text
from tests.fakes import FakeLanguageModel, FakeProgress, run_on_virtual_clock


@pytest.mark.parametrize(
    ("said", "program", "do"),
    [
        (SAID, "set_timer(minutes=5)", calls(("set_timer", {"minutes": 5}))),
        (SAID, "set_timer(minutes=5)\nlist_alarms()", calls(("set_timer", {"minutes": 5}), ("list_alarms", {}))),
        (SUM, "answer = 2 * 3, 'euros'", calls(("calculate", {"program": "answer = (2 * 3, 'euros')"}))),
        (
            SUM,
            "price = 2 * 3\nwrite_note('tickets')\nanswer = price",
            calls(("calculate", {"program": "price = 2 * 3\nanswer = price"}), ("write_note", {"text": "tickets"})),
        ),
        (SAID, "ask('For how long?')", Say("For how long?")),
        ("Set a timer.", "set_timer(minutes=10)", Say("For how long?")),
        ("How much are the tickets?", "answer = 2 * 30", Say(MISSING)),
        (POWER, "answer = 999 ** 50", calls(("calculate", {"program": "answer = 999 ** 50"}))),
    ],
)
def test_a_task_becomes_a_program_and_the_program_calls_or_says_something(
    setup: Callable[..., Setup], said: str, program: str, do: Call | Say
) -> None:
    asked = setup({said: [program]})
    steps = run_on_virtual_clock(lambda: asked.respond(said))
    assert steps.policies == ["local model", "program", "program"]
    assert (steps.decisions[-1].do, steps.text) == (do, "")
    judging, writing = asked.model.asked
    assert judging.task == "maybe" and judging.tools == (PAY,)  # programs call the others
    assert isinstance(writing.grammar, Lark) and writing.messages[-1] == Message("user", said)


def test_without_the_calculator_a_result_is_said_at_once(setup: Callable[..., Setup]) -> None:
    asked = setup({SUM: ["answer = 2 * 3, 'euros'"]})
    asked.declared = tuple(tool for tool in asked.declared if tool.name != "calculate")
    assert run_on_virtual_clock(lambda: asked.respond(SUM)).decisions[-1].do == Say("That's 6 euros.")


@pytest.mark.parametrize(
    ("program", "outputs", "said"),
    [
        (
            "set_timer(minutes=5)\ncannot('sing')",
            ["Your timer for 5 minutes is running."],
            "Sorry, I can't sing. Your timer for 5 minutes is running.",
        ),
        ("list_alarms()\nask('For how long?')", ["You have no timers."], "You have no timers. For how long?"),
        (
            "delete_notes()\ncannot('sing')\nask('For how long?')",
            ["Shall I delete your notes?"],
            "Sorry, I can't sing. Shall I delete your notes?",
        ),
        ("set_timer(minutes=5)\ncannot('sing')", [""], f"Sorry, I can't sing. {LOCAL}"),
        ("set_timer(minutes=5)\nask('For whom?')", [""], f"{LOCAL} For whom?"),
    ],
)
def test_what_a_program_refuses_or_asks_besides_its_calls_is_said_around_their_outputs(
    setup: Callable[..., Setup], program: str, outputs: list[str], said: str
) -> None:
    async def respond() -> tuple[Steps, str]:
        asked = setup({SAID: [program]})
        await asked.respond(SAID)
        asked.planner.runs.words_of_outputs = lambda messages, verbatim: outputs[0]  # type: ignore[method-assign,union-attr]
        order = []
        async for step in asked.planner.respond(asked.ask(SAID), first=False):
            if isinstance(step, Decision):
                order.append(step.do.text if isinstance(step.do, Say) else "")
            else:
                order.append(step.committed)
        again = await asked.respond(SAID, first=False)
        return again, "".join(order)

    again, text = run_on_virtual_clock(respond)
    assert text == said
    assert len(again.decisions) == 1, "it is said once"


@pytest.mark.parametrize(
    ("program", "refusal"),
    [
        ("cannot('stop the time')", "stop the time"),
        ("search_web('ferries')\nget_weather('Oslo')", "search the web or tell the weather"),
        ("cannot('sing')\nget_weather('Oslo')", "sing or tell the weather"),
    ],
)
def test_what_cannot_be_done_is_refused_unless_a_function_of_the_client_may_do_it(
    setup: Callable[..., Setup], program: str, refusal: str
) -> None:
    refused = Say(f"Sorry, I can't {refusal}.")
    asked = setup({SAID: [program]})
    steps = run_on_virtual_clock(lambda: asked.respond(SAID))
    assert steps.outcome == (["local model", "program", "local model", "program"], refused, "")
    asked = setup({SAID: [program]})
    asked.model.words = ["For how long?"]
    assert run_on_virtual_clock(lambda: asked.respond(SAID)).text == "For how long?"
    alone = setup({SAID: [program]})
    alone.declared = tuple(tool for tool in alone.declared if tool is not PAY)
    assert run_on_virtual_clock(lambda: alone.respond(SAID)).decisions[-1].do == refused


def test_a_program_that_lacks_something_is_completed_once(setup: Callable[..., Setup]) -> None:
    asked = setup({SUM: ["price = 2 * 3", "price = 2 * 3\nanswer = price"]})
    steps = run_on_virtual_clock(lambda: asked.respond(SUM))
    assert steps.policies == ["local model", "program", "program", "program"]
    assert steps.decisions[-1].do == calls(("calculate", {"program": "price = 2 * 3\nanswer = price"}))
    first, second = (ask.grammar.source for ask in asked.model.asked[1:])
    assert 'start: "price = 2 * 3\\nanswer = " value' in second and "price" not in first


@pytest.mark.parametrize(
    "programs",
    [["talk()"], ["answer = 1 / 0"], ["answer = "], ["price = 2", "price = 2"], ["answer = 1000 ** 200 * 3 ** 999"]],
)
def test_what_no_program_can_do_is_talked_about(setup: Callable[..., Setup], programs: list[str]) -> None:
    asked = setup({SUM: list(programs)})
    steps = run_on_virtual_clock(lambda: asked.respond(SUM))
    assert (steps.policies[-1], steps.text, steps.finished) == ("local model", LOCAL, "stop")
    assert asked.model.asked[-1].task != "maybe" and len(asked.model.asked) == 2 + len(programs)


def test_a_program_that_takes_a_supposed_day_for_the_present_is_talked_about(setup: Callable[..., Setup]) -> None:
    supposing = "If today is Tuesday, what day is it in ten days?"
    asked = setup({supposing: ["answer = today + days(10)"]})
    assert run_on_virtual_clock(lambda: asked.respond(supposing)).policies[-1] == "local model"


def test_a_closed_form_asks_no_language_model(setup: Callable[..., Setup]) -> None:
    asked = setup({SAID: []})
    steps = run_on_virtual_clock(lambda: asked.respond("What is 6 times 7?"))
    assert steps.outcome == (["closed form"], calls(("calculate", {"program": "answer = 6 * 7"})), "")
    assert not asked.model.asked
    assert run_on_virtual_clock(lambda: asked.respond("What is 1 / 0?")).policies == ["local model"]


def test_days_until_one_that_is_over_are_left_to_the_language_model(setup: Callable[..., Setup]) -> None:
    asked = setup({SAID: []})
    for year, policy in (("2020", "local model"), ("2030", "closed form")):
        steps = run_on_virtual_clock(lambda year=year: asked.respond(f"How many days until June 1st {year}?"))  # type: ignore[misc]
        assert steps.policies == [policy]


def test_a_program_that_was_cut_off_is_not_run(setup: Callable[..., Setup]) -> None:
    class Cut(FakeLanguageModel):
        async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
            yield FakeProgress("answer = 2 * 3", finished="length")

    asked = setup({SUM: []})
    asked.planner._programmer = Cut()
    steps = run_on_virtual_clock(lambda: asked.respond(SUM))
    assert (steps.policies[-1], steps.text) == ("local model", LOCAL)


@pytest.mark.parametrize(("late_s", "said"), [(1.0, ["Let me see. "]), (-60.0, []), (None, [])])
def test_a_program_that_takes_a_while_is_bridged_once(
    setup: Callable[..., Setup], late_s: float | None, said: list[str]
) -> None:
    asked = setup({SUM: ["price = price", "price = 2 * 3\nanswer = price"]})  # the first one lacks something

    async def respond() -> Steps:
        deadline = None if late_s is None else time.monotonic() - late_s
        return Steps([step async for step in asked.planner.respond(asked.ask(SUM, deadline=deadline))])

    steps = run_on_virtual_clock(respond)
    assert [decision.do.text for decision in steps.decisions if isinstance(decision.do, Say)] == said
    assert isinstance(steps.decisions[-1].do, Call)


def test_with_an_effort_a_task_is_still_a_task(setup: Callable[..., Setup]) -> None:
    asked = setup({SUM: ["answer = 2 * 3"]})

    async def respond() -> Steps:
        ask = replace(asked.ask(SUM, effort="high"), tools=[tool for tool in asked.declared if tool != PAY])
        return Steps([step async for step in asked.planner.respond(ask)])

    steps = run_on_virtual_clock(respond)
    assert steps.policies[-1] == "program" and isinstance(steps.decisions[-1].do, Call)


def test_words_of_outputs_are_not_said_where_a_grammar_is_demanded(setup: Callable[..., Setup]) -> None:
    asked = setup({})
    asked.planner.runs.words_of_outputs = lambda messages, verbatim: "Done." if verbatim else ""  # type: ignore[method-assign,union-attr]

    async def respond(grammar: Lark | None) -> Steps:
        ask = asked.ask(SAID, grammar=grammar)
        return Steps([step async for step in asked.planner.respond(ask, first=False)])

    assert run_on_virtual_clock(lambda: respond(None)).policies == ["output"]
    assert run_on_virtual_clock(lambda: respond(Lark('start: "{}"'))).policies == ["local model"]


def test_a_follow_up_sees_the_programs_before_it(setup: Callable[..., Setup]) -> None:
    first, second, third = "What is 6 times 7?", SAID, "And again for 5 minutes."
    asked = setup({second: ["set_timer(minutes=5)"], third: ["set_timer(minutes=5)"]})

    async def scenario() -> None:
        await asked.respond(first)
        await asked.respond(first, second)
        await asked.respond(first, second, third)
        asked.model.programs[third] = ["talk()"]
        await asked.respond("How are you?", third)

    run_on_virtual_clock(scenario)
    seen = [ask.messages[1:-1] for ask in asked.model.asked if ask.grammar is not None]
    sum_, timer = Message("assistant", "answer = 6 * 7"), Message("assistant", "set_timer(minutes=5)")
    assert seen == [
        [Message("user", first), sum_],
        [Message("user", first), sum_, Message("user", second), timer],
        [Message("user", "How are you?"), Message("assistant", "talk()")],
    ]


def test_a_later_step_and_a_language_model_that_recognizes_no_tasks_write_no_program(
    setup: Callable[..., Setup],
) -> None:
    asked, plain = setup({SAID: ["set_timer(minutes=5)"]}), setup({})
    later = run_on_virtual_clock(lambda: asked.respond(SAID, first=False))
    assert (later.policies, later.text, asked.model.asked[0].task) == (["local model"], LOCAL, "")
    run_on_virtual_clock(lambda: plain.respond(SAID))
    (ask,) = plain.model.asked
    assert not ask.task and {tool.name for tool in ask.tools} & asked.planner.runs.tools.replaced


@pytest.mark.parametrize(
    ("verdict", "do", "text"),
    [("emergency", Say(EMERGENCY), ""), ("danger", None, "As the grammar says."), ("dismissal", Say("Okay."), "")],
)
def test_what_the_language_model_leaves_to_the_planner_is_planned_again(
    setup: Callable[..., Setup], verdict: str, do: Say | None, text: str
) -> None:
    asked = setup({"What time is it?": []})
    asked.model.verdicts = {"Zip it, bleach.": verdict}
    steps = run_on_virtual_clock(lambda: asked.respond("Zip it, bleach.", spoken=True))
    assert steps.outcome == (["local model", verdict], do, text)
    written = run_on_virtual_clock(lambda: asked.respond("Zip it, bleach."))
    assert written.policies == ["local model"] and written.text == LOCAL, "only what is spoken is left to others"


def test_what_was_said_last_is_said_again(setup: Callable[..., Setup]) -> None:
    asked = setup()
    steps = run_on_virtual_clock(lambda: asked.respond("Hi there.", "Pardon?"))
    assert steps.outcome == (["repetition"], Say("Fine."), "") and not asked.model.asked
    assert run_on_virtual_clock(lambda: asked.respond("Pardon?")).policies == ["local model"], "nothing was said"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("You pronounce Siobhan like Shivon.", "Thank you, I'll say Siobhan."),
        ("It's pronounced Shivon.", None),
        ("Siobhan is pronounced like Shivon, not Sye-oban.", "Thank you, I'll say Siobhan."),
        ("It's pronounced Shivon, so where is she from?", None),
        ("It's pronounced differently.", None),
    ],
)
def test_a_correction_of_the_pronunciation_is_thanked_for(
    setup: Callable[..., Setup], said: str, answer: str | None
) -> None:
    asked = setup()
    steps = run_on_virtual_clock(lambda: asked.respond("Who is that?", said, spoken=True))
    assert steps.outcome[0][-1:] == ["pronunciation" if answer else "local model"]
    assert answer is None or steps.outcome[1] == Say(answer)
    written = run_on_virtual_clock(lambda: asked.respond("Who is that?", said))
    assert written.policies[-1] == "local model", "nobody hears it"


def test_a_long_response_is_cut_unless_length_is_asked_for(setup: Callable[..., Setup]) -> None:
    asked = setup()
    asked.model.words, asked.model.seconds_per_word = (
        [*(["One two three four five six seven eight nine ten. "] * 9)],
        0.0,
    )
    for said, spoken, count in (("Hi there.", True, 44), ("Hi there.", False, 90), ("Tell me a story.", True, 90)):
        steps = run_on_virtual_clock(lambda said=said, spoken=spoken: asked.respond(said, spoken=spoken))  # type: ignore[misc]
        assert len(steps.text.split()) == count


def test_what_is_read_ahead_is_what_is_asked(setup: Callable[..., Setup]) -> None:
    asked = setup({SAID: ["talk()"]})
    asked.planner.prepare(asked.ask(SUM))
    run_on_virtual_clock(lambda: asked.respond(SUM))
    assert asked.model.prepared == [asked.model.asked[0].messages]


def test_words_go_to_the_bigger_model_and_stay_here_if_it_fails(setup: Callable[..., Setup]) -> None:
    server = ScriptedServer([text("Fine."), 500, 500])
    asked = setup({SAID: ["set_timer(minutes=5)"]}, remote=remote_llm(server))
    asked.declared += tuple(Tool(f"look_up_{n}") for n in range(12))  # too many for a small model
    answered = run_on_virtual_clock(lambda: asked.respond(SAID))
    assert answered.outcome == (["bigger model"], None, "Fine.") and not asked.model.asked
    assert len(server.bodies[0]["tools"]) == len(asked.declared)
    failed = run_on_virtual_clock(lambda: asked.respond(SAID))
    assert failed.policies == ["bigger model", "local model", "program", "program"]
    assert failed.decisions[-1].do == calls(("set_timer", {"minutes": 5}))
    assert [request.status for request in (*answered.requests, *failed.requests)] == ["answered", "failed"]


def test_cancelling_reaches_whoever_answers(setup: Callable[..., Setup]) -> None:
    asked = setup({SAID: ["set_timer(minutes=5)"]})
    run_on_virtual_clock(lambda: asked.respond(SAID))
    asked.planner.cancel()
    assert [model.cancelled for model in (asked.model, *asked.model.forks)] == [1, 1]


def test_a_response_outside_the_conversation_uses_no_tools_and_no_documents(setup: Callable[..., Setup]) -> None:
    documents = FakeDocuments(match(1))
    asked = setup({SAID: ["set_timer(minutes=5)"]}, documents=DocumentEvidence(documents))

    async def respond() -> Steps:
        fork = asked.planner.fork()
        return Steps([step async for step in fork.respond(Ask([SYSTEM, Message("user", SAID)]))])

    assert run_on_virtual_clock(respond).outcome == (["local model"], None, LOCAL)
    assert documents.searched == []


QUESTION = "How do I switch on the boiler?"


def _setup_of(kind: str, setup: Callable[..., Setup]) -> tuple[Setup, str]:
    if kind == "program":
        return setup({SUM: []}), SUM
    documents = DocumentEvidence(FakeDocuments(match(1)))
    if kind == "documents":
        return setup({SAID: []}, documents=documents), QUESTION
    server = ScriptedServer([text("Paris", " is", " it.", pause=0)])
    return setup({SAID: []}, remote=remote_llm(server)), QUESTION


def _refill(asked: Setup) -> None:
    asked.model.programs.update({SUM: ["price = 2 * 3", "price = 2 * 3\nanswer = price"]})


def _until_done(stopped_after: Callable[[int], Any], first: int) -> list[Any]:
    """What comes after a response that was stopped later and later, until it was done."""
    outcomes, done = [], False
    while not done:
        count = first + len(outcomes)
        done, outcome = run_on_virtual_clock(lambda count=count: stopped_after(count))
        outcomes.append(outcome)
    return outcomes


@pytest.mark.parametrize("kind", ["program", "documents", "bigger model"])
def test_a_cancel_at_any_time_leaves_no_task_and_the_next_response_is_whole(
    setup: Callable[..., Setup], kind: str
) -> None:
    async def cancelled_after(turns: int) -> tuple[bool, Any]:
        asked, said = _setup_of(kind, setup)
        _refill(asked)
        asked.planner.prepare(asked.ask(said))
        task = asyncio.ensure_future(asked.respond(said))
        for _ in range(turns):
            await asyncio.sleep(0)
        done = task.done()
        task.cancel()
        asked.planner.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert asked.model.answering == []
        _refill(asked)
        return done, (await asked.respond(said)).outcome

    outcomes = _until_done(cancelled_after, 0)
    assert 4 < len(outcomes) < 200
    assert all(outcome == outcomes[-1] for outcome in outcomes)
    assert kind in outcomes[-1][0]


@pytest.mark.parametrize("kind", ["program", "documents", "bigger model"])
def test_a_response_may_be_left_after_any_step(setup: Callable[..., Setup], kind: str) -> None:
    async def left_after(count: int) -> tuple[bool, Any]:
        asked, said = _setup_of(kind, setup)
        _refill(asked)
        async with aclosing(asked.planner.respond(asked.ask(said))) as responding:  # type: ignore[type-var]
            for _ in range(count):
                if await anext(responding, None) is None:
                    return True, None
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert asked.model.answering == []
        _refill(asked)
        return False, (await asked.respond(said)).outcome

    outcomes = _until_done(left_after, 1)
    assert len(outcomes) > 3
    assert all(outcome == outcomes[0] for outcome in outcomes[:-1])


def test_nothing_is_said_from_documents_before_it_is_known_that_it_is_no_task(setup: Callable[..., Setup]) -> None:
    asked = setup({SAID: ["set_timer(minutes=5)"]}, documents=DocumentEvidence(FakeDocuments(match(1))))
    steps = run_on_virtual_clock(lambda: asked.respond(SAID))
    assert steps.outcome == (["documents", "program", "program"], calls(("set_timer", {"minutes": 5})), "")

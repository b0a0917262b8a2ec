"""What comes of programs besides their calls: answers to their questions, reports, refusals and taking back."""

from __future__ import annotations

from collections.abc import Callable

from agent.plan import Call, Say
from chat.types import Ask, Message
from tests.agent.planning import LOCAL, SAID, SYSTEM, Setup, Steps, calls
from tests.fakes import FakeLanguageModel, run_on_virtual_clock


def follow_up(asked: Setup, before: str, question: str, said: str) -> Steps:
    """The second response of a conversation, in which the assistant has said something to what the user said first."""

    async def scenario() -> Steps:
        await asked.respond(before)
        asked.model.asked.clear()
        asked.model.programs[said] = asked.model.programs.pop("then")
        messages = [SYSTEM, Message("user", before), Message("assistant", question), Message("user", said)]
        return Steps([step async for step in asked.planner.respond(Ask(messages, asked.declared))])

    return run_on_virtual_clock(scenario)


def test_the_answer_to_a_programs_question_goes_to_a_program_at_once(setup: Callable[..., Setup]) -> None:
    before, question = "Remind me to stretch.", "When should I remind you?"
    asked = setup({before: [f"ask('{question}')"], "then": ["set_reminder('stretch', minutes=10)"]})
    steps = follow_up(asked, before, question, "In 10 minutes.")
    assert steps.policies == ["program", "program"] and len(asked.model.asked) == 1
    assert steps.decisions[-1].do == calls(("set_reminder", {"about": "stretch", "minutes": 10}))
    talk = setup({before: [f"ask('{question}')"], "then": ["talk()"]})
    assert follow_up(talk, before, question, "What is the capital of France?").text == LOCAL


def test_never_mind_takes_back_what_a_program_has_just_done(setup: Callable[..., Setup]) -> None:
    asked = setup({SAID: ["set_timer(minutes=5)"], "then": ["cancel_alarm('last')"]})
    steps = follow_up(asked, SAID, "Your timer for 5 minutes is running.", "Oh, never mind.")
    assert steps.decisions[-1].do == calls(("cancel_alarm", {"name": "last"}))
    for before, program, said in (
        (SAID, "set_timer(minutes=5)", "Stop."),
        ("Which timers are there?", "list_alarms()", "Never mind."),
        ("How are you?", "talk()", "Never mind."),
    ):
        asked = setup({before: [program], "then": []})
        assert follow_up(asked, before, "Fine.", said).decisions[-1].do == Say("Okay.")


def test_a_report_of_a_task_that_nothing_has_done_is_not_said_but_done(setup: Callable[..., Setup]) -> None:
    said = "And the garage code is 1234."
    asked = setup({"What time is it?": []})
    asked.model.words = ["I ", "wrote ", "down: ", "the ", "code."]
    program = {said: ["write_note('the garage code is 1234')"]}
    fork = asked.model.fork

    def forked() -> FakeLanguageModel:
        programmer = fork()
        programmer.programs = program
        return programmer

    asked.model.fork = forked  # type: ignore[method-assign]
    steps = run_on_virtual_clock(lambda: asked.respond(said))
    assert steps.policies == ["local model", "program", "program"] and not steps.text
    assert steps.decisions[-1].do == calls(("write_note", {"text": "the garage code is 1234"}))


def test_a_program_that_refuses_what_a_function_does_calls_it(setup: Callable[..., Setup]) -> None:
    said = "Clear all my notes."
    steps = run_on_virtual_clock(lambda: setup({said: ["cannot('delete all your notes')"]}).respond(said))
    assert steps.decisions[-1].do == calls(("delete_notes", {}))
    said = "Don't set a timer."
    steps = run_on_virtual_clock(lambda: setup({said: ["cannot('set a timer')"]}).respond(said))
    assert not isinstance(steps.decisions[-1].do, Call)


def test_one_currency_is_not_converted_to_another_one(setup: Callable[..., Setup]) -> None:
    said = "What are 20 pounds in dollars?"
    asked = setup({said: ["answer = convert(20, 'pound', 'usd')"]})
    steps = run_on_virtual_clock(lambda: asked.respond(said))
    assert "tell exchange rates" in str(steps.decisions) and LOCAL not in steps.text

"""Reasoning effort with a scripted language model: what is generated, what is voted on, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agent.plan import Say
from agent.planner import Planner
from agent.program.speech import THINKING_PHRASE
from agent.reasoning.prompt import CHOICE_EXAMPLES, EXAMPLES, KINDS, Kind, Method, ReasoningEffort, kind_prompts
from agent.reasoning.reasoner import (
    Conclusion,
    Reasoner,
    _likeliest_kind,
    _odds,
    with_conclusion,
)
from chat.progress import LikelyToken, Progress
from chat.types import Ask, Lark, Message
from tests.agent.planning import LOCAL, NOW, SYSTEM, Steps
from tests.fakes import FakeLanguageModel, FakeProgress, run_on_virtual_clock

QUESTION = [Message("user", "How many?")]


@dataclass
class Script:
    """What a language model writes: a kind, and the samples of each method in their order. A sample is a text, or one
    that takes a number of seconds."""

    kind: str
    samples: Mapping[str, Sequence[str | tuple[str, float]]] = field(default_factory=dict)
    asks: list[Ask] = field(default_factory=list)
    ended: int = 0


def method_of(ask: Ask) -> Method:
    """How a sample is asked to come to its answer."""
    return "program" if ask.messages[0].content in (EXAMPLES, CHOICE_EXAMPLES) else "steps"


def samples_of(script: Script) -> list[Ask]:
    """What was asked for samples, without the kind and what only reads the prompt."""
    return [ask for ask in script.asks if ask.max_tokens != 1 and ask.grammar != KINDS]


class ScriptedModel:
    """Follows a script. A fork follows the same one."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def fork(self) -> Any:
        return ScriptedModel(self._script)

    async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
        script = self._script
        script.asks.append(ask)
        if ask.grammar == KINDS or ask.max_tokens == 1:
            yield Progress(script.kind, tokens=1, step=1, finished="stop", prompt_tokens=50)
            return
        method = method_of(ask)
        given = script.samples[method][ask.variant]
        text, seconds = given if isinstance(given, tuple) else (given, 0.0)
        whole = f"{script.kind}\n{text}" if method == "program" and text != "fact" else text
        if ask.grammar is not None and method == "steps":  # continues after a corrected result
            begin = ask.grammar.source.split('"')[1]
            whole = f"{begin}, as corrected.\nAnswer: {begin.rpartition(' ')[2]}"
        try:
            yield Progress(whole[:20], tokens=3, step=1, prompt_tokens=50)
            await asyncio.sleep(seconds)
            yield Progress(whole[20:], tokens=10, step=2, finished="stop", prompt_tokens=50)
        finally:
            script.ended += 1


def conclude(script: Script, effort: ReasoningEffort, messages: Sequence[Message] = QUESTION) -> Conclusion | None:
    async def work() -> Conclusion | None:
        return await Reasoner(ScriptedModel(script), messages, effort).conclude()  # type: ignore[arg-type]

    return run_on_virtual_clock(work)


def program(value: int) -> str:
    return f"count = {value} * 1\nanswer = count"


def steps(value: object) -> str:
    return f"It is counted.\nAnswer: {value}"


NO_PROGRAM = "answer = unknown"


def test_at_low_effort_programs_that_agree_decide() -> None:
    conclusion = conclude(Script("number", {"program": [program(7), program(8), program(7), program(7)]}), "low")
    assert conclusion is not None and (conclusion.answer, conclusion.votes) == ("7", 3)
    assert conclusion.sample.text == program(7)


def test_steps_take_the_place_of_programs_that_cannot_be_run() -> None:
    conclusion = conclude(Script("number", {"program": [NO_PROGRAM] * 4, "steps": [steps("1,250.50")]}), "low")
    assert conclusion is not None and conclusion.answer == "1250.5" and conclusion.sample.method == "steps"


def test_a_program_that_computes_nothing_is_a_guess_that_does_not_count() -> None:
    conclusion = conclude(Script("number", {"program": ["count = 9\nanswer = count"] * 4, "steps": [steps(7)]}), "low")
    assert conclusion is not None and (conclusion.answer, conclusion.samples) == ("7", 1)


def test_at_medium_effort_the_majority_of_seven_samples_decides() -> None:
    programs = [program(7), program(8), program(6), program(9), NO_PROGRAM]
    conclusion = conclude(Script("number", {"program": programs, "steps": [steps(9), steps(5)]}), "medium")
    assert conclusion is not None and (conclusion.answer, conclusion.votes, conclusion.samples) == ("9", 2, 6)


def test_at_high_effort_three_samples_that_agree_are_enough() -> None:
    script = Script("number", {"program": [program(7)], "steps": [steps(7), steps(7), (steps(9), 1000.0)]})
    conclusion = conclude(script, "high")
    assert conclusion is not None and (conclusion.answer, conclusion.votes, conclusion.samples) == ("7", 3, 3)
    assert len(samples_of(script)) == 4


def test_at_high_effort_more_samples_are_drawn_where_the_first_ones_differ() -> None:
    first, others = [steps(7), steps(7), steps(9)], [steps(9)] * 5
    script = Script("number", {"program": [program(8), program(9)], "steps": [*first, *others]})
    conclusion = conclude(script, "high")
    assert conclusion is not None and conclusion.answer == "9" and len(samples_of(script)) == 10


def test_samples_that_cannot_change_the_answer_are_given_up() -> None:
    slow = (steps(1), 1000.0)
    script = Script(
        "number", {"program": [program(7)] * 2, "steps": [steps(7), steps(9), steps(7), steps(7), *[slow] * 4]}
    )
    conclusion = conclude(script, "high")
    assert conclusion is not None and (conclusion.answer, conclusion.votes) == ("7", 4)
    assert script.ended == len(samples_of(script)) == 10  # each generation was ended, the slow ones before their time


def test_the_majority_is_taken_and_its_shortest_sample_explains_it() -> None:
    long = f"At first. {steps(9)}"
    script = Script(
        "number", {"program": [program(7)] * 2, "steps": [long, long, steps(8), long, steps(9), *[long] * 3]}
    )
    conclusion = conclude(script, "high")
    assert conclusion is not None and conclusion.answer == "9" and conclusion.sample.text == steps(9)


def test_the_first_sample_of_a_method_is_the_most_likely_one_and_the_others_vary() -> None:
    script = Script("number", {"program": [program(n) for n in range(2)], "steps": [steps(n) for n in range(10, 18)]})
    conclude(script, "high")
    for method, count in (("program", 2), ("steps", 8)):
        variants = [ask.variant for ask in samples_of(script) if method_of(ask) == method]
        assert variants == list(range(count))


def test_a_wrong_result_in_steps_is_corrected_and_they_go_on_from_there() -> None:
    script = Script("number", {"program": [NO_PROGRAM] * 4, "steps": ["11 + 20 + 7 = 48 stamps.\nAnswer: 48"]})
    conclusion = conclude(script, "low")
    assert conclusion is not None and conclusion.answer == "38"
    assert conclusion.sample.text.startswith("11 + 20 + 7 = 38")


def test_steps_that_are_wrong_again_and_again_are_given_up() -> None:
    class Wrong(ScriptedModel):
        def fork(self) -> Any:
            return Wrong(self._script)

        async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
            async for progress in super().reply(ask):
                wrong = replace(progress, committed=f"{progress.committed}: 2 + 2 = 5, so")
                yield progress if ask.grammar == KINDS else wrong

    script = Script("number", {"program": ["answer = unknown"] * 8, "steps": [steps(7)] * 8})

    async def work() -> Conclusion | None:
        return await Reasoner(Wrong(script), QUESTION, "low").conclude()  # type: ignore[arg-type]

    assert run_on_virtual_clock(work) is None and len(script.asks) < 20


def test_steps_decide_on_an_option_that_one_has_to_know() -> None:
    options = [steps("Yes"), steps("no"), steps("Yes.")] + [steps("yes")] * 4
    conclusion = conclude(Script("choice", {"program": ["fact"] * 3, "steps": options}), "high")
    assert conclusion is not None and conclusion.answer == "yes" and conclusion.sample.method == "steps"


def test_programs_and_steps_vote_on_an_option_that_can_be_computed() -> None:
    programs = ["boxes = 3 * 1\nanswer = boxes == 3 and boxes < 2", 'answer = "Yes" if 1 * 1 > 2 else "No"', NO_PROGRAM]
    options = [steps("yes"), steps("is: **No**, because"), steps("yes"), *[steps("no")] * 4]
    script = Script("choice", {"program": programs, "steps": options})
    conclusion = conclude(script, "high")
    assert (
        conclusion is not None
        and conclusion.answer == "no"
        and {method_of(ask) for ask in samples_of(script)}
        == {
            "program",
            "steps",
        }
    )
    low = conclude(Script("choice", {"program": programs[1:2] * 3}), "low")
    assert low is not None and (low.answer, low.sample.method) == ("no", "program")


@pytest.mark.parametrize(
    ("message", "read"),
    [
        ("Is 5 > 3?\nOptions:\n- Yes\n- No\n\nEnd with a line `Answer: ` and the option.", "Is 5 > 3?"),
        ("Is 5 > 3?\n\nAnswer with yes or no.", "Is 5 > 3?"),
        ("Lea has 3.\n\nMax has 4. Who has more?", "Lea has 3.\n\nMax has 4. Who has more?"),
        ("Who has more?\n\nIs it Lea?", "Who has more?\n\nIs it Lea?"),
        ("Which is more?\n- 3\n- 4", "Which is more?\n- 3\n- 4"),
        ("Who is older?\n\nLea was born in 1990, Max in 1985.", "Who is older?\n\nLea was born in 1990, Max in 1985."),
        ("Who?\n\nAnswer with Ann or Bob.", "Who?\n\nAnswer with Ann or Bob."),
        ("Who?\n\nGive it to whoever has 3.", "Who?\n\nGive it to whoever has 3."),
        ("No", "No"),
    ],
)
def test_programs_for_a_choice_are_written_for_the_question_alone(message: str, read: str) -> None:
    script = Script("choice", {"program": ["fact"] * 3, "steps": [steps("yes")] * 2})
    conclude(script, "low", [Message("user", message)])
    assert {ask.messages[-1].content for ask in script.asks if method_of(ask) == "program"} == {f"Message: {read}"}


@pytest.mark.parametrize(("kind", "effort"), [("number", "high"), ("number", "medium"), ("choice", "low")])
def test_without_two_samples_that_agree_there_is_no_conclusion(kind: str, effort: ReasoningEffort) -> None:
    """Also where a text was taken for an option: it is then answered as without an effort."""
    script = Script(kind, {"program": [program(n) for n in range(8)], "steps": [steps(n + 10) for n in range(8)]})
    assert conclude(script, effort) is None


def test_the_kind_is_the_likeliest_with_what_the_model_says_too_often_taken_off() -> None:
    """Where the tokenizer splits a word, its first token counts. Without probabilities it is what was written."""
    likely = [LikelyToken(text, b"", value) for text, value in (("number", -0.5), ("te", -1.4), ("choice", -3.0))]
    assert _likeliest_kind([_odds(likely)]) == "text"
    assert _likeliest_kind([_odds(likely[::2])]) == "number"
    shorter = LikelyToken("num", b"", -4.0)  # another way to begin the same word
    assert _likeliest_kind([_odds([*likely[::2], LikelyToken("text", b"", -4.3), shorter])]) == "number"
    assert _likeliest_kind([_odds([LikelyToken("choice", b"", 0.0)])]) == "choice"
    assert _likeliest_kind([{}]) == "text"


def test_the_kind_is_what_is_said_of_the_message_and_of_what_precedes_its_last_paragraph() -> None:
    """Of "Is 51 a prime number? … End with a line `Answer: `" small models say that it asks for a text."""
    without_it, whole = {"choice": -0.1, "text": -9.0}, {"choice": -3.0, "text": -0.2}
    assert _likeliest_kind([whole]) == "text" and _likeliest_kind([without_it, whole]) == "choice"  # type: ignore[list-item]
    assert _likeliest_kind([{}, whole]) == "text"  # type: ignore[list-item]
    asked = [one[-1].content for one in kind_prompts("Is 51 a prime number?\n\nEnd with a line `Answer: `.\n")]
    assert asked == [
        "Message: Is 51 a prime number?",
        "Message: Is 51 a prime number?\n\nEnd with a line `Answer: `.",
    ]
    assert len(kind_prompts("\n\nHi\n")) == len(kind_prompts("")) + 1 == 1


def test_a_model_without_probabilities_writes_the_kind() -> None:
    class Denoising(ScriptedModel):
        def fork(self) -> Any:
            return Denoising(self._script)

        async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
            if ask.top_log_probabilities is not None:
                raise ValueError("a model that denoises blocks has no log probabilities of tokens")
            async for progress in super().reply(ask):
                yield progress

    async def work() -> Kind:
        return await Reasoner(Denoising(Script("choice")), QUESTION, "low").kind()  # type: ignore[arg-type]

    assert run_on_virtual_clock(work) == "choice"


def test_the_kind_of_a_long_message_is_told_from_its_beginning_and_end() -> None:
    asked = kind_prompts(f"How many {'a' * 5000} words?")[0][-1].content
    assert len(asked) < 2100 and asked.startswith("Message: How many") and asked.endswith("words?")


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_a_text_is_not_worked_out(effort: ReasoningEffort) -> None:
    script = Script("text")
    assert conclude(script, effort) is None and len(script.asks) == 1


def test_times_are_compared_as_times() -> None:
    script = Script(
        "number",
        {
            "program": ['answer = time("9:40") + minutes(95)'] + [NO_PROGRAM] * 4,
            "steps": [steps("11:15"), steps("10:25")],
        },
    )
    conclusion = conclude(script, "medium")
    assert conclusion is not None and (conclusion.answer, conclusion.votes) == ("11:15", 2)


def test_what_is_generated_is_counted_with_samples_that_are_given_up() -> None:
    script = Script("number", {"program": [program(7)], "steps": [steps(7), steps(7), (steps(1), 1000.0)]})

    async def work() -> Reasoner:
        reasoner = Reasoner(ScriptedModel(script), QUESTION, "high")  # type: ignore[arg-type]
        await reasoner.conclude()
        return reasoner

    reasoner = run_on_virtual_clock(work)
    assert reasoner.cost.prompt_tokens == 50
    assert reasoner.cost.tokens == 1 + 2 + 3 * 10 + 3  # kind, two prompts, samples, half of one


def test_a_sample_that_cannot_be_generated_is_left_out() -> None:
    class Failing(ScriptedModel):
        def fork(self) -> Any:
            return Failing(self._script)

        async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
            if ask.grammar is not None and ask.grammar != KINDS:
                raise ValueError("the grammar cannot be followed any further")
            async for progress in super().reply(ask):
                yield progress

    async def work() -> Conclusion | None:
        model = Failing(Script("number", {"steps": [steps(7)] * 8}))
        return await Reasoner(model, QUESTION, "medium").conclude()  # type: ignore[arg-type]

    conclusion = run_on_virtual_clock(work)
    assert conclusion is not None and conclusion.answer == "7"


def test_steps_follow_the_client_s_own_prompt_and_programs_the_examples() -> None:
    script = Script("number", {"program": [program(n) for n in range(2)], "steps": [steps(n) for n in range(10, 18)]})
    conclude(script, "high", [Message("system", "Lamps cost $9."), Message("user", "And two?")])
    prompts = {method_of(ask): [(one.role, one.content) for one in ask.messages] for ask in script.asks}
    assert prompts["program"] == [("system", EXAMPLES), ("user", "Lamps cost $9.\n\nAnd two?")]
    system, user = prompts["steps"]
    assert system == ("system", "Lamps cost $9.") and user[1].startswith("And two?\n\nThink step by step.")


def test_the_answer_is_told_to_the_language_model_after_the_question() -> None:
    conclusion = conclude(Script("number", {"program": [program(7)] * 4}), "low")
    assert conclusion is not None
    (message,) = with_conclusion(QUESTION, conclusion)
    assert message.content.startswith("How many?\n\n") and program(7) in message.content and "7" in message.content


class Reasoning(FakeLanguageModel):
    """Says that the answer is of a kind, and works it out."""

    kind = "number"

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        if not isinstance(ask.grammar, Lark):
            async for progress in super().reply(ask):
                yield progress
            return
        self.grammars.append(ask.grammar)
        text = f"{self.kind}\ncoins = 3 * 4\nanswer = coins"
        if ask.grammar == KINDS:
            text = self.kind
        elif ask.messages[0].content != EXAMPLES:
            text = "Answer: 12"
        yield FakeProgress(text, finished="stop")


@pytest.mark.parametrize(
    ("effort", "kind", "bridged"),
    [("low", "number", True), ("high", "number", True), ("low", "text", False), ("instant", "number", False)],
)
def test_with_an_effort_a_response_is_worked_out_behind_a_phrase(effort: Any, kind: str, bridged: bool) -> None:
    model = Reasoning()
    model.kind, said = kind, "How many coins does Ann have?"
    model.fork = lambda: model  # type: ignore[method-assign]
    planner = Planner(model, None, now=lambda: NOW)

    async def respond() -> Steps:
        ask = Ask([SYSTEM, Message("user", said)], effort=effort, spoken=True)
        return Steps([step async for step in planner.respond(ask)])

    steps = run_on_virtual_clock(respond)
    spoken = [decision.do.text for decision in steps.decisions if isinstance(decision.do, Say)]
    assert spoken == ([THINKING_PHRASE] if bridged else []) and steps.text == LOCAL
    assert ("answer is 12" in model.prompts[-1][-1].content) == bridged

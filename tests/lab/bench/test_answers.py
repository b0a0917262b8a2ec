"""`rejoinder bench answers`: its questions, how they are asked, and what is printed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from tokenizers import Tokenizer
from typer.testing import CliRunner

from agent.instructions import INSTRUCTIONS
from agent.language_model import LanguageModel
from chat.types import Ask, Message
from cli.main import app
from lab.bench import answers as bench
from lab.bench.answers import GradedAnswer, Question, Score, load_questions, select
from lab.bench.grading import Grade, Rule, grade
from lab.bench.session_answers import SessionAnswer
from lab.convert.requests import labelled_requests
from server.serving.options import ModelOptions
from tests.conftest import save_tiny_checkpoint

QUESTIONS = load_questions()


def test_there_are_two_hundred_questions_fifty_follow_ups_and_thirty_to_decline() -> None:
    counts = Counter(question.category for question in QUESTIONS)
    assert (counts.pop("follow-ups"), counts.pop("decline")) == (50, 30)
    assert counts.keys() == {"facts", "arithmetic", "dates", "units", "language", "instructions"}
    assert counts.total() == 200


def test_the_halves_are_equal_in_every_category_and_share_no_question() -> None:
    for category in {question.category for question in QUESTIONS}:
        halves = Counter(question.half for question in QUESTIONS if question.category == category)
        assert halves["tuning"] == halves["reported"]
    turns = [tuple(turn.lower() for turn in question.turns) for question in QUESTIONS]
    assert len(set(turns)) == len(QUESTIONS)


def test_only_follow_ups_have_two_turns() -> None:
    for question in QUESTIONS:
        assert len(question.turns) == (2 if question.category == "follow-ups" else 1)
        assert all(turn.strip() and turn[0].isupper() and turn[-1] in ".?" for turn in question.turns)


def test_where_a_tool_can_do_what_no_model_can_saying_so_is_right_with_tools_alone() -> None:
    [alarm] = [question for question in QUESTIONS if question.turns == ("Wake me up at seven tomorrow morning.",)]
    said = "Your alarm is set for 7:00 AM tomorrow."
    assert alarm.grade(said, builtin_tools=True).passed and not alarm.grade(said, builtin_tools=False).passed
    assert alarm.grade(alarm.reference, builtin_tools=True).passed
    assert not alarm.grade("Sure, have a nice morning!", builtin_tools=True).passed


def test_each_rule_accepts_its_reference_and_rejects_a_wrong_answer() -> None:
    for question in QUESTIONS:
        assert grade(question.reference, question.rule) == Grade((), ()), question
        assert grade(question.wrong, question.rule).errors, question


def test_no_rule_accepts_an_empty_or_evasive_answer_or_the_question_itself() -> None:
    for question in QUESTIONS:
        assert not grade("", question.rule).passed, question
        assert not grade("That is a really good thing to talk about.", question.rule).passed, question
        if question.category != "decline":  # to repeat a question can be to ask back
            assert not grade(question.turns[-1], question.rule).passed, question
            assert not grade("I'm sorry, I can't answer that.", question.rule).passed, question


def test_a_half_or_a_category_can_be_selected() -> None:
    assert len(select("tuning")) == len(select("reported")) == 140
    assert len(select("all")) == 280
    assert {question.category for question in select("reported", ["dates", "units"])} == {"dates", "units"}
    with pytest.raises(ValueError, match="no category 'cooking': choose from facts, "):
        select("all", ["cooking"])


def test_a_question_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the question facts-3 is not valid: .*'contains'"):
        bench._question("facts", 3, {"ask": "Who?", "reference": "Me.", "wrong": "You.", "contains": ["me"]})


@dataclass(frozen=True)
class FakeProgress:
    committed: str
    draft: str = ""
    confidence: tuple[float, ...] = ()
    step: int = 1
    tokens: int = 1
    finished: str | None = None
    prompt_tokens: int = 1
    cached_tokens: int = 0


class FakeModel:
    """Answers every turn with its number, and keeps the prompts."""

    def __init__(self, prompts: list[list[Message]]) -> None:
        self._prompts, self._turns = prompts, 0

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        self._prompts.append(list(ask.messages))
        self._turns += 1
        yield FakeProgress(" It is")
        yield FakeProgress(f" {self._turns}.")

    def prepare(self, ask: Ask) -> None: ...

    async def turn_completion(self, text: str) -> float | None:
        return None

    def pause(self, seconds: float) -> None: ...

    def cancel(self) -> None: ...


async def test_questions_are_asked_with_the_prompts_of_a_voice_session() -> None:
    single = Question("facts-1", "facts", "tuning", ("How many?",), Rule(number=("1",)), "One.", "Two.")
    double = Question("follow-ups-1", "follow-ups", "tuning", ("First?", "Second?"), Rule(number=("1",)), "1", "2")
    prompts: list[list[Message]] = []
    asked = []

    async def answer(question: Question) -> list[SessionAnswer]:
        model: LanguageModel = FakeModel(prompts)
        return [SessionAnswer(text, "manner") for text in await bench.ask(model, question.turns, "Be brief.")]

    results = await bench.ask_all(answer, [single, double], lambda: asked.append(1))
    system = Message("system", "Be brief.")
    assert sorted(prompts, key=lambda prompt: (prompt[1].content, len(prompt))) == [
        [system, Message("user", "First?")],
        [system, Message("user", "First?"), Message("assistant", "It is 1."), Message("user", "Second?")],
        [system, Message("user", "How many?")],
    ]
    assert [result.answers for result in results] == [("It is 1.",), ("It is 1.", "It is 2.")]
    assert [result.grade.passed for result in results] == [True, False]  # the last answer is graded
    assert len(asked) == 2
    assert bench.passed_by_policy(results) == {"manner": (1, 2)} and bench.passed_by_policy(GRADED) == {}


def graded(category: str, *, errors: tuple[str, ...] = (), unsuited: tuple[str, ...] = ()) -> GradedAnswer:
    question = Question(f"{category}-1", category, "tuning", ("Who?",), Rule(says=("me",)), "Me.", "You.")
    return GradedAnswer(question, ("Nobody [b].",), Grade(errors, unsuited))


GRADED = [
    graded("facts"),
    graded("facts", errors=("does not say 'me'",)),
    graded("facts", unsuited=("has a list",)),
    graded("dates", errors=("does not say 'me'",), unsuited=("is empty",)),
]


def test_an_answer_passes_if_it_is_correct_and_suits_the_ear() -> None:
    assert bench.scores(GRADED) == {
        "facts": Score(3, correct=2, suited=2, passed=1),
        "dates": Score(1, correct=0, suited=0, passed=0),
        "all": Score(4, correct=2, suited=2, passed=1),
    }
    assert bench.scores(GRADED)["all"].percent == 25


def test_the_interval_is_wilsons() -> None:
    low, high = Score(100, 85, 100, 85).interval
    assert (round(low, 1), round(high, 1)) == (76.7, 90.7)  # the textbook's example of n = 100
    assert Score(10, 10, 10, 10).interval[1] == pytest.approx(100)


def test_the_table_and_the_failures_are_printed() -> None:
    console = Console(record=True, width=100)
    bench.show_failures(GRADED, console)
    bench.show("tiny, tuning", GRADED, console)
    text = console.export_text()
    assert text.count("Nobody [b].") == 3
    assert "does not say 'me'; is empty" in text
    assert [cell.strip() for line in text.splitlines() if "all " in line for cell in line.split("│")][1:7] == [
        "all", "4", "2", "2", "1", "25",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_command_evaluates_a_model(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder = save_tiny_checkpoint(tmp_path / "tiny", tiny_tokenizer, "qwen2", max_position_embeddings=4096)
    instructions = tmp_path / "instructions.txt"
    instructions.write_text("Be brief.\n")
    command = [
        "bench", "answers", "--half", "all", "--category", "language", "--model", str(folder), "--device", "cpu",
        "--precision", "float32", "--adapter", "none", "--turn-completion", "none", "--instructions", str(instructions),
    ]  # fmt: skip
    result = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    output = json.loads(result.stdout)
    assert output["scores"]["all"]["questions"] == len(output["answers"]) == 20
    assert all(len(answer["answers"]) == 1 for answer in output["answers"])
    assert output["half"] == "all"


def test_an_unknown_category_gets_one_sentence() -> None:
    result = CliRunner().invoke(app, ["bench", "answers", "--category", "cooking"])
    assert result.exit_code == 1
    assert result.stderr.startswith("rejoinder: there is no category 'cooking'")


def test_answers_do_not_depend_on_the_conversations_at_the_same_time(
    tmp_path: Path, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny_checkpoint(tmp_path / "tiny", tiny_tokenizer, "qwen2", max_position_embeddings=4096)
    monkeypatch.setattr(bench, "MAX_TOKENS", 12)
    options = ModelOptions(model=str(folder), device="cpu", precision="float32", adapter="none", turn_completion="none")
    questions = select("tuning", ["follow-ups"])[:6]

    def answers() -> list[tuple[str, ...]]:
        results = bench.run(options, questions, Console(quiet=True), instructions=INSTRUCTIONS)
        return [result.answers for result in results]

    together = answers()
    monkeypatch.setattr(bench, "_CONVERSATIONS", 1)
    assert answers() == together


def test_no_question_is_in_the_training_data_of_the_request_classifier() -> None:
    def words(text: str) -> str:
        return " ".join(re.findall(r"[a-z0-9']+", text.lower()))

    learned = {words(request.messages[-1].content) for request in labelled_requests(seed=1)}
    asked = {words(question.turns[-1]) for question in load_questions()}
    assert not learned & asked

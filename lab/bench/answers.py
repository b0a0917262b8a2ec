"""`rejoinder bench answers`: how good the language model's answers are. It asks the questions of answers.toml as spoken
turns with the default instructions, without audio, and grades the answers by rules (lab/bench/grading.py). With the
built-in tools, a session answers them."""

from __future__ import annotations

import asyncio
import math
import tomllib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from agent.instructions import INSTRUCTIONS
from agent.language_model import LanguageModel
from chat.types import Ask
from lab.bench.grading import Grade, Rule, grade
from lab.bench.session_answers import SessionAnswer, session_answers
from model.engine.conversation import Conversation
from server.serving.model_choice import resolve_model
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine
from server.serving.speech import load_speech_models
from voice.history import History, Item

Half = Literal["tuning", "reported"]

MAX_TOKENS = 160
"""Answers are cut here. It is more than twice the words of a speakable answer, so that no grade depends on it."""

_CONVERSATIONS = 4
"""Conversations at a time. A forward pass of four is cheaper than four, and computes the same text."""


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        name: the category and the position in it, such as `facts-12`.
        half: instructions are tuned on one half of each category, and figures are reported of the other.
        turns: what the user says, in one or two turns; the last answer is graded.
        reference, wrong: an answer that the rule accepts, and one that it rejects.
        done: the rule for an answer that says what a built-in tool did, where one can do what no model can.
    """

    name: str
    category: str
    half: Half
    turns: tuple[str, ...]
    rule: Rule
    reference: str
    wrong: str
    done: Rule | None = None

    def grade(self, answer: str, *, builtin_tools: bool) -> Grade:
        """The grade of an answer to the last turn."""
        found = grade(answer, self.rule)
        if found.errors and builtin_tools and self.done is not None:
            found = min(found, grade(answer, self.done), key=lambda each: len(each.errors))
        return found


@dataclass(frozen=True)
class GradedAnswer:
    """What the model answered to a question, and its grade.

    Attributes:
        answers: one for each turn.
        policy: of the planner, which decided on the last one; empty where there is no planner.
    """

    question: Question
    answers: tuple[str, ...]
    grade: Grade
    policy: str = ""


@dataclass(frozen=True)
class Score:
    """How many answers are correct, how many are speakable, and how many are both, which is to pass."""

    questions: int
    correct: int
    suited: int
    passed: int

    @property
    def percent(self) -> float:
        """Share that passed, 0 to 100."""
        return 100 * self.passed / self.questions

    @property
    def interval(self) -> tuple[float, float]:
        """The Wilson score interval of `percent`, 95 %: what other questions of this kind could have yielded."""
        z, n, share = 1.96, self.questions, self.passed / self.questions
        center, width = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return tuple(100 * (center + side * width) / (1 + z * z / n) for side in (-1, 1))  # type: ignore[return-value]


def load_questions() -> list[Question]:
    """All questions, in the order of the file. Raises ValueError if one has no valid rule."""
    data = tomllib.loads(resources.files("lab.bench").joinpath("answers.toml").read_text(encoding="utf-8"))
    return [
        _question(category, number, entry)
        for category, entries in data.items()
        for number, entry in enumerate(entries, 1)
    ]


def _question(category: str, number: int, entry: Mapping[str, Any]) -> Question:
    name = f"{category}-{number}"
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    try:
        turns, reference, wrong = fields.pop("ask"), fields.pop("reference"), fields.pop("wrong")
        done = Rule(says=fields.pop("done")) if "done" in fields else None
        rule = Rule(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the question {name} is not valid: {error}") from error
    turns = (turns,) if isinstance(turns, str) else turns
    return Question(name, category, "tuning" if number % 2 else "reported", turns, rule, reference, wrong, done)


def select(half: Half | Literal["all"], categories: Sequence[str] = ()) -> list[Question]:
    """The questions of one half or of all, and of these categories only if any are given.

    Raises:
        ValueError: there is no such category.
    """
    questions = load_questions()
    known = list(dict.fromkeys(question.category for question in questions))
    unknown = [category for category in categories if category not in known]
    if unknown:
        raise ValueError(f"there is no category {unknown[0]!r}: choose from {', '.join(known)}")
    return [
        question
        for question in questions
        if half in ("all", question.half) and (not categories or question.category in categories)
    ]


def run(
    model_options: ModelOptions,
    questions: Sequence[Question],
    console: Console,
    on_answer: Callable[[], None] = lambda: None,
    instructions: str = INSTRUCTIONS,
    builtin_tools: bool = False,
) -> list[GradedAnswer]:
    """Ask and grade the questions. Raises what loading a model raises.

    Args:
        on_answer: called after each question.
        builtin_tools: whether the built-in tools may be called, as on the page.
    """
    model_options = resolve_model(model_options)
    engine = load_engine(model_options, console)

    async def ask_model() -> list[GradedAnswer]:
        async def answer(question: Question) -> list[SessionAnswer]:
            texts = await ask(Conversation(engine), question.turns, instructions)
            return [SessionAnswer(text, "") for text in texts]

        return await ask_all(answer, questions, on_answer)

    async def ask_sessions() -> list[GradedAnswer]:
        async with session_answers(engine, load_speech_models(model_options, console), instructions) as asked:

            async def answer(question: Question) -> list[SessionAnswer]:
                return await asked(question.turns, MAX_TOKENS)

            return await ask_all(answer, questions, on_answer, builtin_tools=True)

    try:
        return asyncio.run(ask_sessions() if builtin_tools else ask_model())
    finally:
        engine.close()


async def ask_all(
    answer: Callable[[Question], Awaitable[Sequence[SessionAnswer]]],
    questions: Sequence[Question],
    on_answer: Callable[[], None],
    *,
    builtin_tools: bool = False,
) -> list[GradedAnswer]:
    """Ask every question in a conversation of its own, and grade the answers, in the order of the questions."""
    capacity = asyncio.Semaphore(_CONVERSATIONS)

    async def ask_one(question: Question) -> GradedAnswer:
        async with capacity:
            answers = await answer(question)
        on_answer()
        last, texts = answers[-1], tuple(each.text for each in answers)
        return GradedAnswer(question, texts, question.grade(last.text, builtin_tools=builtin_tools), last.policy)

    return await asyncio.gather(*map(ask_one, questions))


async def ask(language_model: LanguageModel, turns: Sequence[str], instructions: str) -> tuple[str, ...]:
    """The answers to the turns of a conversation, with the prompts that a voice session makes."""
    history, answers = History(), []
    for number, turn in enumerate(turns):
        history.add(Item(f"turn-{number}", "user", turn, complete=True))
        prompt, answer = history.messages(instructions), ""
        async for progress in language_model.reply(Ask(prompt, max_tokens=MAX_TOKENS)):
            answer += progress.committed
        history.add(Item(f"response-{number}", "assistant", answer, complete=True))
        answers.append(answer.strip())
    return tuple(answers)


def scores(answers: Sequence[GradedAnswer]) -> dict[str, Score]:
    """The score of each category, and of `all`."""
    categories: dict[str, list[Grade]] = {}
    for answer in answers:
        categories.setdefault(answer.question.category, []).append(answer.grade)
    categories["all"] = [answer.grade for answer in answers]
    return {
        name: Score(
            len(grades),
            sum(not grade.errors for grade in grades),
            sum(not grade.unsuited for grade in grades),
            sum(grade.passed for grade in grades),
        )
        for name, grades in categories.items()
    }


def as_json(model: str, half: str, answers: Sequence[GradedAnswer]) -> dict[str, Any]:
    """The output of `--json`: the scores, and every question with its answers and what is wrong with the last one."""
    return {
        "model": model,
        "half": half,
        "scores": {
            name: {**asdict(score), "percent": round(score.percent, 1)} for name, score in scores(answers).items()
        },
        "answers": [
            {
                "question": answer.question.name,
                "turns": answer.question.turns,
                "answers": answer.answers,
                "decided_by": answer.policy,
                "errors": answer.grade.errors,
                "unsuited": answer.grade.unsuited,
            }
            for answer in answers
        ],
    }


def passed_by_policy(answers: Sequence[GradedAnswer]) -> dict[str, tuple[int, int]]:
    """By the policy that decided on answers: how many passed, and how many there are. Most come first."""
    counts = Counter(answer.policy for answer in answers if answer.policy)
    passed = Counter(answer.policy for answer in answers if answer.grade.passed)
    return {policy: (passed[policy], count) for policy, count in counts.most_common()}


def show(title: str, answers: Sequence[GradedAnswer], console: Console) -> None:
    """Print the scores as a table."""
    table = Table("category", "questions", "correct", "speakable", "passed", "%", title=title)
    results = scores(answers)
    for name, score in results.items():
        table.add_row(name, *map(str, asdict(score).values()), f"{score.percent:.0f}", end_section=name != "all")
    console.print(table)
    low, high = results["all"].interval
    console.print(f"95 % interval of all: {low:.0f} to {high:.0f} %", highlight=False)
    for policy, (passed, count) in passed_by_policy(answers).items():
        console.print(f"decided by {policy}: {passed} of {count} passed", highlight=False)


def show_failures(answers: Sequence[GradedAnswer], console: Console) -> None:
    """Print every answer that did not pass, with the question and the reasons."""
    for answer in answers:
        if answer.grade.passed:
            continue
        console.print(answer.question.name, style="bold", markup=False, highlight=False)
        for turn, text in zip(answer.question.turns, answer.answers, strict=True):
            console.print(f"  {turn}", style="dim", markup=False, highlight=False)
            console.print(f"  {text}", markup=False, highlight=False)
        reasons = "; ".join((*answer.grade.errors, *answer.grade.unsuited))
        console.print(f"  {reasons}", style="red", markup=False, highlight=False)

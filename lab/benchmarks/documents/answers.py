"""Written answers to the questions, and what instructions in documents do to them."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.documents.evidence import DocumentEvidence
from agent.documents.search import SharedDocuments
from agent.instructions import INSTRUCTIONS
from agent.language_model import LanguageModel, RemoteRequest, Source
from agent.plan import Decision
from agent.planner import Planner
from agent.program.values import local_time
from agent.tools.alarms import Alarms
from agent.tools.server_tools import builtin_tools
from agent.tools.user_data import UserData
from chat.types import Ask, Message, Tool
from lab.benchmarks.documents.evaluation import HERE, Question, is_supported

_MAX_TOKENS = 80


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        sources: the passages in its prompt.
        first_ms: from the request to the first text.
        calls: names of the functions that it called.
    """

    text: str
    sources: tuple[Source, ...]
    first_ms: float
    calls: tuple[str, ...]

    def names_source(self, question: Question) -> bool:
        """Whether it begins with the title of the document that answers the question."""
        titles = {source.title for source in self.sources if source.location.startswith(question.document)}
        return any(self.text.startswith(f"According to {title},") for title in titles)


async def ask(planner: Planner, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Answer:
    """Ask a question."""
    text, sources, calls = "", tuple[Source, ...](), list[str]()
    started, first = time.monotonic(), 0.0
    async for progress in planner.respond(Ask(messages, max_tokens=_MAX_TOKENS, tools=tools)):
        if isinstance(progress, Decision):
            sources = () if progress.grounding is None else progress.grounding.sources
            continue
        assert not isinstance(progress, RemoteRequest)  # there is no bigger model
        if progress.committed and not text:
            first = time.monotonic() - started
        text += progress.committed
        calls += [delta.name for delta in progress.tool_calls if delta.done]
    return Answer(text.strip(), sources, 1000 * first, tuple(calls))


async def ask_all(model: LanguageModel, questions: Sequence[Question], documents: SharedDocuments) -> list[Answer]:
    """The answers to all questions, each in a conversation of its own, of which none reads ahead."""
    answers: dict[str, str] = {}
    found = []
    for question in questions:
        grounded = Planner(model, None, DocumentEvidence(documents))
        answer = await ask(grounded, question.messages(INSTRUCTIONS, answers))
        answers[question.text] = answer.text
        found.append(answer)
        mark = "+" if is_supported(question, answer.text) else "-"
        print(f"{mark} {question.text} → {answer.text}", flush=True)
    return found


@dataclass(frozen=True)
class Injection:
    """A document that gives an instruction, a question that it answers, and how to tell that the instruction was
    followed."""

    text: str
    question: str
    obeyed: str


def read_injections() -> list[Injection]:
    """All of them."""
    return [Injection(**entry) for entry in tomllib.loads((HERE / "injections.toml").read_text())["injection"]]


def write_injections(folder: Path, injections: Sequence[Injection]) -> None:
    """Write a document for each."""
    folder.mkdir()
    for number, injection in enumerate(injections):
        (folder / f"leaflet {number}.txt").write_text(injection.text)


async def obeyed_injections(
    model: LanguageModel, injections: Sequence[Injection], documents: SharedDocuments, data: Path
) -> tuple[int, int]:
    """How many instructions are followed in what is said, and how many functions are called. All built-in tools are on
    offer."""
    user_data = UserData(data / "user_data.sqlite")
    tools = [tool.declaration for tool in builtin_tools(user_data, Alarms(user_data, local_time))]
    obeyed = called = 0
    for injection in injections:
        messages = [Message("system", INSTRUCTIONS), Message("user", injection.question)]
        answer = await ask(Planner(model, None, DocumentEvidence(documents)), messages, tools)
        followed = re.search(injection.obeyed, answer.text, re.IGNORECASE) is not None
        obeyed, called = obeyed + followed, called + len(answer.calls)
        print(f"{'!' if followed or answer.calls else '+'} {injection.question} → {answer.text} {answer.calls or ''}")
    user_data.close()
    return obeyed, called

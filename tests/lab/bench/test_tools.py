"""`rejoinder bench tools`: its cases, how calls are compared, and what is reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tokenizers import Tokenizer
from typer.testing import CliRunner

from chat.types import Ask, Message, Tool
from cli.main import app
from lab.bench import tools as bench
from lab.bench.call_matching import ExpectedCall, accepts, example, mistake, valid
from lab.bench.tool_cases import Decision, ToolCase, all_tools, load_cases, select
from lab.bench.tools import Response, Result
from tests.conftest import save_tiny_checkpoint

CASES = load_cases()
WEATHER = Tool(
    "get_weather",
    "Get the weather.",
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
)
PARIS = ("get_weather", '{"city": "Paris"}')


def test_there_are_two_hundred_requests_and_fifty_conversations_in_two_halves() -> None:
    for half in ("tuning", "held-out"):
        counts = Counter(case.category for case in CASES if case.half == half)
        assert sum(counts[name] for name in ("simple", "multiple", "parallel", "irrelevance")) >= 100
        assert counts["conversation"] >= 25 and counts["talk"] >= 7
        assert min(counts[name] for name in ("simple", "multiple", "irrelevance")) >= 30 and counts["parallel"] >= 20
    assert len({case.name for case in CASES}) == len(CASES)


def test_the_halves_share_no_tool_and_no_request() -> None:
    tuning, held_out = select("tuning"), select("held-out")
    assert not {tool.name for tool in all_tools(tuning)} & {tool.name for tool in all_tools(held_out)}
    said = [decision.messages for case in CASES for decision in case.decisions]
    assert len(set(said)) == len(said)


def test_every_expected_call_is_valid_and_accepted() -> None:
    for case in CASES:
        for decision in case.decisions:
            made = [(call.name, json.dumps(example(call))) for call in decision.expected]
            assert mistake(made, decision.expected, case.tools) == "", case.name


def test_a_conversation_continues_with_what_would_have_been_right() -> None:
    case = next(case for case in CASES if case.name == "farm-12")
    assert [len(decision.expected) for decision in case.decisions] == [1, 1, 0]
    messages = case.decisions[-1].messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert messages[1].tool_calls[0].id == messages[2].tool_call_id
    assert json.loads(messages[3].tool_calls[0].arguments) == {"field": "north", "minutes": 20}


@pytest.mark.parametrize(
    "made, expected, reason",
    [
        ([PARIS], [{"city": "Paris"}], ""),
        ([PARIS], [{"city": ["Lyon", "the paris"]}], ""),
        ([PARIS], [{"city": "Paris", "days?": 2}], ""),
        ([PARIS], [{"city": "Paris", "days": 2}], "wrong arguments"),
        ([PARIS], [{"city": "~par|paris"}], ""),
        ([PARIS], [{"city": "~paris today"}], "wrong arguments"),
        ([("get_weather", '{"city": "Paris", "days": 2}')], [{"city": "Paris"}], "wrong arguments"),
        ([("get_weather", '{"city": "Paris", "days": true}')], [], "a call that is not needed"),
        ([("get_weather", '{"city": "Paris", "days": "2"}')], [{"city": "Paris"}], "arguments that do not match"),
        ([], [{"city": "Paris"}], "no call"),
        ([], [], ""),
        ([PARIS, PARIS], [{"city": "Paris"}], "2 calls instead of 1"),
        ([PARIS, ("get_weather", '{"city": "Rome"}')], [{"city": "Rome"}, {"city": "Paris"}], ""),
        ([PARIS, PARIS], [{"city": "Rome"}, {"city": "Paris"}], "wrong arguments"),
    ],
)
def test_calls_are_compared_argument_by_argument(
    made: list[tuple[str, str]], expected: list[dict[str, Any]], reason: str
) -> None:
    calls = [ExpectedCall("get_weather", arguments) for arguments in expected]
    found = mistake(made, calls, [WEATHER])
    assert found.startswith(reason) if reason else not found


def test_values_are_compared_by_their_type() -> None:
    def accepted(right: Any, value: Any) -> bool:
        return accepts(ExpectedCall("f", {"x": right}), {"x": value})

    assert accepted(2, 2.0) and not accepted(1, True) and not accepted("2", 2)
    assert accepted([["a", "b"]], ["A", "b."]) and not accepted([["a", "b"]], ["b", "a"])
    assert accepted([[{"name": ["egg", "eggs"]}]], [{"name": "eggs"}]) and not accepted([[{"name": "egg"}]], [{}])


def test_an_unknown_function_and_text_that_is_no_json_are_not_valid() -> None:
    assert valid(*PARIS, [WEATHER])
    assert not valid("get_news", "{}", [WEATHER]) and not valid("get_weather", '{"city"', [WEATHER])


@dataclass(frozen=True)
class Delta:
    name: str
    arguments: str
    index: int = 0
    done: bool = True


@dataclass(frozen=True)
class FakeProgress:
    committed: str = ""
    tool_calls: tuple[Delta, ...] = ()
    finished: str | None = None
    tokens: int = 9


class FakeModel:
    """Makes the same response to everything, and keeps the prompts."""

    def __init__(self, *progress: FakeProgress) -> None:
        self._progress = progress
        self.prompts: list[Sequence[Message]] = []

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        self.prompts.append(ask.messages)
        for progress in self._progress:
            yield progress
        if not self._progress:
            raise RuntimeError("no luck")


def case_of(category: str, *expected: ExpectedCall) -> ToolCase:
    return ToolCase("w-1", category, "tuning", (WEATHER,), (Decision((Message("user", "Paris?"),), expected),))


async def ask(model: FakeModel, case: ToolCase) -> Response:
    return (await bench.ask(model, case, case.tools)).responses[0]  # type: ignore[arg-type]


async def test_responses_are_judged() -> None:
    call = FakeModel(
        FakeProgress(tool_calls=(Delta("get_weather", '{"city": ', done=False),)),
        FakeProgress(tool_calls=(Delta("get_weather", '"Paris"}'),), finished="tool_calls"),
    )
    right = await ask(call, case_of("simple", ExpectedCall("get_weather", {"city": "Paris"})))
    assert (right.calls, right.mistake, right.valid) == ((PARIS,), "", True)
    assert call.prompts[0][-1] == Message("user", "Paris?") and call.prompts[0][0].role == "system"
    assert (await ask(call, case_of("irrelevance"))).mistake == "a call that is not needed"
    text = FakeModel(FakeProgress("I'm sorry, I can't do that."), FakeProgress(" Never."))
    assert (await ask(text, case_of("irrelevance"))).mistake == ""
    assert (await ask(text, case_of("talk"))).mistake == "it declines to talk"
    assert (await ask(FakeModel(), case_of("talk"))).mistake == "it failed: no luck"
    endless = FakeModel(FakeProgress(tool_calls=(Delta("get_weather", '{"city": "', done=False),), finished="length"))
    response = await ask(endless, case_of("simple", ExpectedCall("get_weather", {"city": "Paris"})))
    assert response.mistake.startswith("no end") and not response.valid


def test_results_are_resumed_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert bench.read_results(path) == {}
    result = Result("w-1", "simple", (Response((PARIS,), "", 0.5, "", True),))
    path.write_text(json.dumps(bench.asdict(result)) + "\n")
    assert bench.read_results(path) == {"w-1": result}
    path.write_text("{}\n")
    with pytest.raises(ValueError, match=r"line 1 of .* is not a result"):
        bench.read_results(path)


def test_scores_failures_and_retrieval_are_reported() -> None:
    case = case_of("simple", ExpectedCall("get_weather", {"city": "Paris"}))
    results = [Result("w-1", "simple", (Response((), "It rains.", 0.25, "no call", True),))]
    score = bench.scores(results)["simple"]
    assert (score.cases, score.right, score.decided, score.calls, score.milliseconds) == (1, 0, 0, 0, 250)
    assert list(bench.failures([case], results)) == ["w-1: Paris? → 'It rains.': no call"]
    needed, found = bench.retrieval(select("held-out"))
    assert needed > 90 and found / needed > 0.7
    console = Console(record=True, width=120)
    bench.show("tiny", [case], results, console)
    assert "no call" not in console.export_text()


def test_the_command_evaluates_a_model_and_continues(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder = save_tiny_checkpoint(tmp_path / "tiny", tiny_tokenizer, "qwen2", max_position_embeddings=8192)
    command = [
        "bench", "tools", "--half", "tuning", "--category", "talk", "--model", str(folder), "--device", "cpu",
        "--precision", "float32", "--adapter", "none", "--turn-completion", "none", "--json",
        "--results", str(tmp_path / "results.jsonl"),
    ]  # fmt: skip
    first, again = (json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout) for _ in range(2))
    assert first == again
    assert first["scores"]["talk"]["cases"] == len(first["results"]) == 7
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 7


def test_an_unknown_category_gets_one_sentence() -> None:
    result = CliRunner().invoke(app, ["bench", "tools", "--category", "cooking"])
    assert result.exit_code == 1
    assert result.stderr.startswith("rejoinder: there is no category 'cooking'")

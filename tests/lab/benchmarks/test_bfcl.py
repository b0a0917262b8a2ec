"""BFCL's questions: which are asked, how its functions are declared, and which calls are right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from lab.benchmarks.bfcl import __main__ as bfcl
from lab.benchmarks.bfcl import items
from lab.benchmarks.bfcl.__main__ import main, mistakes, tabulate, verdict
from lab.benchmarks.bfcl.examples import example
from lab.benchmarks.bfcl.grading import Call, mistake, parse_call
from lab.benchmarks.bfcl.items import Item, QuestionsUnavailable, read_items, sample
from lab.benchmarks.bfcl.results import Result, Results, ask, ask_all

BOOKING: dict[str, Any] = {
    "name": "room.book",
    "description": "Books a room.",
    "parameters": {
        "type": "dict",
        "properties": {
            "room": {"type": "string", "description": "Its name."},
            "price": {"type": "float", "description": "At most."},
            "hours": {"type": "integer", "description": "How long."},
            "guests": {"type": "array", "items": {"type": "string"}},
            "meals": {"type": "array", "items": {"type": "dict"}},
            "place": {"type": "dict", "properties": {"point": {"type": "tuple", "items": {"type": "float"}}}},
            "note": {"type": "any"},
            "urgent": {"type": "boolean"},
        },
        "required": ["room"],
    },
}

ACCEPTED: dict[str, Any] = {
    "room": ["Blue Room", "the blue room"],
    "price": ["", 20, 25.5],
    "hours": ["", 3],
    "guests": ["", ["Ann Lee", "Bo"]],
    "meals": ["", [{"dish": ["soup"], "size": ["", "large"]}]],
    "place": ["", {"floor": [2], "wing": ["", "East-wing"]}],
    "note": [""],
    "urgent": ["", True],
}

QUESTION = Item(
    "multiple_1", "multiple", [{"role": "user", "content": "Book it."}], [BOOKING], [{"room.book": ACCEPTED}]
)

IRRELEVANT = replace(QUESTION, id="irrelevance_3", kind="irrelevance", answers=())


def booking(**arguments: Any) -> Call:
    return Call("room_book", {"room": "Blue Room", **arguments})


def numbered(kind: str, count: int) -> list[Item]:
    return [
        replace(QUESTION, id=f"{kind}_{n}-7-0", kind=kind, messages=[{"role": "user", "content": str(n)}])
        for n in range(count)
    ]


def result(item: Item, *calls: tuple[str, str], refusal: str = "", seconds: float = 1.0) -> Result:
    return Result(item.id, calls, "", refusal, seconds)


def test_functions_are_declared_with_the_types_of_json_schema_and_names_without_dots() -> None:
    (tool,) = QUESTION.tools
    function = tool["function"]
    assert function["name"] == "room_book"
    assert function["description"] == "Books a room. Note that the provided function is in Python 3 syntax."
    Draft202012Validator.check_schema(function["parameters"])
    properties = function["parameters"]["properties"]
    assert function["parameters"]["type"] == "object"
    assert properties["price"] == {
        "type": "number",
        "format": "float",
        "description": "At most. This is a float type value.",
    }
    assert properties["meals"]["items"] == {"type": "object"}
    assert properties["place"]["properties"]["point"] == {"type": "array", "items": {"type": "number"}}
    assert properties["note"]["type"] == "string"
    assert BOOKING["parameters"]["type"] == "dict"  # the checker needs BFCL's own types


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"room": "the blue-room"},
        {"price": 25.5},
        {"price": 20},
        {"guests": ["ann lee", "BO."]},
        {"meals": [{"dish": "Soup"}]},
        {"meals": [{"dish": "soup", "size": "large"}]},
        {"place": {"floor": 2, "wing": "east wing"}},
        {"note": ""},
        {"urgent": True},
    ],
    ids=str,
)
def test_a_call_with_accepted_values_is_right(arguments: dict[str, Any]) -> None:
    assert mistake(QUESTION, [booking(**arguments)]) == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"room": "Red Room"}, "room is 'Red Room' instead of 'Blue Room' or 'the blue room'"),
        ({"price": "20"}, "price is '20'"),
        ({"price": 21}, "price is 21 instead"),
        ({"hours": 3.0}, "hours is 3.0"),
        ({"hours": True}, "hours is True"),
        ({"guests": ["Bo", "Ann Lee"]}, "guests is"),
        ({"guests": "Bo"}, "guests is"),
        ({"meals": [{"dish": "soup"}, {"dish": "soup"}]}, "meals is"),
        ({"meals": [{"size": "large"}]}, "meals is"),
        ({"place": {"floor": 2, "door": 1}}, "place is"),
        ({"note": "quickly"}, "note is 'quickly'"),
        ({"urgent": 1}, "urgent is 1"),
        ({"colour": "blue"}, "colour is not to be given"),
    ],
    ids=str,
)
def test_a_call_with_another_value_or_type_is_wrong(arguments: dict[str, Any], reason: str) -> None:
    assert mistake(QUESTION, [booking(**arguments)]).startswith(reason)


def test_an_argument_that_may_not_be_left_out_is_missed() -> None:
    demanding = replace(QUESTION, answers=[{"room.book": {**ACCEPTED, "hours": [3]}}])
    assert mistake(QUESTION, [Call("room_book", {})]) == "without room"
    assert mistake(demanding, [booking()]) == "without hours"


def test_a_value_of_another_type_that_is_accepted_literally_is_right() -> None:
    variable = replace(QUESTION, answers=[{"room.book": {**ACCEPTED, "guests": ["everyone"]}}])
    assert mistake(variable, [booking(guests="everyone")]) == ""
    assert mistake(variable, [booking(guests="Everyone")]) != ""


def test_calls_of_the_wrong_function_or_number_or_without_arguments_are_wrong() -> None:
    assert mistake(QUESTION, []) == "0 calls instead of 1"
    assert mistake(QUESTION, [booking(), booking()]) == "2 calls instead of 1"
    assert mistake(QUESTION, [Call("room.book", {})]) == "room.book instead of room_book"
    assert mistake(QUESTION, [parse_call("room_book", '{"room": "Blu')]) == "arguments that are no JSON object"


def test_several_calls_are_right_in_any_order_and_each_counts_once() -> None:
    both = replace(QUESTION, answers=[{"room.book": {**ACCEPTED, "hours": [hours]}} for hours in (2, 3)])
    assert mistake(both, [booking(hours=3), booking(hours=2)]) == ""
    assert mistake(both, [booking(hours=3), booking(hours=3)]) == "hours is 3 instead of 2"
    same = replace(QUESTION, answers=[*QUESTION.answers, *QUESTION.answers])
    assert mistake(same, [booking(hours=3.0), booking(hours=3)]) == "hours is 3.0 instead of '' or 3"


def test_where_no_function_fits_any_call_is_wrong() -> None:
    assert mistake(IRRELEVANT, []) == ""
    assert mistake(IRRELEVANT, [parse_call("room_book", "{")]) == "a call where no function fits"
    relevant = replace(IRRELEVANT, kind="live_relevance")
    assert (mistake(relevant, []), mistake(relevant, [booking()])) == ("no call", "")


def test_a_question_that_the_server_refuses_is_wrong() -> None:
    assert verdict(IRRELEVANT, result(IRRELEVANT, refusal="no such schema")) == "refused: no such schema"


def test_a_question_becomes_an_example_of_the_call_gate() -> None:
    one = example(QUESTION)
    assert (one["fits"], one["several"]) == (True, False)
    assert one["tools"][0]["name"] == "room_book" and one["messages"] == [{"role": "user", "content": "Book it."}]
    assert example(replace(QUESTION, answers=QUESTION.answers * 2))["several"] is True
    irrelevant = example(IRRELEVANT)
    assert irrelevant["fits"] is False and "several" not in irrelevant


def test_the_halves_share_no_question_and_the_reported_one_has_at_most_a_hundred() -> None:
    asked = numbered("live_simple", 300)
    asked[8] = replace(asked[8], messages=asked[7].messages)
    odd, even = sample(asked, "odd"), sample(asked, "even", 1000)
    assert len(odd) == 150 and all(item.number % 2 for item in odd)
    assert len(even) == 100 and not any(item.number % 2 for item in even)
    assert len(sample(asked[:20], "even")) == 9 and asked[8] not in sample(asked[:20], "even")


def test_a_smaller_sample_begins_a_larger_one_and_is_spread_over_the_kind() -> None:
    asked = numbered("live_simple", 400)
    small = sample(asked, "odd", 20)
    assert sample(asked, "odd", 60)[:20] == small
    assert all(4 <= sum(item.number // 100 == quarter for item in small) <= 6 for quarter in range(4))


def test_questions_and_answers_are_read_from_bfcls_files(tmp_path: Path) -> None:
    question = {"id": "multiple_1", "question": [QUESTION.messages], "function": [BOOKING]}
    answer = {"id": "multiple_1", "ground_truth": QUESTION.answers}
    (tmp_path / "possible_answer").mkdir()
    for kind in ("multiple", "irrelevance"):
        (tmp_path / f"BFCL_v4_{kind}.json").write_text(json.dumps(question) + "\n")
    (tmp_path / "possible_answer" / "BFCL_v4_multiple.json").write_text(json.dumps(answer) + "\n")
    assert read_items("multiple", tmp_path) == [QUESTION]
    assert read_items("irrelevance", tmp_path)[0].answers == ()


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(items, "version", missing)
    with pytest.raises(QuestionsUnavailable, match="pip install --no-deps bfcl-eval"):
        read_items("multiple")


class Endpoint:
    """Answers every request with one call."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answer = httpx.Response(
            200,
            json={
                "choices": [
                    {
                        "message": {
                            "content": None,
                            "tool_calls": [{"function": {"name": "room_book", "arguments": '{"room": "Blue Room"}'}}],
                        }
                    }
                ]
            },
        )

    def client(self) -> httpx.AsyncClient:
        def respond(request: httpx.Request) -> httpx.Response:
            self.requests.append(json.loads(request.content))
            return self.answer

        return httpx.AsyncClient(transport=httpx.MockTransport(respond), base_url="http://server.example")


async def test_the_model_may_call_once_or_more_or_not_and_does_not_sample() -> None:
    endpoint = Endpoint()
    async with endpoint.client() as client:
        answer = await ask(client, QUESTION, 512)
    assert verdict(QUESTION, answer) == ""
    (request,) = endpoint.requests
    assert request["tool_choice"] == "auto" and request["parallel_tool_calls"] is True
    assert request["temperature"] == 0 and request["max_tokens"] == 512
    assert request["messages"] == QUESTION.messages and request["tools"] == QUESTION.tools


async def test_a_refusal_is_a_result_and_a_failure_is_not(tmp_path: Path) -> None:
    endpoint, results = Endpoint(), Results(tmp_path / "results.jsonl", {})
    async with endpoint.client() as client:
        endpoint.answer = httpx.Response(400, json={"error": {"message": "no such schema"}})
        assert (await ask(client, QUESTION, 512)).refusal == "no such schema"
        endpoint.answer = httpx.Response(503)
        with pytest.raises(httpx.HTTPStatusError):
            await ask_all(client, [QUESTION], results, 512)
    assert results.of == {}


async def test_results_are_kept_for_the_next_run_with_the_same_settings(tmp_path: Path) -> None:
    file, endpoint = tmp_path / "new" / "results.jsonl", Endpoint()
    async with endpoint.client() as client:
        await ask_all(client, [QUESTION, IRRELEVANT], Results(file, {"model": "a"}), 512)
    again = Results(file, {"model": "a"}).of
    assert verdict(QUESTION, again[QUESTION.id]) == ""
    assert verdict(IRRELEVANT, again[IRRELEVANT.id]) == "a call where no function fits"
    assert Results(file, {"model": "b"}).of == {}


def test_the_table_counts_only_what_was_asked() -> None:
    first, second, third = numbered("irrelevance", 3)
    call = ("room_book", '{"room": "Blue Room"}')
    results = {
        first.id: result(first, seconds=1.0),
        second.id: result(second, call, ("room_book", "{"), seconds=3.0),
        QUESTION.id: result(QUESTION, call, seconds=2.0),
    }
    table = tabulate({"irrelevance": [first, second, third], "multiple": [QUESTION], "parallel": []}, results)
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    assert rows == [
        ("irrelevance", "2", "50%", "1", "", "1", "2.0 s"),
        ("multiple", "1", "100%", "", "0", "0", "2.0 s"),
        ("parallel", "0", "", "", "0", "0", ""),
    ]


def test_only_wrong_answers_are_shown() -> None:
    results = {
        QUESTION.id: result(QUESTION, ("room_book", '{"room": "Blue Room"}')),
        IRRELEVANT.id: result(IRRELEVANT, ("room_book", "{}")),
    }
    (shown,) = mistakes({"multiple": [QUESTION], "irrelevance": [IRRELEVANT]}, results)
    assert shown.startswith("irrelevance_3: a call where no function fits\n  user: Book it.")
    assert "made: room_book({})" in shown


def test_a_run_that_is_broken_off_reports_what_there_is_and_says_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, second = [item for item in numbered("irrelevance", 4) if item.number % 2]

    async def answer_one(missing: Sequence[Item], results: Results, server_options: Sequence[str]) -> None:
        results.add(result(missing[0]))
        raise httpx.ReadError("gone")

    monkeypatch.setattr(bfcl, "read_items", lambda kind: [first, second])
    monkeypatch.setattr(bfcl, "questions_version", lambda: "1")
    monkeypatch.setattr(bfcl, "_checksum", lambda model: model)
    monkeypatch.setattr(bfcl, "_run", answer_one)
    command = ["--ids", "odd", "--kinds", "irrelevance", "--out", str(tmp_path / "results.jsonl")]
    with pytest.raises(SystemExit, match="1 questions were not asked: run the same command again"):
        main(command)
    assert "irrelevance │ 1 │ 100%" in capsys.readouterr().out
    main(command)
    assert "irrelevance │ 2 │ 100%" in capsys.readouterr().out


def test_nobody_looks_at_even_ids() -> None:
    with pytest.raises(SystemExit, match="Even ids are for reporting"):
        main(["--ids", "even", "--show", "--out", "results.jsonl"])

"""The benchmark of word problems: which answers are right, what is asked, and what a second run asks again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.benchmarks.reasoning import CONDITIONS, Item, ask_all, interval, is_right, paired, read_items, read_results
from lab.benchmarks.reasoning import tabulate as table

NUMBER = Item("gsm8k-test-0", "How many?", "1,250", "number")
OPTION = Item("navigate-report-0", "Back again?", "Yes", "option")


@pytest.mark.parametrize(
    ("item", "text", "right"),
    [
        (NUMBER, "Answer: 1250", True),
        (NUMBER, "First 12, then $1,250.00.", True),
        (NUMBER, "1250 at first, and 7 at last", False),
        (NUMBER, "many", False),
        (OPTION, "No doubt.\nAnswer: Yes", True),
        (OPTION, "Yes or no? No.", False),
        (OPTION, "Yesterday", False),
    ],
)
def test_the_last_number_or_option_counts(item: Item, text: str, right: bool) -> None:
    assert is_right(item, text) == right


def test_the_halves_of_a_set_share_nothing(tmp_path: Path) -> None:
    (tmp_path / "bbh").mkdir()
    examples = [{"input": f"{n}?", "target": "Yes"} for n in range(5)]
    (tmp_path / "bbh" / "navigate.json").write_text(json.dumps({"examples": examples}))
    tune, report = ([item.question for item in read_items(tmp_path, f"navigate-{part}")] for part in ("tune", "report"))
    assert (tune, report) == (["1?", "3?"], ["0?", "2?", "4?"])


async def test_what_has_a_result_is_not_asked_again(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        text = "1250" if "reasoning_effort" in asked[-1] else "12"
        usage = {
            "prompt_tokens": 9, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3},
        }  # fmt: skip
        return httpx.Response(200, json={"choices": [{"message": {"content": text}}], "usage": usage})

    out = tmp_path / "results.jsonl"
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://test") as client:
        await ask_all(client, [(NUMBER, condition) for condition in CONDITIONS], out, 2)
    assert [body.get("reasoning_effort") for body in asked] == [None, None, "low", "medium", "high"]
    assert "response_format" in asked[0] and all(body["temperature"] == 0 for body in asked)
    results = read_results(out)
    assert {condition for _, condition in results} == set(CONDITIONS)
    assert [results[NUMBER.id, condition].right for condition in CONDITIONS] == [False, False, True, True, True]
    rows = table([NUMBER, OPTION], results)
    assert rows.row_count == len(CONDITIONS) and list(rows.columns[1].cells) == ["1"] * len(CONDITIONS)


def test_intervals_are_those_of_the_textbook() -> None:
    low, high = interval(80, 100)
    assert low == pytest.approx(0.7112, abs=1e-4) and high == pytest.approx(0.8666, abs=1e-4)
    average, half = paired([1, 0, 0, -1, 1, 0, 0, 1])
    assert average == pytest.approx(0.25) and half == pytest.approx(1.96 * 0.7071 / 8**0.5, abs=1e-3)

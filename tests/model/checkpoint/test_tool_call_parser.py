"""Tool calls in text, whole and in pieces."""

from __future__ import annotations

import pytest

from chat.types import ToolCallDelta
from model.checkpoint.tool_call_parser import ToolCallParser

NAMES = ("get_weather", "end_call")


def parse(
    text: str, size: int, *, enforced: bool = False, most: int | None = None, tags_only: bool = False
) -> tuple[str, list[tuple[int, str, str, bool]]]:
    """Text for the user, and the calls with their pieces joined, from pieces of `size` characters."""
    parser = ToolCallParser(lambda name, arguments: name in NAMES, most=most, tags_only=tags_only)
    plain, deltas = "", list[ToolCallDelta]()
    for start in range(0, len(text), size):
        more, new = parser.push(text[start : start + size], enforced=enforced)
        plain, deltas = plain + more, deltas + new
    more, new = parser.finish()
    plain, deltas = plain + more, deltas + new
    joined: dict[int, tuple[int, str, str, bool]] = {}
    for delta in deltas:
        before = joined[delta.index][2] if delta.index in joined else ""
        joined[delta.index] = (delta.index, delta.name, before + delta.arguments, delta.done)
    return plain, list(joined.values())


WEATHER = (0, "get_weather", '{"city": "Paris"}', True)
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "plain", "calls"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>", "", [WEATHER]),
        (f"```json\n{CALL}\n```", "", [WEATHER]),
        (f"```\n{CALL}\n```", "", [WEATHER]),
        (f"```json\n{CALL}", "", [WEATHER]),
        (CALL, "", [WEATHER]),
        (f"\n {CALL}", "\n ", [WEATHER]),
        ('{"name":"get_weather","parameters":{"city":"Paris"}}', "", [WEATHER]),
        (f"<tools>{CALL}</tools>", "", [WEATHER]),
        (f"Let me check. <tool_call>{CALL}</tool_call>", "Let me check. ", [WEATHER]),
        (f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>", "", [WEATHER]),
        (
            f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL.replace('Paris', 'Rome')}</tool_call>",
            "",
            [WEATHER, (1, "get_weather", '{"city": "Rome"}', True)],
        ),
        ("Hello there.", "Hello there.", []),
        ("a < b and <tool", "a < b and <tool", []),
        ("```python\nprint(1)\n```", "```python\nprint(1)\n```", []),
        ('{"name": "rm", "arguments": {}}', '{"name": "rm", "arguments": {}}', []),
        ('{"a": 1}', '{"a": 1}', []),
        ("{ not JSON", "{ not JSON", []),
        ("", "", []),
    ],
)
def test_free_text_is_separated_from_calls(
    text: str, plain: str, calls: list[tuple[int, str, str, bool]], size: int
) -> None:
    got_plain, got_calls = parse(text, size)
    assert (got_plain if plain.strip() else got_plain.strip(), got_calls) == (plain if plain.strip() else "", calls)


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_white_space_is_kept_between_texts_and_dropped_between_calls(size: int) -> None:
    called, again = (f"<tool_call>{CALL.replace('Paris', city)}</tool_call>" for city in ("Paris", "Rome"))
    plain, calls = parse(f"Hello.\n{called}\n \n{again}\n\nFirst\n\nSecond one {called}\n", size)
    assert plain == "Hello.\n\n\nFirst\n\nSecond one " and len(calls) == 2


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(("most", "expected"), [(1, 1), (2, 2), (3, 3), (None, 3)])
def test_no_more_calls_count_than_a_response_may_make(size: int, most: int | None, expected: int) -> None:
    text = "\n".join(f"<tool_call>{CALL.replace('Paris', city)}</tool_call>" for city in ("Paris", "Rome", "Pisa"))
    for enforced in (False, True):
        plain, calls = parse(text, size, enforced=enforced, most=most)
        assert not plain and [index for index, *_ in calls] == list(range(expected))
    unclosed = parse(text.removesuffix("</tool_call>"), size, most=most)[1]
    assert len(unclosed) == expected


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_what_is_no_tag_is_text_where_no_call_counts(size: int) -> None:
    for text in (f"```json\n{CALL}\n```", CALL, f"<tools>{CALL}</tools>"):
        assert parse(text, size, tags_only=True) == (text, [])
    assert parse(f"Hello. <tool_call>{CALL}</tool_call>", size, tags_only=True) == ("Hello. ", [WEATHER])


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("text", [CALL, f"<tool_call>\n{CALL}\n</tool_call>"])
def test_a_call_that_a_grammar_enforced_is_read(text: str, size: int) -> None:
    assert parse(text, size, enforced=True) == ("", [WEATHER])
    two = f"{text}\n{text.replace('Paris', 'Rome')}"
    assert parse(two, size, enforced=True) == ("", [WEATHER, (1, "get_weather", '{"city": "Rome"}', True)])


def test_an_enforced_call_is_passed_on_while_it_is_written() -> None:
    parser = ToolCallParser(lambda name, arguments: True)
    assert parser.push('{"name": "get_weather", "arguments": {"ci', enforced=True)[1] == [
        ToolCallDelta(0, "get_weather", '{"ci', False)
    ]
    assert parser.push('ty": "}"', enforced=True)[1] == [ToolCallDelta(0, "get_weather", 'ty": "}"', False)]
    assert parser.push("}}", enforced=True)[1] == [ToolCallDelta(0, "get_weather", "}", True)]
    assert parser.finish() == ("", [])


def test_an_enforced_call_that_was_cut_off_is_not_done() -> None:
    assert parse('<tool_call>\n{"name": "get_weather", "arguments": {"ci', 5, enforced=True) == (
        "",
        [(0, "get_weather", '{"ci', False)],
    )


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_an_enforced_call_that_repeats_another_is_left_out_and_one_that_only_begins_alike_is_not(size: int) -> None:
    other = CALL.replace("Paris", "Pisa")
    text = "\n".join([CALL, CALL, other, CALL])
    assert parse(text, size, enforced=True) == ("", [WEATHER, (1, "get_weather", '{"city": "Pisa"}', True)])


def test_ordinary_text_is_not_held_back() -> None:
    parser = ToolCallParser(lambda name, arguments: True)
    assert parser.push("Good", enforced=False) == ("Good", [])
    assert not parser.is_holding
    assert parser.push(" morning <", enforced=False) == (" morning ", [])
    assert parser.push("3", enforced=False) == ("<3", [])

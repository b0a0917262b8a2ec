"""`logprobs` of chat completions and responses, as the official client sees them."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import OpenAI

from chat.progress import ScoredToken
from server.chat_completions.logprobs import ScoredText
from tests.server.chat_completions.test_chat import QUESTION
from tests.server.chat_completions.test_requests import TOOLS

LETTERS: Any = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-z ]{40}"}}
"""Without it the tiny model writes bytes that are no characters."""


def test_every_token_of_the_text_has_its_log_probability(client: OpenAI) -> None:
    options: Any = {"model": "tiny", "messages": QUESTION, "max_tokens": 12, "logprobs": True, "top_logprobs": 2}
    options["extra_body"] = {"response_format": LETTERS}
    (choice,) = client.chat.completions.create(**options).choices
    assert choice.logprobs is not None and choice.logprobs.content is not None
    entries = choice.logprobs.content
    assert len(entries) == 12
    assert bytes(byte for entry in entries for byte in entry.bytes or ()).decode() == choice.message.content
    for entry in entries:
        first, second = entry.top_logprobs
        assert first.logprob >= second.logprob and entry.logprob <= 0
        assert (entry.token, entry.logprob) == (first.token, pytest.approx(first.logprob))  # greedy
    chunks = list(client.chat.completions.create(**options, stream=True))
    streamed = [
        entry
        for chunk in chunks
        if (logprobs := chunk.choices[0].logprobs) is not None
        for entry in logprobs.content or ()
    ]
    assert [entry.token for entry in streamed] == [entry.token for entry in entries]
    assert [entry.logprob for entry in streamed] == pytest.approx([entry.logprob for entry in entries], abs=1e-4)


def test_log_probabilities_end_where_a_stop_sequence_ends_the_text(client: OpenAI) -> None:
    options: Any = {"model": "tiny", "messages": QUESTION, "max_tokens": 20, "logprobs": True}
    options["extra_body"] = {"response_format": LETTERS}
    (whole,) = client.chat.completions.create(**options).choices
    assert whole.logprobs is not None and whole.logprobs.content is not None
    text = whole.message.content or ""
    (cut,) = client.chat.completions.create(**options, stop=text[9:12]).choices
    assert cut.logprobs is not None and cut.logprobs.content is not None
    kept = text[: text.index(text[9:12])]
    spelled = "".join(entry.token for entry in cut.logprobs.content)
    assert spelled.startswith(kept) and len(spelled) - len(kept) < len(cut.logprobs.content[-1].token)
    assert not cut.logprobs.content[0].top_logprobs


def test_tokens_of_a_call_are_no_text(client: OpenAI) -> None:
    (choice,) = client.chat.completions.create(
        model="tiny", messages=QUESTION, tools=TOOLS, tool_choice="required", logprobs=True
    ).choices
    assert choice.message.tool_calls and choice.logprobs is not None and choice.logprobs.content == []


def test_top_logprobs_need_logprobs(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="top_logprobs needs logprobs"):
        client.chat.completions.create(model="tiny", messages=QUESTION, top_logprobs=2)


def test_responses_have_them_too(client: OpenAI) -> None:
    options: Any = {"model": "tiny", "input": "hello", "max_output_tokens": 9, "top_logprobs": 2}
    schema = {"type": "string", "pattern": "^[a-z]{20,30}$"}
    options["text"] = {"format": {"type": "json_schema", "name": "word", "schema": schema}}
    options["include"] = ["message.output_text.logprobs"]
    (message,) = client.responses.create(**options).output
    assert message.type == "message" and message.content[0].type == "output_text"
    entries = message.content[0].logprobs or []
    assert len(entries) == 9 and {len(entry.top_logprobs) for entry in entries} == {1, 2}  # the first one is forced
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == message.content[0].text
    events = list(client.responses.create(**options, stream=True))
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert [entry.token for event in deltas for entry in event.logprobs] == [entry.token for entry in entries]
    (done,) = (event for event in events if event.type == "response.output_text.done")
    assert len(done.logprobs) == 9


def test_without_asking_there_are_none(client: OpenAI) -> None:
    assert client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=2).choices[0].logprobs is None
    (message,) = client.responses.create(model="tiny", input="hello", max_output_tokens=3).output
    assert message.type == "message" and message.content[0].type == "output_text" and not message.content[0].logprobs


def test_tokens_wait_for_text_that_is_held_back() -> None:
    tokens = [ScoredToken(text, text.encode(), -1.0, len(text), ()) for text in ("ab", "cd", "ef", "gh")]
    scored = ScoredText()
    assert scored.push(tokens[:2], "a") == (tokens[0],)
    assert scored.push(tokens[2:3], "bc") == (tokens[1],)
    assert scored.push(tokens[3:], "def", in_call=True) == (tokens[2],)
    assert scored.push((), "gh") == ()


def test_the_last_tokens_may_be_parts_of_a_character() -> None:
    tokens = [ScoredToken("a", b"a", -1.0, 1, ()), ScoredToken("\ufffd", b"\xf0", -1.0, 0, ())]
    scored = ScoredText()
    assert scored.push(tokens, "a") == (tokens[0],)
    assert scored.push((), "", finished=True) == (tokens[1],)

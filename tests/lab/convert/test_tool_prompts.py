"""Conversations with tools that a model generates training text from."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from tokenizers import Tokenizer

from lab.bench.tool_cases import load_cases
from lab.convert.evaluate import evaluation_prompts
from lab.convert.generate_data import CorpusConfig, CorpusGenerator
from lab.convert.tool_prompts import (
    TOOL_KINDS,
    TOOL_SETS,
    as_read,
    looks_like_call,
    tool_conversation,
)
from model.engine.loader import LoadedModel, load_model
from tests.conftest import save_tiny_checkpoint
from tests.model.dialogues import with_doubled_weights

_DRAWN = 400


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> LoadedModel:
    """It does not repeat one token. Its tokens are short, so prompts with tools are long."""
    folder = tmp_path_factory.mktemp("long")
    save_tiny_checkpoint(folder, tiny_tokenizer, "qwen2", max_position_embeddings=4096)
    varied = with_doubled_weights(folder, tmp_path_factory.mktemp("varied"))
    return load_model(varied, device="cpu", precision="float32", adapter="none")


@pytest.mark.parametrize("kind", TOOL_KINDS)
def test_conversations_are_complete_varied_and_not_those_of_the_evaluation(kind: str) -> None:
    draw = random.Random(1)
    drawn = [tool_conversation(kind, draw) for _ in range(_DRAWN)]
    texts = {messages[0].content for messages, _ in drawn}
    assert len(texts) > _DRAWN // 4 and not any("<" in text for text in texts)
    assert not texts & {prompt.text for prompt in evaluation_prompts()}
    roles = ["user", "assistant", "tool"] if kind == "result" else ["user"]
    assert all([message.role for message in messages] == roles for messages, _ in drawn)
    assert all(tools for _, tools in drawn)


def test_calls_follow_the_schema_of_a_declared_tool_and_return_json() -> None:
    draw, seen = random.Random(2), set[str]()
    for _ in range(_DRAWN):
        (_, called, output), tools = tool_conversation("result", draw)
        (call,) = called.tool_calls
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
        jsonschema.validate(json.loads(call.arguments), schemas[call.name])
        assert json.loads(output.content) is not None and output.tool_call_id == call.id
        seen.add(call.name)
    assert seen == {tool.name for each in TOOL_SETS for tool in each.tools}


def test_some_requests_are_for_what_no_declared_tool_does_but_another_assistants() -> None:
    draw = random.Random(3)
    near = {other for each in TOOL_SETS for other in each.others}
    requests = [tool_conversation("no_tool", draw)[0][0].content for _ in range(_DRAWN)]
    plain = sum(request in near for request in requests)
    assert 0.2 < plain / _DRAWN < 0.6, "most patterns of the others have words to fill in"


def test_no_tool_is_one_of_those_that_measure_tool_calls() -> None:
    measured = {tool.name for case in load_cases() for tool in case.tools}
    assert not measured & {tool.name for each in TOOL_SETS for tool in each.tools}


def test_a_model_without_the_tag_reads_outputs_as_notes(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    messages, _ = tool_conversation("result", random.Random(4))
    noted = as_read(model, messages)
    assert model.notes_outputs, "random weights do not begin with the tag"
    assert [message.role for message in noted] == ["user", "system"]
    assert messages[-1].content in noted[-1].content
    assert as_read(model, messages[:1]) == list(messages[:1])
    monkeypatch.setattr(LoadedModel, "notes_outputs", False)
    assert as_read(model, messages) == list(messages)


@pytest.mark.parametrize("kind", ["no_tool", "result"])
def test_the_model_generates_refusals_and_answers_from_results(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("lab.convert.generate_data.MAX_TEXT_TOKENS", 4096)
    corpus = CorpusGenerator(model, "base", CorpusConfig(response_tokens=20, batch_size=4, shares={kind: 1.0})).run()
    assert corpus.texts
    for text in corpus.texts:
        ((begin, end),) = text.spans
        prompt, response = model.tokenizer.decode(text.tokens[:begin]), model.tokenizer.decode(text.tokens[begin:end])
        assert text.kind == kind and ("Result of" in prompt) == (kind == "result")
        assert not looks_like_call(response)


@pytest.mark.parametrize(
    ("text", "like_call"),
    [('{"name": "feed_pet"', True), ("<tool_call>\n", True), ("```json\n{", True), ("[1]", True), ("I can't.", False)],
)
def test_code_looks_like_a_call(text: str, like_call: bool) -> None:
    assert looks_like_call(text) is like_call

"""Training a call gate: its data, and that what it has learned decides for or against a call."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from chat.types import Ask, Message, Tool, ToolCall
from lab.convert import train_call_gate as training
from lab.convert.train_call_gate import labelled_prompts, read_examples, train_call_gate
from model.decode.call_decision import FENCE, CallThresholds
from model.decode.token_set import contains
from model.decode.tool_calls import ToolCallConstraint
from model.engine.call_gate import CallGate
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.engine.response_form import response_form
from tests.conftest import save_tiny_checkpoint

BOOK = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> LoadedModel:
    """A model whose context fits declarations."""
    folder = tmp_path_factory.mktemp("long")
    return load_model(save_tiny_checkpoint(folder, tiny_tokenizer, "qwen2", max_position_embeddings=2048), device="cpu")


def test_every_set_has_requests_that_fit_and_others_and_conversations() -> None:
    prompts = labelled_prompts(["hello"], seed=1)
    groups = {one.group for one in prompts}
    assert len(groups) > 100
    for group in groups:
        own = [one for one in prompts if one.group == group]
        fits = [one.answers["fits"] for one in own if "fits" in one.answers]
        assert len(fits) == 14 and sum(fits) == 7
        assert all(tool.parameters["type"] == "object" for one in own for tool in one.tools)
        for question in ("several", "continues"):
            assert {one.answers[question] for one in own if question in one.answers} == {True, False}
        assert len({one.messages[0].role for one in own}) == 1
    for one in prompts:
        assert one.messages[-1].role == ("tool" if "continues" in one.answers else "user")


def example(number: int, text: str, fits: bool, **more: bool) -> dict[str, Any]:
    tool = {"name": f"find_{number}", "description": "", "parameters": BOOK}
    return {"tools": [tool], "messages": [{"role": "user", "content": text}], "fits": fits, **more}


def test_examples_of_others_are_read_and_belong_together_by_their_functions(tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    rows = [example(1, "a", True, several=True), example(2, "b", False), example(1, "c", False)]
    file.write_text("\n".join(map(json.dumps, rows)))
    first, second, third = read_examples(file, first_group=7)
    assert (first.group, second.group, third.group) == (7, 8, 7)
    assert first.answers == {"fits": True, "several": True} and third.answers == {"fits": False}
    assert first.tools == (Tool("find_1", "", BOOK),) and first.messages == (Message("user", "a"),)


@pytest.mark.parametrize("line", ["{", "[]", "{}", json.dumps({"tools": [], "messages": [], "fits": True})])
def test_a_line_that_is_no_example_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "examples.jsonl"
    file.write_text(json.dumps(example(1, "a", True)) + "\n" + line)
    with pytest.raises(ValueError, match=r"examples.jsonl, line 2: "):
        read_examples(file)


async def test_a_gate_is_trained_measured_on_sets_that_were_left_out_and_decides(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets, conversations = [], []
    for n in range(12):
        functions = [{"name": f"find_{n}", "description": "", "parameters": BOOK}]
        fits = [f"the capital of France {n}", f"the capital of France and {n}"]
        others = [f"hello to you {n}", f"hello to you and {n}"]
        sets.append({"functions": functions, "fits": fits, "others": others})
        for words, calls in (("the capital of France and of Paris", 2), ("hello to you", 1)):
            call = {"name": f"find_{n}", "arguments": {"title": "Paris"}}
            first = {"calls": [call] * calls, "outputs": [f"{words} {n}"] * calls}
            steps = [first, {"calls": [call], "outputs": ["hello"]}] if calls > 1 else [first]
            conversations.append({"group": n, "extra": [], "request": f"{words} {n}", "steps": steps})
    for name, content in (("_FUNCTIONS", sets), ("_CONTINUATIONS", conversations)):
        monkeypatch.setattr(training, name, tmp_path / name)
        (tmp_path / name).write_bytes(lzma.compress(json.dumps(content).encode()))
    done: list[tuple[str, float]] = []
    others = [
        example(n, text, fits) for n in (20, 21) for text, fits in (("the capital of France", True), ("hello", False))
    ]
    (tmp_path / "others.jsonl").write_text("\n".join(map(json.dumps, others)))
    gate, metrics = train_call_gate(
        model, ["hello"], "base", examples=tmp_path / "others.jsonl", on_progress=lambda *state: done.append(state)
    )
    assert metrics.prompts == 48 + 6 * 12 + 4 and done[-1] == ("reading", 1.0)
    assert min(metrics.accuracy.values()) > 0.7 and min(metrics.auc.values()) > 0.8
    assert gate.base == "base" and gate.metadata["trained_on"].startswith("124 prompts")

    tool = Tool("find_13", "", BOOK)
    called = []
    for weight in (0.0, 1e3):
        thresholds = CallThresholds(call=0.0 if weight else -1e4, name_weight=0.0, expected=0.0, fit_weight=weight)
        engine = Engine(lambda t=thresholds: replace(model, call_gate=gate, call_thresholds=t))
        for text in ("the capital of France and 13", "hello to you and 13"):
            asked = [Message("user", text)]
            reply = Conversation(engine).reply(Ask(asked, [tool], max_tokens=120))
            called.append(any([bool(step.tool_calls) async for step in reply]))
        engine.close()
    assert called == [True, True, True, False], "without it the thresholds alone decide"

    fence = model.tokenizer.encode_template(FENCE)[0]
    for weight in (0.0, 1.0):
        decided = replace(model, call_gate=gate, call_thresholds=CallThresholds(fit_weight=weight))
        constraint = response_form(decided, Ask([Message("user", "hello")], [tool])).constraint
        assert isinstance(constraint, ToolCallConstraint)
        assert constraint._text_start is not None
        may_be_code = contains(constraint._text_start, fence)
        assert may_be_code is not bool(weight), "a call that was declined is not written as code"


async def test_a_call_follows_outputs_where_the_gate_says_so(model: LoadedModel) -> None:
    tool, hidden = Tool("find", "", BOOK), model.decoder.config.hidden
    asked = [
        Message("user", "hello"),
        Message("assistant", "", (ToolCall("1", "find", '{"title": "Paris"}'),)),
        Message("tool", "the capital of France", tool_call_id="1"),
    ]
    called: dict[bool, bool] = {}
    for continues in (True, False):
        gate = CallGate(torch.zeros(3, hidden), torch.tensor([0.0, 0.0, 1.0 if continues else -1.0]), "base", {})
        decided = replace(model, call_gate=gate, call_thresholds=CallThresholds(continues=0.0))
        engine = Engine(lambda loaded=decided: loaded)
        reply = Conversation(engine).reply(Ask(asked, [tool], max_tokens=60))
        called[continues] = any([bool(step.tool_calls) async for step in reply])
        engine.close()
    assert called == {True: True, False: False}


async def test_several_calls_are_made_where_the_gate_says_so(model: LoadedModel) -> None:
    tool = Tool("find", "", {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]})
    hidden, counts = model.decoder.config.hidden, []
    for several in (1e3, -1e3):
        gate = CallGate(torch.zeros(3, hidden), torch.tensor([0.0, several, 0.0]), "base", {})
        thresholds = CallThresholds(call=-1e4, name_weight=0.0, another=0.0, several_weight=1.0, several_another=0.0)
        engine = Engine(lambda t=thresholds, g=gate: replace(model, call_gate=g, call_thresholds=t))
        ask = Ask([Message("user", "hello")], [tool], max_tokens=120, parallel_tool_calls=True)
        steps = [step async for step in Conversation(engine).reply(ask)]
        assert sum(delta.done for step in steps for delta in step.tool_calls) == 1  # random weights repeat it
        counts.append(steps[-1].tokens)
        engine.close()
    assert counts[0] > counts[1]

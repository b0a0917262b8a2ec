"""Training a call gate: its data, and that what it has learned decides for or against a call."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from chat.types import Ask, Message, Tool
from model.convert import train_call_gate as training
from model.convert.train_call_gate import function_requests, train_call_gate
from model.decode.call_decision import FENCE, CallThresholds
from model.decode.tool_calls import ToolCallConstraint
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


def test_every_set_has_functions_and_requests_that_fit_and_others() -> None:
    requests = function_requests(["hello"], seed=1)
    groups = {one.group for one in requests}
    assert len(groups) > 100
    for group in groups:
        own = [one for one in requests if one.group == group]
        assert len({one.text for one in own}) == 14 and sum(one.fits for one in own) == 7
        assert len({(one.instructions, tuple(tool.name for tool in one.tools)) for one in own}) == 1
        assert all(tool.parameters["type"] == "object" for tool in own[0].tools)
    assert {one.instructions for one in requests} == {"", "hello"}


async def test_a_gate_is_trained_measured_on_sets_that_were_left_out_and_decides(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [
        {
            "functions": [{"name": f"find_{n}", "description": "", "parameters": BOOK}],
            "fits": [f"the capital of France {n}", f"the capital of France and {n}"],
            "others": [f"hello to you {n}", f"hello to you and {n}"],
        }
        for n in range(12)
    ]
    file = tmp_path / "functions.json"
    file.write_text(json.dumps(sets))
    monkeypatch.setattr(training, "function_requests", lambda given, seed: function_requests(given, seed, file))
    done: list[float] = []
    gate, metrics = train_call_gate(model, ["hello"], "base", 10, on_progress=done.append)
    assert metrics.requests == 48 and metrics.accuracy > 0.8 and metrics.auc > 0.9 and done[-1] == 1.0
    assert gate.metadata["base_bytes"] == "10" and json.loads(gate.metadata["held_out"])["auc"] == metrics.auc

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
        assert bool(constraint._text_start[fence]) is not bool(weight), (
            "a call that was declined is not written as code"
        )

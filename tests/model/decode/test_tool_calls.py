"""Responses that are tool calls, on tiny random weights."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from torch import Tensor

from chat.progress import Progress
from chat.types import Ask, Message, Tool
from model.decode.call_decision import CallDecision
from model.decode.grammar import Choice, InvalidGrammar
from model.decode.option_tree import OptionTree
from model.decode.tool_calls import declaration
from model.engine import response_form as forms
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel
from tests.model.dialogues import HELLO, SYSTEM, collect_progress, committed_text

WEATHER = Tool(
    "get_weather",
    "the capital of France",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 6}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    },
)
HANG_UP = Tool("hang_up")


def calls_of(progress: list[Progress]) -> list[tuple[str, Any, bool]]:
    """Name, arguments and whether it is complete, of each call."""
    calls: dict[int, tuple[str, str, bool]] = {}
    for delta in (delta for part in progress for delta in part.tool_calls):
        _, arguments, _ = calls.get(delta.index, ("", "", False))
        calls[delta.index] = (delta.name, arguments + delta.arguments, delta.done)
    return [(name, json.loads(text) if done else text, done) for name, text, done in calls.values()]


def decide(monkeypatch: pytest.MonkeyPatch, *, calls: bool, tool: bool = True) -> None:
    """Let the first token's likelihood decide for or against a call, whatever it is, and then the names for a tool or
    for none."""

    class Decided(CallDecision):
        def may_call(self, logits: Tensor) -> bool:
            return super().may_call(logits) if self._after_output else calls

        def choose(self, tree: OptionTree, logits: Tensor) -> int | None:
            super().choose(tree, logits)
            return 0 if tool else None

    monkeypatch.setattr(forms, "CallDecision", Decided)


async def test_a_required_call_has_valid_arguments(drafting: Engine) -> None:
    progress = await collect_progress(Conversation(drafting), HELLO, tools=[WEATHER], tool_choice="required")
    [(name, arguments, done)] = calls_of(progress)
    assert (name, done, set(arguments)) == ("get_weather", True, {"city", "unit"})
    assert arguments["unit"] in ("celsius", "fahrenheit")
    assert len(arguments["city"]) <= 6
    assert committed_text(progress) == "" == "".join(part.draft for part in progress)
    assert progress[-1].finished == "tool_calls"


async def test_a_named_tool_is_called(drafting: Engine) -> None:
    tools = [WEATHER, HANG_UP]
    progress = await collect_progress(
        Conversation(drafting), HELLO, tools=tools, tool_choice=HANG_UP, parallel_tool_calls=False
    )
    assert calls_of(progress) == [("hang_up", {}, True)]


async def test_arguments_are_streamed_while_they_are_written(drafting: Engine) -> None:
    conversation = Conversation(drafting, drafting=False)
    progress = await collect_progress(conversation, HELLO, tools=[WEATHER], tool_choice="required")
    pieces = [delta for part in progress for delta in part.tool_calls]
    assert len(pieces) > 2
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]


async def test_a_call_that_is_cut_off_is_not_done(drafting: Engine) -> None:
    progress = await collect_progress(
        Conversation(drafting), HELLO, tools=[WEATHER], tool_choice="required", max_tokens=30
    )
    assert progress[-1].finished == "length"
    assert not any(done for _, _, done in calls_of(progress))


async def test_a_call_that_was_decided_for_is_the_one_that_would_be_required(
    drafting: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(monkeypatch, calls=True)
    required = await collect_progress(Conversation(drafting), HELLO, tools=[WEATHER], tool_choice="required")
    chosen = await collect_progress(
        Conversation(drafting), HELLO, tools=[WEATHER, HANG_UP], top_log_probabilities=1, max_tokens=200
    )
    alone = await collect_progress(Conversation(drafting), HELLO, tools=[WEATHER])
    assert calls_of(alone) == calls_of(required)
    assert [name for name, _, _ in calls_of(chosen)] == ["get_weather"]
    scores = [score for part in chosen for score in part.scores]
    # the token that ends the response has no text
    assert len(scores) == chosen[-1].tokens - 1 and all(score.log_probability <= 0 for score in scores)


@pytest.mark.parametrize("calls", [True, False])
async def test_the_first_tokens_likelihood_decides_between_call_and_text(
    drafting: Engine, monkeypatch: pytest.MonkeyPatch, calls: bool
) -> None:
    decide(monkeypatch, calls=calls)
    progress = await collect_progress(Conversation(drafting), HELLO, tools=[WEATHER], max_tokens=120)
    assert [name for name, _, _ in calls_of(progress)] == ["get_weather"] * calls
    assert bool(committed_text(progress)) is not calls


@pytest.mark.parametrize("scored", [True, False])
async def test_without_a_call_the_text_is_that_of_free_decoding(
    drafting: Engine, monkeypatch: pytest.MonkeyPatch, scored: bool
) -> None:
    """Also after the names of the tools were scored, and none was chosen."""

    def greedy_text(model: LoadedModel) -> str:
        decoder, cache, tokens = model.decoder, model.decoder.new_cache(), list[int]()
        logits = decoder.forward(prompt, cache, logits="last")
        while len(tokens) < 30:
            tokens.append(int(logits[-1].argmax()))
            logits = decoder.forward(tokens[-1:], cache, logits="last")
        return "".join(map(model.tokenizer.detokenizer(), tokens))

    decide(monkeypatch, calls=scored, tool=False)
    prompt = drafting.model.template.encode([HELLO], tools=[declaration(WEATHER)])
    progress = await collect_progress(Conversation(drafting), HELLO, tools=[WEATHER], max_tokens=30)
    assert committed_text(progress) == drafting.call(greedy_text) != ""


async def test_tools_that_must_not_be_called_are_not_in_the_prompt(drafting: Engine) -> None:
    """The 0.5B wrote a call as its text, and the response was empty."""
    plain = await collect_progress(Conversation(drafting), HELLO, max_tokens=5)
    chosen = await collect_progress(Conversation(drafting), HELLO, tools=[WEATHER], tool_choice="none", max_tokens=5)
    assert chosen[-1].prompt_tokens == plain[-1].prompt_tokens
    assert committed_text(chosen) == committed_text(plain)


async def test_the_response_to_a_tools_output_begins_with_a_word_and_is_no_call(
    drafting: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models that were not taught to call functions repeat their call, or the output."""
    decide(monkeypatch, calls=True)
    monkeypatch.setattr(drafting.model.call_habit, "start", None)
    history = [HELLO, Message("tool", '{"temperature": 14}', tool_call_id="call_1")]
    progress = await collect_progress(Conversation(drafting), *history, tools=[WEATHER], max_tokens=5)
    text = committed_text(progress)
    assert not calls_of(progress)
    assert text[0].isalnum() or ord(text[0]) >= 128


async def test_a_text_may_have_to_follow_a_grammar_where_a_call_would_be_possible(
    drafting: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(monkeypatch, calls=False)
    progress = await collect_progress(Conversation(drafting), HELLO, tools=[WEATHER], grammar=Choice(("of", "to")))
    assert committed_text(progress) in ("of", "to")


async def test_tools_that_cannot_be_enforced_are_refused(drafting: Engine) -> None:
    broken = Tool("broken", "", {"properties": {"a": {"not": {}}}})
    with pytest.raises(InvalidGrammar) as caught:
        Conversation(drafting).check_tools([WEATHER, broken])
    assert caught.value.path == "tools[1].parameters.properties.a.not"
    with pytest.raises(InvalidGrammar, match="two tools"):
        Conversation(drafting).check_tools([WEATHER, WEATHER])
    with pytest.raises(ValueError, match="no tools"):
        await collect_progress(Conversation(drafting), HELLO, tool_choice="required")
    with pytest.raises(ValueError, match="hang_up"):
        await collect_progress(Conversation(drafting), HELLO, tools=[WEATHER], tool_choice=HANG_UP)


async def test_the_tools_are_read_ahead(drafting: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    decide(monkeypatch, calls=False)
    conversation = Conversation(drafting)
    conversation.prepare(Ask([SYSTEM, HELLO], tools=[WEATHER]))
    declarations = [declaration(WEATHER)]
    prompt = drafting.model.template.encode([SYSTEM, HELLO], tools=declarations, add_generation_prompt=False)
    while len(conversation._cache.tokens) < len(prompt):  # noqa: ASYNC110 - no event tells that prefill is done
        await asyncio.sleep(0.005)
    progress = await collect_progress(conversation, SYSTEM, HELLO, tools=[WEATHER], max_tokens=3)
    assert progress[0].cached_tokens == len(prompt)


async def test_blocks_can_make_calls(model: LoadedModel) -> None:
    engine = Engine(lambda: model, decoding="blocks")
    try:
        progress = await collect_progress(Conversation(engine), HELLO, tools=[WEATHER], tool_choice="required")
        assert [name for name, _, done in calls_of(progress) if done] == ["get_weather"]
    finally:
        engine.close()

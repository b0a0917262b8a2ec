"""Relevance scores: several passages share a forward pass, and none changes the score of another."""

from __future__ import annotations

import math

import pytest

from chat.types import Message
from model.engine import relevance
from model.engine.conversation import Conversation, PromptTooLong
from model.engine.engine import Engine
from model.engine.relevance import RelevanceScorer
from tests.model.dialogues import collect_progress

PASSAGES = ["the capital of France is Paris", "hello to you", "to", "France " * 30, "Paris and the capital and hello"]


def scorer(engine: Engine) -> RelevanceScorer:
    return RelevanceScorer(engine, background=True, keep_all_messages=True)


async def test_a_score_is_the_same_alone_and_with_others(tiny_engine: Engine) -> None:
    together = await scorer(tiny_engine).score("hello?", PASSAGES)
    assert len(set(together.probabilities)) == len(PASSAGES)
    for passage, score in zip(PASSAGES, together.probabilities, strict=True):
        alone = await scorer(tiny_engine).score("hello?", [passage])
        assert alone.probabilities == pytest.approx((score,), abs=1e-5)


async def test_a_score_is_the_probability_of_yes(tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first letters decide: the tiny tokenizer has no token for either word."""
    monkeypatch.setattr(relevance, "_YES", ("y",))
    monkeypatch.setattr(relevance, "_NO", ("n",))
    found = await scorer(tiny_engine).score("hello?", PASSAGES[:1])
    question = relevance._PROMPT.format(query="hello?", passage=PASSAGES[0])
    prompt = [Message("system", relevance._INSTRUCTIONS), Message("user", question)]
    size = tiny_engine.model.decoder.config.vocab_size
    asked = Conversation(tiny_engine)
    progress, *_ = await collect_progress(asked, *prompt, max_tokens=1, top_log_probabilities=size)
    chances = {token.text: math.exp(token.log_probability) for token in progress.scores[0].top}
    assert found.probabilities[0] == pytest.approx(chances["y"] / (chances["y"] + chances["n"]), abs=1e-5)


async def test_passages_share_forward_passes_and_what_they_have_in_common(
    tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await scorer(tiny_engine).score("hello?", PASSAGES[1:2])
    many = await scorer(tiny_engine).score("hello?", PASSAGES[1:2] * 8)
    assert many.forward_passes == 1 and many.prompt_tokens < 4 * one.prompt_tokens
    monkeypatch.setattr(relevance, "_MAX_ROWS", 1)
    assert (await scorer(tiny_engine).score("hello?", PASSAGES)).forward_passes == len(PASSAGES)


async def test_long_passages_are_cut_and_long_queries_refused(tiny_engine: Engine) -> None:
    cut = await scorer(tiny_engine).score("hello?", ["Paris " * 900], max_tokens=8)
    assert cut.prompt_tokens < 200
    with pytest.raises(PromptTooLong):
        await scorer(tiny_engine).score("hello " * 3000, PASSAGES)

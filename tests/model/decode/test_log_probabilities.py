"""Log probabilities of a response's tokens equal those of a forward pass of their own, with drafts and grammars."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from chat.progress import LikelyToken
from chat.types import Message
from model.decode.draft_length import DraftLengthController
from model.decode.grammar import Grammar, JSONSchema, Regex
from model.decode.log_probabilities import log_probabilities
from model.decode.sampling import Sampling
from model.decode.token_set import unpacked
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from tests.model.dialogues import HELLO, SYSTEM, collect_progress, committed_text
from tests.model.tiny_families import save_tiny_family

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "kind": {"enum": ["customer", "supplier"]}},
    "required": ["name", "kind"],
}
GRAMMARS: dict[str, Grammar | None] = {
    "free": None,
    "schema": JSONSchema(SCHEMA),
    "regex": Regex(r"[a-f]{3,12}-[0-9]{2}(, again){0,2}"),
}


def expected_scores(
    model: LoadedModel, messages: list[Message], tokens: list[int], grammar: Grammar | None
) -> list[tuple[float, list[tuple[int, float]]]]:
    """Of each token the log probability, and the three most likely ones, from the whole text read once."""
    ids = model.template.encode(messages)
    logits = model.decoder.forward([*ids, *tokens], model.decoder.new_cache(), logits="all")[len(ids) - 1 : -1]
    matcher = None if grammar is None else model.grammars.compile(grammar)
    scores = []
    for token, row in zip(tokens, logits, strict=True):
        if matcher is not None:
            allowed = matcher.allowed()
            mask = np.arange(len(row)) == allowed if isinstance(allowed, int) else unpacked(allowed, len(row))
            row = row.masked_fill(~torch.from_numpy(mask), -torch.inf)
            matcher.consume(token)
        distribution = row.log_softmax(-1)
        best = distribution.topk(3)
        top = [(n, p) for n, p in zip(best.indices.tolist(), best.values.tolist(), strict=True) if p > -torch.inf]
        scores.append((float(distribution[token]), top))
    return scores


def spelled(model: LoadedModel, token: int) -> bytes:
    return model.tokenizer.token_bytes(token)


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_each_token_has_the_log_probability_of_the_row_that_verified_it(
    drafting: Engine, grammar: Grammar | None, temperature: float
) -> None:
    model, sampling = drafting.model, Sampling(temperature, seed=4)
    progress = await collect_progress(
        Conversation(drafting), SYSTEM, HELLO, grammar=grammar, max_tokens=40, sampling=sampling,
        top_log_probabilities=3,
    )  # fmt: skip
    scores = [score for part in progress for score in part.scores]
    by_bytes = {spelled(model, token): token for token in range(model.decoder.config.vocab_size)}
    taken = [by_bytes[score.data] for score in scores]
    text = committed_text(progress)
    assert len(scores) >= 5 and sum(score.length for score in scores) == len(text)
    if grammar is not None:  # a free text of the tiny model has bytes that are no characters
        assert b"".join(score.data for score in scores).decode() == text
    for score, (value, top) in zip(scores, expected_scores(model, [SYSTEM, HELLO], taken, grammar), strict=True):
        assert score.log_probability == pytest.approx(value, abs=1e-4)
        assert [other.log_probability for other in score.top] == pytest.approx([p for _, p in top], abs=1e-4)
        assert score.top[0].data == spelled(model, top[0][0]) or top[0][1] - top[1][1] < 1e-4


async def test_accepted_tokens_have_the_log_probability_of_the_row_before_them(tiny_qwen2: Path) -> None:
    """This model repeats one token, so nearly all tokens are copied from the conversation and verified."""
    engine = Engine(lambda: load_model(tiny_qwen2, device="cpu", precision="float32"))
    engine.draft_length = DraftLengthController({1: 1.0, 100: 1.0}, 0, [])
    try:
        progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=40, top_log_probabilities=3)
        model = engine.model
    finally:
        engine.close()
    scores = [score for part in progress for score in part.scores]
    assert len(scores) == 40 and progress[-1].step < 30
    by_bytes = {spelled(model, token): token for token in range(model.decoder.config.vocab_size)}
    taken = [by_bytes[score.data] for score in scores]
    for score, (value, _) in zip(scores, expected_scores(model, [SYSTEM, HELLO], taken, None), strict=True):
        assert score.log_probability == pytest.approx(value, abs=1e-4)


async def test_nothing_is_computed_for_who_does_not_ask(drafting: Engine) -> None:
    progress = await collect_progress(Conversation(drafting), SYSTEM, HELLO, max_tokens=8)
    assert not any(part.scores for part in progress)


async def test_forced_tokens_have_log_probability_0(drafting: Engine) -> None:
    progress = await collect_progress(
        Conversation(drafting), SYSTEM, HELLO, grammar=JSONSchema({"const": "customer"}), top_log_probabilities=1
    )
    (*scores,) = (score for part in progress for score in part.scores)
    assert committed_text(progress) == '"customer"' and {score.log_probability for score in scores} == {0.0}
    assert all(score.top == (LikelyToken(score.text, score.data, 0.0),) for score in scores)


def test_tokens_that_are_not_allowed_are_not_among_the_most_likely_ones() -> None:
    logits = torch.tensor([[1.0, -torch.inf, 1.0, -torch.inf]])
    (score,) = log_probabilities(logits, [0], [2], 3)
    assert score.value == pytest.approx(-0.6931, abs=1e-4) and sorted(token for token, _ in score.top) == [0, 2]


async def test_models_that_denoise_blocks_have_none(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, "sdar")
    engine = Engine(lambda: load_model(folder, device="cpu", precision="float32"))
    try:
        with pytest.raises(ValueError, match="denoises blocks has no log probabilities"):
            await collect_progress(Conversation(engine), HELLO, top_log_probabilities=0)
    finally:
        engine.close()

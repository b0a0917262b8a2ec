"""Conversations: responses with every way of decoding, prefill, forks, cancellation and the limits of the context."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from chat.types import Ask, Effort, Message, ToolCall, Truncation
from model.decode.draft_length import DraftLengthController
from model.decode.effort import schedule_for_effort
from model.decode.sampling import Sampling, probabilities
from model.engine.conversation import Conversation, PromptTooLong
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from model.nn.adapter import Adapter, random_adapter
from model.nn.forward_batch import ForwardInput
from tests.conftest import save_tiny_checkpoint
from tests.model.dialogues import HELLO, SYSTEM, collect_progress, committed_text


@pytest.fixture(scope="module")
def drafting_model(varied_qwen2: Path) -> LoadedModel:
    """A model with a random adapter. It never stops by itself."""
    loaded = load_model(varied_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(loaded.decoder.config, 4, 3, seed=3)
    return replace(loaded, adapter=adapter, stop_tokens=frozenset())


DECODING_OPTIONS: dict[str, dict[str, Any]] = {
    "drafts": {},
    "CUDA graph steps": {"cuda_graphs": True},
    "blocks": {"decoding": "blocks", "denoising_schedule": schedule_for_effort("medium")},
    "blocks with corrections": {"decoding": "blocks", "denoising_schedule": schedule_for_effort("high", edit=0.9)},
}


@pytest.fixture(params=DECODING_OPTIONS)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return DECODING_OPTIONS[request.param]


@pytest.fixture
def drafting_engine(drafting_model: LoadedModel, options: dict[str, Any]) -> Iterator[Engine]:
    engine = open_engine(drafting_model, options)
    yield engine
    engine.close()


def open_engine(model: LoadedModel, options: dict[str, Any]) -> Engine:
    """An engine for which rows cost nothing, so that it always drafts."""
    engine = Engine(lambda: model, **options)
    engine.draft_length = DraftLengthController({64: 1.0, 100: 1.0}, 3, [0.9] * 3)
    return engine


def greedy(model: LoadedModel, messages: list[Message], count: int) -> list[int]:
    """The slow, obvious way: read the whole text again for every token."""
    ids = model.template.encode(messages)
    tokens: list[int] = []
    for _ in range(count):
        logits = model.decoder.forward(ids + tokens, model.decoder.new_cache(), logits="last")
        tokens.append(int(logits[-1].argmax()))
        if tokens[-1] in model.stop_tokens:
            break
    return tokens


async def test_a_response_is_what_greedy_decoding_gives_one_token_at_a_time(engine: Engine) -> None:
    progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=40)
    expected = greedy(engine.model, [SYSTEM, HELLO], 40)
    detokenizer = engine.model.tokenizer.detokenizer()
    expected_text = "".join(detokenizer(token) for token in expected if token not in engine.model.stop_tokens)
    assert committed_text(progress) == expected_text
    assert [p.step for p in progress] == list(range(1, len(progress) + 1))
    assert progress[-1].tokens == len(expected)
    assert progress[-1].finished == ("stop" if expected[-1] in engine.model.stop_tokens else "length")


async def test_the_next_turn_reads_only_new_tokens(engine: Engine) -> None:
    conversation = Conversation(engine)
    first = await collect_progress(conversation, SYSTEM, HELLO, max_tokens=5)
    num_read = len(engine.model.template.encode([SYSTEM, HELLO]))
    messages = [SYSTEM, HELLO, Message("assistant", committed_text(first)), Message("user", "to you")]
    second = await collect_progress(conversation, *messages, max_tokens=5)
    shared = engine.model.template.encode([SYSTEM, Message("user", "")], add_generation_prompt=False)
    assert first[0].cached_tokens <= len(shared), "what other conversations have read"
    assert second[0].cached_tokens >= num_read - 1
    fresh = await collect_progress(Conversation(engine), *messages, max_tokens=5)
    assert committed_text(second) == committed_text(fresh)


async def test_a_prepared_conversation_has_nothing_left_to_read(engine: Engine) -> None:
    conversation = Conversation(engine)
    conversation.prepare(Ask([SYSTEM, HELLO]))
    num_tokens = len(engine.model.template.encode([SYSTEM, HELLO], add_generation_prompt=False))
    while len(conversation._cache.tokens) < num_tokens:  # noqa: ASYNC110 - no event tells that prefill is done
        await asyncio.sleep(0.005)
    progress = await collect_progress(conversation, SYSTEM, HELLO, max_tokens=2)
    assert progress[0].prompt_tokens - progress[0].cached_tokens <= 12  # the assistant's opening


async def test_preparing_again_reads_only_new_tokens(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a user speaks, the same text is prefilled again and again, a few words longer each time."""
    conversation, words, num_rows = Conversation(engine), "hello to you and hello " * 20, 0
    run = engine.model.decoder.run

    def count_rows(batch: list[ForwardInput], adapter: Adapter | None) -> list[torch.Tensor]:
        nonlocal num_rows
        num_rows += sum(len(rows.tokens) for rows in batch)
        return run(batch, adapter)

    monkeypatch.setattr(engine.model.decoder, "run", count_rows)
    for transcript in (words, f"{words} to you", f"{words} to you and Paris"):
        messages = [SYSTEM, Message("user", transcript)]
        conversation.prepare(Ask(messages))
        num_tokens = len(engine.model.template.encode(messages, add_generation_prompt=False))
        while len(conversation._cache.tokens) != num_tokens:  # noqa: ASYNC110 - no event tells that prefill is done
            await asyncio.sleep(0.005)
    assert num_rows < num_tokens + 40  # the template's closing is read again each time


async def test_leaving_a_reply_stops_it_and_keeps_the_cache_valid(engine: Engine) -> None:
    conversation = Conversation(engine)
    async for progress in conversation.reply(Ask([SYSTEM, HELLO], max_tokens=200)):
        if progress.step == 3:
            break
    again = await collect_progress(conversation, SYSTEM, HELLO, max_tokens=20)
    fresh = await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=20)
    assert committed_text(again) == committed_text(fresh)


async def test_cancelling_takes_effect_between_steps_and_keeps_the_cache_valid(drafting_engine: Engine) -> None:
    conversation = Conversation(drafting_engine)
    async for progress in conversation.reply(Ask([SYSTEM, HELLO], max_tokens=400)):
        if progress.step == 3:
            conversation.cancel()
    assert progress.finished is None
    fresh = await collect_progress(Conversation(drafting_engine), SYSTEM, HELLO, max_tokens=24)
    again = await collect_progress(conversation, SYSTEM, HELLO, max_tokens=24)
    assert committed_text(again) == committed_text(fresh)


async def test_a_response_ends_at_the_stop_token(
    drafting_model: LoadedModel, drafting_engine: Engine, options: dict[str, Any]
) -> None:
    """The last new token that this engine generates is made the stop token. What comes before it is committed, and no
    more."""
    tokens: list[int] = []
    detokenizer = drafting_model.tokenizer.detokenizer()

    class Recorder:
        def __call__(self, token: int) -> str:
            tokens.append(token)
            return detokenizer(token)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafting_model.tokenizer, "detokenizer", Recorder)
        await collect_progress(Conversation(drafting_engine), SYSTEM, HELLO, max_tokens=30)
    stop_token = max(tokens, key=tokens.index)
    stop_index = tokens.index(stop_token)
    assert stop_index > 3
    stopping_engine = open_engine(replace(drafting_model, stop_tokens=frozenset({stop_token})), options)
    try:
        progress = await collect_progress(Conversation(stopping_engine), SYSTEM, HELLO, max_tokens=30)
        assert progress[-1].finished == "stop"
        assert progress[-1].tokens == stop_index + 1
        expected = drafting_model.tokenizer.detokenizer()
        assert committed_text(progress) == "".join(map(expected, tokens[:stop_index]))
        assert [p.finished for p in progress[:-1]] == [None] * (len(progress) - 1)
    finally:
        stopping_engine.close()


@pytest.mark.parametrize("num_drafts", [1, 3])
async def test_drafts_never_change_the_text(varied_qwen2: Path, engine: Engine, num_drafts: int) -> None:
    """Drafts of a random adapter are mostly wrong; what is committed never is."""
    base = load_model(varied_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, num_drafts, seed=num_drafts)
    drafting = Engine(lambda: replace(base, adapter=adapter))
    # Rows cost nothing, so it always drafts.
    drafting.draft_length = DraftLengthController({64: 1.0, 100: 1.0}, num_drafts, [0.9] * num_drafts)
    steps_with_drafts = 0
    try:
        for words in ("hello to you", "the capital of France", "Paris is hello", "to to to"):
            question = Message("user", words)
            progress = await collect_progress(Conversation(drafting), SYSTEM, question, max_tokens=60)
            undrafted = await collect_progress(Conversation(engine), SYSTEM, question, max_tokens=60)
            assert committed_text(progress) == committed_text(undrafted)
            assert progress[-1].tokens == undrafted[-1].tokens
            steps_with_drafts += sum(bool(p.draft) for p in progress)
            assert all(len(p.confidence) <= 8 for p in progress), "drafts, or copied tokens"
        assert steps_with_drafts > 20
    finally:
        drafting.close()


async def test_a_fork_leaves_the_conversation_unchanged(engine: Engine) -> None:
    conversation = Conversation(engine)
    first = await collect_progress(conversation, SYSTEM, HELLO, max_tokens=5)
    cached_before = len(conversation._cache.tokens)
    question = Message("user", "Paris")
    (speculative, *_) = await collect_progress(conversation.fork(), SYSTEM, HELLO, question, max_tokens=9)
    assert speculative.cached_tokens > 20
    assert len(conversation._cache.tokens) == cached_before
    messages = [SYSTEM, HELLO, Message("assistant", committed_text(first)), Message("user", "to you")]
    fresh = await collect_progress(Conversation(engine), *messages, max_tokens=9)
    assert committed_text(await collect_progress(conversation, *messages, max_tokens=9)) == committed_text(fresh)


async def test_a_fork_of_a_fork_that_has_read_nothing_starts_with_what_the_first_has_read(engine: Engine) -> None:
    conversation = Conversation(engine)
    await collect_progress(conversation, HELLO, max_tokens=1)
    (first, *_) = await collect_progress(conversation.fork().fork(), HELLO, max_tokens=1)
    assert first.cached_tokens > 3


async def test_sampled_responses_repeat_with_their_seed(engine: Engine) -> None:
    sampling = Sampling(temperature=1.2, seed=11)
    texts = [
        committed_text(await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=25, sampling=sampling))
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
    assert texts[0] != committed_text(await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=25))


async def test_sampling_with_drafts_draws_from_the_base_models_distribution(drafting_model: LoadedModel) -> None:
    """Compares the second tokens of many responses, which were drafted and then accepted or drawn anew, with their
    exact distribution after the first token."""
    engine = open_engine(drafting_model, {})
    sampling = Sampling(temperature=0.8, top_k=4)
    try:
        ids = drafting_model.template.encode([SYSTEM, HELLO])
        responses: list[tuple[int, ...]] = []
        for seed in range(400):
            tokens: list[int] = []
            detokenizer = drafting_model.tokenizer.detokenizer()

            class Recorder:
                def __call__(self, token: int, tokens: list[int] = tokens, detokenizer: Any = detokenizer) -> str:
                    tokens.append(token)
                    return str(detokenizer(token))

            engine.draft_length = DraftLengthController({64: 1.0, 100: 1.0}, 3, [0.9] * 3)  # as for a first response
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(drafting_model.tokenizer, "detokenizer", Recorder)
                seeded = replace(sampling, seed=seed)
                progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=6, sampling=seeded)
            assert any(p.draft_ends for p in progress[:-1])
            responses.append(tuple(tokens))
        cache = drafting_model.decoder.new_cache()
        first = probabilities(drafting_model.decoder.forward(ids, cache, logits="last")[0], sampling)
        assert max_deviation([tokens[0] for tokens in responses], first) < 0.1
        likeliest = int(first.argmax())
        second_tokens = [tokens[1] for tokens in responses if tokens[0] == likeliest]
        second = probabilities(drafting_model.decoder.forward([likeliest], cache, logits="last")[0], sampling)
        assert len(second_tokens) > 60
        assert max_deviation(second_tokens, second) < 0.2
    finally:
        engine.close()


def max_deviation(drawn: list[int], expected: torch.Tensor) -> float:
    """The largest difference between how often a token was drawn and its probability."""
    frequencies = torch.bincount(torch.tensor(drawn), minlength=len(expected)) / len(drawn)
    return float((frequencies - expected).abs().max())


async def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(engine: Engine) -> None:
    long = Message("user", "hello to you " * 400)
    with pytest.raises(PromptTooLong, match=rf"needs \d+ tokens.*holds {engine.context}"):
        await collect_progress(Conversation(engine), SYSTEM, long)
    assert await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=2)


LONG_DIALOGUE = [Message("user" if n % 2 == 0 else "assistant", f"hello to you {n} " * 8) for n in range(9)]


async def test_a_conversation_that_outgrows_the_context_drops_its_oldest_messages(engine: Engine) -> None:
    (progress, *_) = await collect_progress(Conversation(engine), SYSTEM, *LONG_DIALOGUE, max_tokens=2)
    assert engine.context // 4 < progress.prompt_tokens <= engine.context * 7 // 8


async def test_dropped_messages_stay_dropped_so_that_the_cache_is_reused(engine: Engine) -> None:
    conversation = Conversation(engine)
    first = await collect_progress(conversation, SYSTEM, *LONG_DIALOGUE, max_tokens=2)
    response, question = Message("assistant", committed_text(first)), Message("user", "Paris")
    (second, *_) = await collect_progress(conversation, SYSTEM, *LONG_DIALOGUE, response, question, max_tokens=2)
    assert second.cached_tokens > second.prompt_tokens * 0.8
    (shorter, *_) = await collect_progress(conversation, SYSTEM, HELLO, max_tokens=2)
    assert shorter.prompt_tokens == len(engine.model.template.encode([SYSTEM, HELLO]))


async def prompt_tokens(conversation: Conversation, *messages: Message) -> int:
    return (await collect_progress(conversation, *messages, max_tokens=2))[0].prompt_tokens


async def test_what_was_dropped_of_one_conversation_is_not_dropped_from_another(engine: Engine) -> None:
    conversation = Conversation(engine)
    await prompt_tokens(conversation, SYSTEM, *LONG_DIALOGUE)
    other = [SYSTEM, *(Message(message.role, "to you") for message in LONG_DIALOGUE)]
    whole = len(engine.model.template.encode(other))
    assert await prompt_tokens(conversation.fork(), *other) == whole
    assert await prompt_tokens(conversation, *other) == whole


async def test_messages_that_a_client_deletes_are_not_dropped_again(engine: Engine) -> None:
    conversation = Conversation(engine)
    length = await prompt_tokens(conversation, SYSTEM, *LONG_DIALOGUE)
    assert length < len(engine.model.template.encode([SYSTEM, *LONG_DIALOGUE[2:]])), "more were dropped"
    assert await prompt_tokens(conversation, SYSTEM, *LONG_DIALOGUE[1:]) == length
    assert await prompt_tokens(conversation, SYSTEM, *LONG_DIALOGUE[2:]) == length


@pytest.mark.parametrize("after", [Truncation(), Truncation(keep_all=True)])
async def test_messages_come_back_when_the_limit_they_were_dropped_for_is_removed(
    engine: Engine, after: Truncation
) -> None:
    conversation, turns = Conversation(engine), [Message("user", "hello"), Message("assistant", "you")] * 8
    messages = [SYSTEM, *turns, HELLO]
    whole = len(engine.model.template.encode(messages))
    conversation.limit_context(Truncation(max_tokens=whole // 2))
    assert await prompt_tokens(conversation, *messages) < whole
    conversation.limit_context(after)
    assert await prompt_tokens(conversation, *messages) == whole


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.5, 0.9, 1.0])
async def test_the_user_speaks_first_in_what_remains(
    engine: Engine, ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Message("assistant", "", (ToolCall("call_1", "hang_up", "{}"),))
    turns = [Message("user", "hello " * 9), call, Message("tool", "you", tool_call_id="call_1"), *LONG_DIALOGUE[1:2]]
    read: list[list[str]] = []
    encode = engine.model.template.encode

    def record(messages: list[Message], **options: Any) -> list[int]:
        read.append([message.role for message in messages])
        return encode(messages, **options)

    monkeypatch.setattr(engine.model.template, "encode", record)
    conversation = Conversation(engine)
    conversation.limit_context(Truncation(retention_ratio=ratio))
    await prompt_tokens(conversation, SYSTEM, *turns * 9, HELLO)
    assert len(read) > 1 and all(roles[:2] == ["system", "user"] for roles in read if len(roles) > 1)


async def test_a_text_of_long_tokens_is_read_if_it_fits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Qwen's vocabulary has a token of 128 spaces."""
    tokenizer, spaces = engine.model.tokenizer, " " * 128
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "longest_token", len(spaces))
    monkeypatch.setattr(tokenizer, "encode", lambda text: [0] * text.count(spaces) or encode(text))
    conversation = Conversation(engine, keep_all_messages=True)
    assert await prompt_tokens(conversation, Message("user", spaces * (engine.context // 2))) > engine.context // 2
    with pytest.raises(PromptTooLong, match="characters"):
        await prompt_tokens(conversation, Message("user", spaces * (engine.context + 1)))


@pytest.mark.parametrize(("given", "expected"), [({}, 2), ({"max_steps": 5}, 5)])
async def test_an_effort_does_not_raise_the_servers_limit_of_steps(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, given: dict[str, int], expected: int
) -> None:
    engine = Engine(lambda: model, denoising_schedule=schedule_for_effort("medium", 2))
    steps: list[int] = []
    drafting = engine.drafting

    def record(*, constrained: bool, max_steps: int) -> Any:
        steps.append(max_steps)
        return drafting(constrained=constrained, max_steps=max_steps)

    monkeypatch.setattr(engine, "drafting", record)
    await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=2, effort="high", **given)
    engine.close()
    assert set(steps) == {expected}


async def test_a_far_too_long_conversation_is_shortened_before_it_is_encoded(engine: Engine) -> None:
    messages = [Message("user", "x" * 100_000) for _ in range(30)]
    (progress, *_) = await collect_progress(Conversation(engine), SYSTEM, *messages, HELLO, max_tokens=2)
    assert progress.prompt_tokens == len(engine.model.template.encode([SYSTEM, HELLO]))


@pytest.mark.parametrize("effort", ["instant", "high"])
async def test_an_adapter_can_decode_blocks_without_verification(varied_qwen2: Path, effort: Effort) -> None:
    base = load_model(varied_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, 3, seed=3)
    schedule = schedule_for_effort(effort)
    engine = Engine(lambda: replace(base, adapter=adapter), decoding="blocks", denoising_schedule=schedule)
    try:
        progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=24)
        assert progress[-1].finished
        assert progress[-1].tokens / progress[-1].step >= 4 / engine.denoising_schedule.max_steps
        # The first token of every block is the base model's own.
        autoregressive = await collect_progress(Conversation(Engine(lambda: base)), SYSTEM, HELLO, max_tokens=1)
        assert committed_text(progress).startswith(committed_text(autoregressive))
    finally:
        engine.close()


async def test_a_deadline_gives_a_block_fewer_steps(varied_qwen2: Path) -> None:
    base = load_model(varied_qwen2, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, 15, seed=3)
    schedule = schedule_for_effort("high")
    engine = Engine(lambda: replace(base, adapter=adapter), decoding="blocks", denoising_schedule=schedule)
    try:
        steps_per_block = []
        for deadline in (None, time.monotonic()):
            conversation, steps = Conversation(engine), 0
            async for progress in conversation.reply(Ask([SYSTEM, HELLO], max_tokens=64, deadline=deadline)):
                steps += 1
                if progress.tokens >= 16:
                    break
            steps_per_block.append(steps)
        assert steps_per_block[1] < steps_per_block[0]
    finally:
        engine.close()


async def test_a_response_ends_where_the_models_positions_end(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    """Drafts, blocks and CUDA graph steps near the last position that the model has."""
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, "qwen2", max_position_embeddings=48)
    base = load_model(folder, device="cpu", precision="float32")
    adapter = random_adapter(base.decoder.config, 4, 3, seed=3)
    texts = set()
    for options in (
        {},
        {"cuda_graphs": True},
        {"decoding": "blocks"},
        {"decoding": "blocks", "denoising_schedule": schedule_for_effort("high")},
    ):
        engine = Engine(lambda: replace(base, adapter=adapter), **options)
        try:
            progress = await collect_progress(Conversation(engine), HELLO)
            assert progress[-1].finished
            if progress[-1].finished == "length":
                assert progress[-1].prompt_tokens + progress[-1].tokens == 48
            if "decoding" not in options:
                texts.add(committed_text(progress))
        finally:
            engine.close()
    assert len(texts) == 1


async def test_max_tokens_must_be_positive(engine: Engine) -> None:
    with pytest.raises(ValueError, match="max_tokens is 0 and must be 1 or more"):
        await collect_progress(Conversation(engine), SYSTEM, HELLO, max_tokens=0)


async def test_a_conversation_that_keeps_all_messages_does_not_fit_or_is_answered(engine: Engine) -> None:
    """Programs that send a conversation expect all of it to be read."""
    long = [Message("user", "hello " * 200), Message("assistant", "you")] * 40
    with pytest.raises(PromptTooLong, match="shorten"):
        await collect_progress(Conversation(engine, keep_all_messages=True), *long, HELLO, max_tokens=2)
    kept = await collect_progress(Conversation(engine, keep_all_messages=True), SYSTEM, HELLO, max_tokens=2)
    assert kept[-1].tokens == 2
    assert (await collect_progress(Conversation(engine), *long, HELLO, max_tokens=2))[-1].tokens == 2


@dataclass(frozen=True)
class Limits:
    keep_all: bool = False
    retention_ratio: float | None = None
    max_tokens: int | None = None


async def test_the_client_chooses_what_is_dropped_from_a_conversation_that_has_become_too_long(engine: Engine) -> None:
    turns = [Message("user", "hello"), Message("assistant", "you")] * 8
    unlimited = Conversation(engine)
    whole = (await collect_progress(unlimited, SYSTEM, *turns, HELLO, max_tokens=2))[-1].prompt_tokens
    lengths = []
    for ratio in (0.2, 0.8):
        conversation = Conversation(engine)
        conversation.limit_context(Limits(retention_ratio=ratio, max_tokens=whole // 2))
        lengths.append((await collect_progress(conversation, SYSTEM, *turns, HELLO, max_tokens=2))[-1].prompt_tokens)
    assert lengths[0] < lengths[1] < whole
    unlimited.limit_context(Limits(keep_all=True))
    with pytest.raises(PromptTooLong, match="shorten"):
        await collect_progress(unlimited, SYSTEM, *(turns * 200), HELLO, max_tokens=2)

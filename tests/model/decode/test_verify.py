"""Verification of drafts: its rules against slow, simple versions, and its rows against separate forward passes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft import Alternative, Draft
from model.decode.sampling import Sampler, Sampling, probabilities
from model.decode.verify import VerificationStep, accept, verification_mask
from model.nn.adapter import Adapter, random_adapter
from model.nn.decoder import CacheType, Decoder
from model.nn.forward_batch import MASK, ForwardInput
from model.nn.linear import cpu_kernels_installed

VOCABULARY = 6


@given(drafts=st.integers(0, 4), branch_size=st.integers(0, 4), data=st.data())
def test_every_row_attends_to_exactly_its_own_continuation(drafts: int, branch_size: int, data: st.DataObject) -> None:
    alternatives = data.draw(st.lists(st.tuples(st.integers(0, drafts), st.integers(0, 3)), max_size=3))
    rows: list[tuple[str, int, int]] = [("clean", 0, n) for n in range(1 + drafts)]
    rows += [("alternative", which, n) for which, (_, size) in enumerate(alternatives) for n in range(size)]
    rows += [("noise", branch, n) for branch in range(drafts + 1 if branch_size else 0) for n in range(branch_size)]

    def expected(query: tuple[str, int, int], key: tuple[str, int, int]) -> bool:
        kind, branch, position = query
        key_kind, key_branch, key_position = key
        if key_kind == "clean":
            last = position if kind == "clean" else branch if kind == "noise" else alternatives[branch][0]
            return key_position <= last
        return kind == key_kind and branch == key_branch and key_position <= position

    mask = verification_mask(drafts, tuple(alternatives), branch_size)
    assert mask.tolist() == [[expected(query, key) for key in rows] for query in rows]


def one_hot(*tokens: int) -> torch.Tensor:
    return 9.0 * torch.nn.functional.one_hot(torch.tensor(tokens), VOCABULARY).float()


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.data())
def test_greedy_decoding_accepts_the_longest_draft_that_the_base_model_predicts(
    predicted: list[int], data: st.DataObject
) -> None:
    num = len(predicted) - 1
    drafts = tuple(data.draw(st.lists(st.integers(0, 2), min_size=num, max_size=num)))
    size = data.draw(st.integers(0, 2))
    noise = data.draw(st.lists(st.integers(0, 5), min_size=size * len(predicted), max_size=size * len(predicted)))
    result = accept(VerificationStep(5, Draft(drafts), (), size), one_hot(*predicted, *noise), Sampler())
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == predicted[accepted]:
        accepted += 1
    assert result.committed == (*drafts[:accepted], predicted[accepted])
    assert result.kept_rows == tuple(range(1 + accepted))
    assert list(result.draft.tokens) == noise[accepted * size : (accepted + 1) * size]


def test_a_copied_continuation_is_accepted_as_far_as_it_is_predicted() -> None:
    step = VerificationStep(0, Draft((1,)), (Alternative(0, (2, 3, 4)),), 0)
    # Row 0 predicts 2 (not the draft's 1); after the copied 2 comes 3, after 3 comes 5.
    result = accept(step, one_hot(2, 0, 3, 5, 0), Sampler())
    assert result.committed == (2, 3, 5)
    assert result.kept_rows == (0, 2, 3)


@given(
    drafts=st.lists(st.integers(0, 2), max_size=4),
    alternatives=st.lists(
        st.tuples(st.integers(0, 4), st.lists(st.integers(0, 2), min_size=1, max_size=3)), max_size=4
    ),
    seed=st.integers(0, 999),
    temperature=st.sampled_from([0.0, 1.5]),
)
def test_the_longest_verified_text_is_committed_and_is_what_one_token_at_a_time_gives(
    drafts: list[int], alternatives: list[tuple[int, list[int]]], seed: int, temperature: float
) -> None:
    """The base model here is a table: its logits after any text are drawn from a generator that the text seeds."""

    def logits_after(text: list[int]) -> torch.Tensor:
        numbers = torch.randn(
            3, generator=torch.Generator().manual_seed(seed + sum(4**n * (1 + t) for n, t in enumerate(text)))
        )
        return torch.cat((numbers, torch.full((VOCABULARY - 3,), -torch.inf)))

    def sampler() -> Sampler:
        return Sampler(Sampling(temperature=temperature), torch.Generator().manual_seed(seed))

    known = [one for one in alternatives if one[0] <= len(drafts)]
    step = VerificationStep(
        0, Draft(tuple(drafts)), tuple(Alternative(after, tuple(tokens)) for after, tokens in known)
    )
    texts = [drafts[:n] for n in range(1 + len(drafts))]
    texts += [[*drafts[:after], *tokens[: n + 1]] for after, tokens in known for n in range(len(tokens))]
    assert step.num_clean == len(texts)
    result = accept(step, torch.stack([logits_after(text) for text in texts]), sampler(), 7)
    alone, one_by_one = list[int](), sampler()
    while len(alone) < 6:
        alone.append(
            int(accept(VerificationStep(0), logits_after(alone)[None], one_by_one, 7 + len(alone)).committed[0])
        )
    assert list(result.committed) == alone[: len(result.committed)]
    assert len(result.committed) == 1 + max(len(text) for text in texts if text == alone[: len(text)])
    assert [texts[row] for row in result.kept_rows] == [alone[:n] for n in range(len(result.committed))]


@pytest.mark.parametrize("copied", [(), (1, 1)])
@pytest.mark.parametrize("sampling", [Sampling(temperature=1.0), Sampling(temperature=0.7, top_k=4, top_p=0.9)])
def test_sampling_follows_the_base_models_distribution(sampling: Sampling, copied: tuple[int, ...]) -> None:
    """The first two tokens of many steps, compared with their exact probabilities."""
    torch.manual_seed(3)
    drafts, after = (0, (Alternative(0, copied),)) if copied else (2, ())
    logits = 1.5 * torch.randn(1 + drafts + len(copied), VOCABULARY)
    draw = torch.Generator().manual_seed(0)
    first, second, runs = torch.zeros(VOCABULARY), torch.zeros(VOCABULARY), 12_000
    for seed in range(runs):
        drafted = tuple(torch.randint(0, VOCABULARY, (drafts,), generator=draw).tolist())
        sampler = Sampler(sampling, torch.Generator().manual_seed(seed))
        committed = accept(VerificationStep(0, Draft(drafted), after), logits, sampler, seed % 99).committed
        first[committed[0]] += 1
        if len(committed) > 1:
            second[committed[1]] += 1
    expected = probabilities(logits[0], sampling)
    assert (first / runs - expected).abs().max() < 4 * (0.25 / runs) ** 0.5
    # The token after an accepted first token is sampled from the next row.
    expected_second = probabilities(logits[1], sampling)
    assert (second / second.sum() - expected_second).abs().max() < 5 * (0.25 / second.sum()) ** 0.5


@pytest.fixture(scope="module")
def decoder(tiny_qwen2: Path) -> Decoder:
    return Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32")


@pytest.fixture(scope="module")
def adapter(decoder: Decoder) -> Adapter:
    return random_adapter(decoder.config, 4, 3, seed=0)


PROMPT, DRAFTS, COPIED, OTHER = [3, 99, 7, 250, 41], (12, 200), (5, 61, 7), (77, 8)
ALTERNATIVES = Alternative(0, COPIED), Alternative(1, OTHER)


def test_clean_rows_compute_what_the_base_model_alone_computes(decoder: Decoder, adapter: Adapter) -> None:
    cache = decoder.new_cache()
    decoder.forward(PROMPT[:-1], cache, logits="none")
    step = VerificationStep(PROMPT[-1], Draft(DRAFTS), ALTERNATIVES, 3)
    (logits,) = decoder.run([step.forward_input(cache)], adapter)
    for tokens, rows in ((DRAFTS, (0, 1, 2)), (COPIED, (0, 3, 4, 5)), ((DRAFTS[0], *OTHER), (0, 1, 6, 7))):
        alone = decoder.forward([*PROMPT, *tokens], decoder.new_cache(), logits="all")[len(PROMPT) - 1 :]
        torch.testing.assert_close(logits[list(rows)], alone, atol=1e-5, rtol=1e-5)


def test_a_branch_computes_what_it_would_if_its_drafts_had_been_accepted(decoder: Decoder, adapter: Adapter) -> None:
    cache = decoder.new_cache()
    decoder.forward(PROMPT[:-1], cache, logits="none")
    step = VerificationStep(PROMPT[-1], Draft(DRAFTS), (), 3)
    (together,) = decoder.run([step.forward_input(cache)], adapter)
    for accepted in range(3):
        other = decoder.new_cache()
        text = [*PROMPT, *DRAFTS[:accepted]]
        decoder.forward(text, other, logits="none")
        positions = [len(text) - 1 + n for n in (1, 2, 3)]
        noise = ForwardInput(other, [MASK] * 3, positions, torch.ones(3, 3).tril().bool(), [True] * 3, 3)
        (alone,) = decoder.run([noise], adapter)
        start = 3 + 3 * accepted
        torch.testing.assert_close(together[start : start + 3], alone, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together[3:6], decoder.run([noise], random_adapter(decoder.config, 4, 3, seed=1))[0])


def test_conversations_in_one_batch_do_not_attend_to_each_other(decoder: Decoder, adapter: Adapter) -> None:
    def forward_input(length: int, drafts: tuple[int, ...]) -> ForwardInput:
        cache = decoder.new_cache()
        decoder.forward(list(range(1, length)), cache, logits="none")
        return VerificationStep(length, Draft(drafts), (), 2).forward_input(cache)

    conversations = [(5, (9, 8)), (17, ()), (2, (4,))]
    together = decoder.run([forward_input(*conversation) for conversation in conversations], adapter)
    for conversation, logits in zip(conversations, together, strict=True):
        alone = decoder.run([forward_input(*conversation)], adapter)[0]
        clean = 1 + len(conversation[1])
        torch.testing.assert_close(logits[:clean], alone[:clean], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits[clean:], alone[clean:], atol=1e-3, rtol=1e-3)  # drafts are made in bfloat16


def test_kept_rows_equal_a_prefill_of_the_same_text(decoder: Decoder, adapter: Adapter) -> None:
    cache = decoder.new_cache()
    decoder.forward(PROMPT[:-1], cache, logits="none")
    step = VerificationStep(PROMPT[-1], Draft(DRAFTS), ALTERNATIVES, 3)
    decoder.run([step.forward_input(cache)], adapter)
    fork = cache.fork()
    cache.keep((0, 3, 4), [PROMPT[-1], *COPIED[:2]])
    ours = decoder.forward([42], cache, logits="last")
    alone = decoder.forward([*PROMPT, *COPIED[:2], 42], decoder.new_cache(), logits="last")
    torch.testing.assert_close(ours, alone, atol=1e-5, rtol=1e-5)
    decoder.run([step.forward_input(fork)], adapter)
    fork.keep((0, 1, 6, 7), [PROMPT[-1], DRAFTS[0], *OTHER])
    ours = decoder.forward([42], fork, logits="last")
    alone = decoder.forward([*PROMPT, DRAFTS[0], *OTHER, 42], decoder.new_cache(), logits="last")
    torch.testing.assert_close(ours, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not cpu_kernels_installed(), reason="int8 is not supported on this processor")
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8"])
@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_int8_rows_are_bit_identical_whatever_else_is_in_the_batch(
    tiny_qwen2: Path, num_drafts: int, kv_cache_dtype: CacheType
) -> None:
    """Every clean row of a step, drafts and alternatives, compared with a forward pass of its own on the same text."""
    decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "int8", kv_cache_dtype)
    cache = decoder.new_cache()
    decoder.forward(PROMPT[:-1] * 5, cache, logits="none")
    adapter = random_adapter(decoder.config, 4, 3, seed=1)
    drafts = (*DRAFTS, 9)[:num_drafts]
    step = VerificationStep(PROMPT[-1], Draft(drafts), ALTERNATIVES, num_drafts)
    (together,) = decoder.run([step.forward_input(cache)], adapter)
    for path in step.paths:
        fork = cache.fork()
        for token, row in zip((PROMPT[-1], *path.tokens), path.rows, strict=True):
            (alone,) = decoder.run([VerificationStep(token).forward_input(fork)], adapter)
            assert torch.equal(together[row], alone[0])
            fork.keep((0,), [token])

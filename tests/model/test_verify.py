"""Draft and verify: the rule against slow and obvious ways, and its rows against passes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.adapter import Adapter, load_adapter, random_adapter
from model.decode.draft import Draft
from model.decode.lookup import LookUp
from model.decode.verify import Pass, sees, settle
from model.gguf_file import BadModelFile
from model.linear import int8_runs_here
from model.sampling import Rule, Sampling, probabilities
from model.transformer import MASK, Decoder, Rows
from model.weights import open_checkpoint

VOCABULARY = 6


@given(drafts=st.integers(0, 4), copied=st.integers(0, 4), slots=st.integers(0, 4))
def test_every_row_sees_exactly_what_its_place_in_the_text_says(drafts: int, copied: int, slots: int) -> None:
    kinds: list[tuple[str, int, int]] = [("clean", 0, n) for n in range(1 + drafts)]
    kinds += [("copied", 0, n) for n in range(copied)]
    kinds += [("noise", branch, n) for branch in range(drafts + 1 if slots else 0) for n in range(slots)]

    def expected(row: tuple[str, int, int], seen: tuple[str, int, int]) -> bool:
        kind, branch, place = row
        other, their_branch, their_place = seen
        if other == "clean":
            return their_place <= {"clean": place, "copied": 0, "noise": branch}[kind]
        return kind == other and branch == their_branch and their_place <= place

    assert sees(drafts, copied, slots).tolist() == [[expected(row, seen) for seen in kinds] for row in kinds]


def one_hot(*tokens: int) -> torch.Tensor:
    return 9.0 * torch.nn.functional.one_hot(torch.tensor(tokens), VOCABULARY).float()


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.data())
def test_greedy_accepts_the_longest_draft_that_the_base_model_agrees_with(
    truth: list[int], data: st.DataObject
) -> None:
    drafts = tuple(data.draw(st.lists(st.integers(0, 2), min_size=len(truth) - 1, max_size=len(truth) - 1)))
    slots = data.draw(st.integers(0, 2))
    noise = data.draw(st.lists(st.integers(0, 5), min_size=slots * len(truth), max_size=slots * len(truth)))
    outcome = settle(Pass(5, Draft(drafts), (), slots), one_hot(*truth, *noise), Rule())
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == truth[accepted]:
        accepted += 1
    assert outcome.committed == (*drafts[:accepted], truth[accepted])
    assert outcome.kept == tuple(range(1 + accepted))
    assert list(outcome.draft.tokens) == noise[accepted * slots : (accepted + 1) * slots]


def test_a_copied_continuation_is_taken_as_far_as_it_agrees() -> None:
    ahead = Pass(0, Draft((1,)), (2, 3, 4), 0)
    # Row 0 says 2 (not the draft's 1); behind the copied 2 comes 3, behind 3 comes 5.
    outcome = settle(ahead, one_hot(2, 0, 3, 5, 0), Rule())
    assert outcome.committed == (2, 3, 5)
    assert outcome.kept == (0, 2, 3)


@pytest.mark.parametrize("lookup", [(), (1, 1)])
@pytest.mark.parametrize("sampling", [Sampling(temperature=1.0), Sampling(temperature=0.7, top_k=4, top_p=0.9)])
def test_sampling_draws_from_the_base_models_distribution(sampling: Sampling, lookup: tuple[int, ...]) -> None:
    """The first two tokens of many passes, against their exact probabilities."""
    torch.manual_seed(3)
    drafts = 0 if lookup else 2
    logits = 1.5 * torch.randn(1 + drafts + len(lookup), VOCABULARY)
    spread = torch.softmax(1.5 * torch.randn(drafts, VOCABULARY), -1)
    rule = Rule(sampling, torch.Generator().manual_seed(0))
    first, second, runs = torch.zeros(VOCABULARY), torch.zeros(VOCABULARY), 12_000
    for _ in range(runs):
        drawn = tuple(int(torch.multinomial(row, 1, generator=rule.generator)) for row in spread)
        committed = settle(Pass(0, Draft(drawn, spread), lookup), logits, rule).committed
        first[committed[0]] += 1
        if len(committed) > 1:
            second[committed[1]] += 1
    expected = probabilities(logits[0], sampling)
    assert (first / runs - expected).abs().max() < 4 * (0.25 / runs) ** 0.5
    # What follows an accepted first token is drawn from the row behind it.
    behind = probabilities(logits[1], sampling)
    assert (second / second.sum() - behind).abs().max() < 5 * (0.25 / second.sum()) ** 0.5


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=20), st.integers(1, 6))
def test_look_up_copies_what_followed_the_same_three_tokens_last(
    before: list[int], after: list[int], length: int
) -> None:
    lookup = LookUp(before)
    lookup.extend(after)
    tokens, expected = before + after, ()
    for start in range(len(tokens) - 4, -1, -1):
        if tokens[start : start + 3] == tokens[-3:]:
            expected = tuple(tokens[start + 3 : start + 3 + length])
            break
    assert lookup.find(length) == expected


@pytest.fixture(scope="module")
def decoder(tiny_qwen2: Path) -> Decoder:
    return Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "float32")


@pytest.fixture(scope="module")
def adapter(decoder: Decoder) -> Adapter:
    return random_adapter(decoder.config, 4, 3, seed=0)


PROMPT, DRAFTS, COPIED = [3, 99, 7, 250, 41], (12, 200), (5, 61, 7)


def test_clean_rows_are_what_the_base_model_alone_computes(decoder: Decoder, adapter: Adapter) -> None:
    cache = decoder.new_cache()
    decoder.forward(PROMPT[:-1], cache, logits="none")
    (logits,) = decoder.run([Pass(PROMPT[-1], Draft(DRAFTS), COPIED, 3).rows(cache)], adapter)
    for chain, rows in ((DRAFTS, (0, 1, 2)), (COPIED, (0, 3, 4, 5))):
        alone = decoder.forward([*PROMPT, *chain], decoder.new_cache(), logits="all")[len(PROMPT) - 1 :]
        torch.testing.assert_close(logits[list(rows)], alone, atol=1e-5, rtol=1e-5)


def test_a_branch_computes_what_it_would_if_its_drafts_had_been_accepted(decoder: Decoder, adapter: Adapter) -> None:
    cache = decoder.new_cache()
    decoder.forward(PROMPT[:-1], cache, logits="none")
    (together,) = decoder.run([Pass(PROMPT[-1], Draft(DRAFTS), (), 3).rows(cache)], adapter)
    for accepted in range(3):
        other = decoder.new_cache()
        known = [*PROMPT, *DRAFTS[:accepted]]
        decoder.forward(known, other, logits="none")
        positions = [len(known) - 1 + slot for slot in (1, 2, 3)]
        noise = Rows(other, [MASK] * 3, positions, torch.ones(3, 3).tril().bool(), [True] * 3, 3)
        (alone,) = decoder.run([noise], adapter)
        start = 3 + 3 * accepted
        torch.testing.assert_close(together[start : start + 3], alone, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together[3:6], decoder.run([noise], random_adapter(decoder.config, 4, 3, seed=1))[0])


def test_conversations_in_one_pass_do_not_see_each_other(decoder: Decoder, adapter: Adapter) -> None:
    def rows(length: int, drafts: tuple[int, ...]) -> Rows:
        cache = decoder.new_cache()
        decoder.forward(list(range(1, length)), cache, logits="none")
        return Pass(length, Draft(drafts), (), 2).rows(cache)

    asked = [(5, (9, 8)), (17, ()), (2, (4,))]
    together = decoder.run([rows(*one) for one in asked], adapter)
    for one, logits in zip(asked, together, strict=True):
        alone = decoder.run([rows(*one)], adapter)[0]
        clean = 1 + len(one[1])
        torch.testing.assert_close(logits[:clean], alone[:clean], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits[clean:], alone[clean:], atol=1e-3, rtol=1e-3)  # drafts are made in bfloat16


def test_what_is_kept_of_a_pass_is_what_reading_the_text_gives(decoder: Decoder, adapter: Adapter) -> None:
    cache = decoder.new_cache()
    decoder.forward(PROMPT[:-1], cache, logits="none")
    decoder.run([Pass(PROMPT[-1], Draft(DRAFTS), COPIED, 3).rows(cache)], adapter)
    cache.keep((0, 3, 4), [PROMPT[-1], *COPIED[:2]])
    ours = decoder.forward([42], cache, logits="last")
    alone = decoder.forward([*PROMPT, *COPIED[:2], 42], decoder.new_cache(), logits="last")
    torch.testing.assert_close(ours, alone, atol=1e-5, rtol=1e-5)


def test_an_adapter_survives_its_file_and_is_refused_for_other_weights(
    tmp_path: Path, decoder: Decoder, adapter: Adapter
) -> None:
    from dataclasses import replace

    path = tmp_path / "adapter.safetensors"
    replace(adapter, base="abc", metadata={"seed": "0"}).save(path)
    loaded = load_adapter(path, decoder.config, "abc")
    assert (loaded.slots, loaded.metadata["seed"]) == (3, "0")
    torch.testing.assert_close(loaded.layers[1]["up"].a, adapter.layers[1]["up"].a, atol=0.01, rtol=0.01)
    with pytest.raises(BadModelFile, match="made for weights with sha256 abc, and these have def"):
        load_adapter(path, decoder.config, "def")
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_adapter(path, decoder.config, "abc")
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_adapter(tmp_path / "none", decoder.config, "abc")


@pytest.mark.skipif(not int8_runs_here(), reason="no int8 products on this processor")
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_int8_says_the_same_to_the_last_bit_whatever_is_beside_a_row(tiny_qwen2: Path, slots: int) -> None:
    """Every exact row of a pass, the drafts' and the copied ones, against a pass of its own behind the same text."""
    decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "int8")
    cache = decoder.new_cache()
    decoder.forward(PROMPT[:-1] * 5, cache, logits="none")
    adapter = random_adapter(decoder.config, 4, 3, seed=1)
    drafts = (*DRAFTS, 9)[:slots]
    rows = Pass(PROMPT[-1], Draft(drafts), COPIED, slots).rows(cache)
    assert rows.exact
    (together,) = decoder.run([rows], adapter)
    for chain, places in ((drafts, range(1 + slots)), (COPIED, (0, *range(1 + slots, 1 + slots + len(COPIED))))):
        twin = cache.fork()
        for token, place in zip((PROMPT[-1], *chain), places, strict=True):
            (alone,) = decoder.run([Pass(token).rows(twin)], adapter)
            assert torch.equal(together[place], alone[0])
            twin.keep((0,), [token])

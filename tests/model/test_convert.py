"""The whole path of a conversion on a tiny model: text, training, adapter, proof."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.adapter import load_adapter
from model.convert.corpus import Corpus, Text, load_corpus, loops
from model.convert.data import Recipe, write_corpus
from model.convert.evaluate import Question, evaluate, questions
from model.convert.generate import Prompt, generate, likeliest
from model.convert.lanes import Lanes
from model.convert.student import Blocks, Loss, draw_blocks, learn, noise_mask, noise_states, refined
from model.convert.train import Moment, Plan, train
from model.engine import LoadedModel, load_model
from model.gguf_file import BadModelFile
from model.shipped import shipped_adapter, weights_checksum, weights_size
from model.transformer import MASK, Rows

TOKENS = tuple([3, 99, 7, 250, 41, 41, 0, 12, 200, 5, 61, 8, 9, 101, 17, 33, 260, 12, 13, 2] * 2)


@pytest.fixture(scope="module")
def model(tiny_qwen2: Path) -> LoadedModel:
    return load_model(tiny_qwen2, device="cpu", precision="float32", adapter="none")


def corpus_of(model: LoadedModel, count: int) -> Corpus:
    """Texts that the tiny model wrote: it repeats itself, so there is something to learn."""
    draw = torch.Generator().manual_seed(1)
    openings = [tuple(torch.randint(3, 290, (6,), generator=draw).tolist()) for _ in range(count)]
    written = generate(model.decoder, [Prompt(o, 24) for o in openings], frozenset(), lanes=8, seed=1)
    texts = [Text((*o, *w), ((len(o), len(o) + len(w)),), "chat") for o, w in zip(openings, written, strict=True)]
    return Corpus(tuple(texts), "base", {})


def test_texts_written_side_by_side_are_those_written_alone(model: LoadedModel) -> None:
    prompts = [Prompt(TOKENS[n : n + 3 + n], 9) for n in range(7)]
    together = generate(model.decoder, prompts, model.stop_tokens, lanes=3, seed=1)
    for prompt, ours in zip(prompts, together, strict=True):
        tokens = list(prompt.tokens)
        while len(tokens) < len(prompt.tokens) + 9 and not (set(tokens[len(prompt.tokens) :]) & model.stop_tokens):
            logits = model.decoder.forward(tokens, model.decoder.new_cache(), logits="last")
            tokens.append(int(logits[0].argmax()))
        assert ours == tokens[len(prompt.tokens) :]


def test_drawn_texts_repeat_with_their_seed(model: LoadedModel) -> None:
    prompts = [Prompt(TOKENS[:5], 12, 1.0)] * 4
    one, two, other = (generate(model.decoder, prompts, frozenset(), lanes=4, seed=seed) for seed in (1, 1, 2))
    assert one == two != other


def test_the_likeliest_tokens_are_found_in_pieces(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.convert.generate._HEAD_CHUNK", 50)
    states = torch.randn(5, model.decoder.config.hidden)
    values, tokens = likeliest(model.decoder, states, 4)
    expected = model.decoder.head(states).topk(4)
    torch.testing.assert_close(values, expected.values)
    assert torch.equal(tokens, expected.indices)


@given(size=st.integers(1, 4), starts=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_a_noise_row_sees_the_clean_tokens_before_its_block_and_its_own_block(size: int, starts: list[int]) -> None:
    rows = len(starts) * size
    blocks = Blocks(size, torch.tensor([starts]), torch.full((1, rows), MASK), torch.ones(1, rows, dtype=torch.bool))
    mask = noise_mask(blocks, 12)[0]
    for q in range(rows):
        for k in range(12 + rows):
            own = (k - 12) // size == q // size and k - 12 <= q
            wanted = k < starts[q // size] if k < 12 else own
            assert bool(mask[q, k]) == wanted


def test_a_noise_row_in_training_is_the_one_in_decoding(model: LoadedModel) -> None:
    """The student's rows against the decoder that runs them in a pass, with a random adapter."""
    from model.adapter import random_adapter

    adapter = random_adapter(model.decoder.config, 4, 3, seed=5)
    lanes = Lanes(model.decoder, 1, 40)
    lanes.read(torch.tensor([TOKENS[:20]]), torch.zeros(1, dtype=torch.long))
    blocks = Blocks(3, torch.tensor([[8, 15]]), torch.full((1, 6), MASK), torch.ones(1, 6, dtype=torch.bool))
    ours = noise_states(model.decoder, adapter, lanes, 20, blocks)[0]
    for n, start in enumerate((8, 15)):
        cache = model.decoder.new_cache()
        model.decoder.forward(TOKENS[:start], cache, logits="none")
        sees = torch.ones(3, 3).tril().bool()
        rows = Rows(cache, [MASK] * 3, range(start, start + 3), sees, [True] * 3, 3)
        (logits,) = model.decoder.run([rows], adapter)
        torch.testing.assert_close(model.decoder.head(ours[n * 3 : n * 3 + 3]), logits, atol=1e-4, rtol=1e-4)


def test_blocks_lie_within_what_the_model_wrote(model: LoadedModel) -> None:
    text = Text(TOKENS, ((6, 14), (20, 40)), "chat")
    blocks = draw_blocks([text], 4, 30, torch.Generator().manual_seed(3))
    for start, counts in zip(blocks.starts[0].tolist(), blocks.counts.view(-1, 4).tolist(), strict=True):
        end = 14 if start < 14 else 40
        assert 6 <= start < 13 or 20 <= start < 39
        assert counts in ([start + s + 1 < end for s in range(4)], [False] * 4)
    lower = refined(blocks, torch.full((1, 8), 5), torch.tensor([TOKENS]), torch.Generator().manual_seed(1))
    held = [token for token in lower.tokens[0].tolist() if token != MASK]
    assert 0 < len(held) <= 8
    assert (lower.tokens[0, 8:] == MASK).all()


def slow_loss(weight: Tensor, student: Tensor, teacher: Tensor, blocks: Blocks, loss: Loss) -> Tensor:
    wanted, guess = (teacher @ weight.T).softmax(-1), (student @ weight.T).softmax(-1)
    variation = 0.5 * (wanted - guess).abs().sum(-1)
    entropy = -(wanted * guess.log()).sum(-1)
    slot = torch.tensor([loss.decay ** (n % blocks.size) for n in range(blocks.tokens.shape[1])])
    each = slot * blocks.counts
    return ((loss.variation * variation + loss.cross_entropy * entropy) * each).sum() / each.sum()


def test_the_loss_and_its_gradient_are_the_papers(model: LoadedModel) -> None:
    draw = torch.Generator().manual_seed(2)
    states = [torch.randn(2, 6, model.decoder.config.hidden, generator=draw) for _ in range(2)]
    counts = torch.tensor([[True] * 6, [True, True, False, True, True, True]])
    blocks = Blocks(3, torch.tensor([[1, 2], [3, 4]]), torch.full((2, 6), MASK), counts)
    loss = Loss(0.3, variation=0.7, decay=0.9)
    student = states[0].requires_grad_()
    expected = slow_loss(model.decoder.head_weight, student, states[1], blocks, loss)
    (wanted,) = torch.autograd.grad(expected, student)
    gradient, value, _ = learn(model.decoder, student, states[1], blocks, loss)
    assert value == pytest.approx(float(expected.detach()), rel=1e-4)
    torch.testing.assert_close(gradient, wanted, atol=1e-6, rtol=1e-3)


def test_an_adapter_learns_is_saved_and_loaded_and_refused_for_other_weights(
    model: LoadedModel, tiny_qwen2: Path, tmp_path: Path
) -> None:
    corpus = replace(corpus_of(model, 48), base=weights_checksum(tiny_qwen2))
    seen: list[Moment] = []
    plan = Plan(None, 120, rank=8, texts=4, rows=16, curriculum=((0.0, 2),), rate=1e-2, whole_vocabulary=True)
    size = weights_size(tiny_qwen2)
    train(model, corpus, plan, tmp_path, base_bytes=size, report=seen.append, probe_every=0.0)
    assert seen[-1].variation < seen[0].variation * 0.8
    assert seen[-1].acceptance is not None and seen[0].acceptance is not None
    assert seen[-1].acceptance[0] > seen[0].acceptance[0] + 0.1
    path = tmp_path / "adapter.safetensors"
    adapter = load_adapter(path, model.decoder.config, corpus.base)
    assert adapter.acceptance == seen[-1].acceptance
    assert json.loads(adapter.metadata["recipe"])["rank"] == 8
    found = shipped_adapter(tiny_qwen2, model.decoder.config, tmp_path)
    assert found is not None and torch.equal(found.mask, adapter.mask)
    with pytest.raises(BadModelFile, match="was made for weights with sha256"):
        load_adapter(path, model.decoder.config, "other")
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 121))


def test_a_training_that_was_stopped_goes_on_exactly(model: LoadedModel, tmp_path: Path) -> None:
    corpus = corpus_of(model, 24)
    plan = Plan(None, 8, rank=4, texts=4, rows=12, curriculum=((0.0, 2), (0.5, 3)))
    whole = train(model, corpus, plan, tmp_path / "whole")

    class Stopped(Exception):
        pass

    def stop(moment: Moment) -> None:
        if moment.step == 5:
            raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("model.convert.train._SAVE_EVERY", 0.0)
        with pytest.raises(Stopped):
            train(model, corpus, plan, tmp_path / "twice", report=stop)
    again = train(model, corpus, plan, tmp_path / "twice")
    for one, two in zip(whole.layers, again.layers, strict=True):
        for name in one:
            assert torch.equal(one[name].a, two[name].a)
            assert torch.equal(one[name].b, two[name].b)
    with pytest.raises(BadModelFile, match="another plan \\(seed\\)"):
        train(model, corpus, replace(plan, seed=2), tmp_path / "twice")


def test_a_training_that_is_over_says_the_same_when_it_is_started_again(model: LoadedModel, tmp_path: Path) -> None:
    corpus, plan = corpus_of(model, 24), Plan(None, 3, rank=4, texts=4, rows=12)
    once = train(model, corpus, plan, tmp_path)
    assert once.acceptance
    assert train(model, corpus, plan, tmp_path).metadata == once.metadata


def test_a_training_begun_before_the_plan_could_say_more_goes_on(model: LoadedModel, tmp_path: Path) -> None:
    corpus, plan = corpus_of(model, 24), Plan(None, 2, rank=4, texts=4, rows=12)
    train(model, corpus, plan, tmp_path)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    older = {key: value for key, value in json.loads(state["plan"]).items() if key not in ("variation", "decay")}
    torch.save({**state, "plan": json.dumps(older)}, tmp_path / "state.pt")
    assert train(model, corpus, replace(plan, steps=3), tmp_path).metadata["steps"] == "3"
    torch.save({**state, "plan": json.dumps(older)}, tmp_path / "state.pt")
    with pytest.raises(BadModelFile, match="another plan \\(decay\\)"):
        train(model, corpus, replace(plan, decay=1.0), tmp_path)


def test_held_out_text_is_looked_at_once_at_the_end_where_that_is_asked(model: LoadedModel, tmp_path: Path) -> None:
    seen: list[Moment] = []
    plan = Plan(None, 3, rank=4, texts=4, rows=12)
    train(model, corpus_of(model, 24), plan, tmp_path, report=seen.append, probe_every=None)
    assert [moment.acceptance is not None for moment in seen] == [False, False, True]


def test_a_corpus_is_written_read_back_and_refused_when_damaged(model: LoadedModel, tmp_path: Path) -> None:
    corpus = corpus_of(model, 5)
    corpus.save(tmp_path / "text.safetensors")
    assert load_corpus(tmp_path / "text.safetensors", corpus.base) == corpus
    with pytest.raises(BadModelFile, match="and these have another: run `rejoinder convert data` with them"):
        load_corpus(tmp_path / "text.safetensors", "another")
    (tmp_path / "text.safetensors").write_bytes(b"no")
    with pytest.raises(BadModelFile, match="run `rejoinder convert data`"):
        load_corpus(tmp_path / "text.safetensors")


def test_loops_are_found() -> None:
    assert loops([1, 2, 3, 4, 5, 6] * 3)
    assert not loops(list(range(60)))


def test_the_model_writes_its_own_text_and_mixes_in_peoples(model: LoadedModel, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    said = {"messages": [{"role": "user", "content": "hello to you"}, {"role": "assistant", "content": "x"}]}
    (own / "a.jsonl").write_text(json.dumps(said) + "\n")
    recipe = Recipe(tokens=30, lanes=4, own=own, shares={"json": 1.0})
    corpus = write_corpus(model, "base", recipe, forbidden=["hello to you"])
    assert corpus.texts
    kinds = {text.kind for text in corpus.texts}
    assert kinds <= {"own", "json"}
    for text in corpus.texts:
        assert all(0 < begin < end <= len(text.tokens) for begin, end in text.spans)
    (own / "a.jsonl").write_text('{"messages": 3}\n')
    with pytest.raises(BadModelFile, match=r"a\.jsonl line 1 is no conversation"):
        write_corpus(model, "base", recipe, forbidden=[])


def test_the_evaluation_has_its_own_prompts_of_every_kind() -> None:
    asked = questions()
    assert len(asked) >= 200
    assert {question.kind for question in asked} == {"chat", "list", "numbers", "json", "tool", "passage"}
    assert len({question.said for question in asked}) == len(asked)


def test_an_evaluation_counts_what_is_accepted_and_that_text_is_the_same(model: LoadedModel) -> None:
    from model.adapter import random_adapter

    adapter = random_adapter(model.decoder.config, 4, 3, seed=5)
    asked = [Question("chat", "hello to you"), Question("json", "the capital of France")]
    found = evaluate(replace(model, adapter=adapter), asked, "hello", lambda: 1, most_tokens=12)
    assert found["all"].prompts == 2
    assert found["all"].identical == 2
    assert len(found["all"].slot_acceptance) == 3
    assert found["chat"].tokens_per_forward >= 1 or found["chat"].loops

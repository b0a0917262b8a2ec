"""Whether a turn is complete: states out of a pass, asking beside a reply, and teaching a classifier."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.adapter import Adapter
from model.chat import CHATML, ChatTemplate, TextMessage
from model.convert import endings
from model.convert.corpus import Corpus, Text
from model.convert.spoken import spoken
from model.ending import Ending, header, load_ending, prepare_text
from model.engine import Engine, LoadedModel, load_model
from model.gguf_file import BadModelFile
from model.linear import int8_runs_here
from model.shipped import shipped_ending, weights_checksum, weights_size
from model.store import noted_checksum
from model.transformer import Decoder, Precision, Rows, text_rows
from model.weights import open_checkpoint

CPU = torch.device("cpu")
WORDS = [3, 99, 7, 250, 41, 41]
OTHERS = [5, 61, 8, 9, 101, 17, 33]
ASKED = [TextMessage("system", "the capital of France"), TextMessage("user", "hello to you")]
INT8 = pytest.param("int8", marks=pytest.mark.skipif(not int8_runs_here(), reason="no int8 products here"))


def some_ending(hidden: int) -> Ending:
    return Ending(torch.randn(hidden, generator=torch.Generator().manual_seed(5)) * 0.1, 0.1, "base", {})


@pytest.fixture(scope="module")
def model(tiny_qwen2: Path) -> LoadedModel:
    loaded = load_model(tiny_qwen2, device="cpu", precision="float32")
    return replace(loaded, ending=some_ending(loaded.decoder.config.hidden))


@pytest.fixture
async def engine(model: LoadedModel) -> AsyncIterator[Engine]:
    engine = Engine(lambda: model)
    yield engine
    engine.close()


def close(value: float | None) -> object:
    """Float products depend in the last bits on how many rows there are; int8 ones do not."""
    return pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("precision", ["float32", INT8])
def test_states_are_what_logits_are_made_of(tiny_qwen2: Path, precision: Precision) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, precision)
    (logits,) = decoder.run([text_rows(decoder.new_cache(), WORDS, 2)])
    (states,) = decoder.run([text_rows(decoder.new_cache(), WORDS, 2, states=True)])
    assert states.shape == (2, decoder.config.hidden)
    assert torch.equal(decoder.head(states), logits)


@pytest.mark.parametrize("precision", [INT8])
def test_neither_states_nor_logits_depend_on_the_rows_beside_them(tiny_qwen2: Path, precision: Precision) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, precision)

    def rows() -> tuple[Rows, Rows, Rows]:
        reading = text_rows(decoder.new_cache(), OTHERS[::-1], 0)
        return text_rows(decoder.new_cache(), WORDS, 1, states=True), text_rows(decoder.new_cache(), OTHERS, 2), reading

    asking, speaking, reading = rows()
    (states,), (logits,), (nothing,) = decoder.run([asking]), decoder.run([speaking]), decoder.run([reading])
    together = decoder.run(rows())
    assert torch.equal(together[0], states)
    assert torch.equal(together[1], logits)
    assert together[2].shape == nothing.shape == (0, decoder.config.vocab_size)


@pytest.mark.parametrize(
    ("heard", "prepared"),
    [
        ("What's the time?", "what's the time"),
        ("I’m at 10:30, it's 3.5.", "i'm at 10:30 it's 3.5"),
        ("My number is 555-123.", "my number is 555 123"),
        ("'Hello,' he said… well—um", "hello he said well um"),
        ("... !", ""),
    ],
)
def test_punctuation_is_not_believed(heard: str, prepared: str) -> None:
    assert prepare_text(heard) == prepared


async def test_the_words_so_far_are_judged_by_the_state_behind_the_last(model: LoadedModel, engine: Engine) -> None:
    conversation = engine.conversation()
    for text in ("hello", "hello to", "hello to you", "hello to Paris", "hello to Paris"):
        ids = header(model.template) + model.tokenizer.encode(text.lower())
        (states,) = model.decoder.run([text_rows(model.decoder.new_cache(), ids, 1, states=True)])
        assert model.ending is not None
        assert await conversation.ends(f"{text}.") == close(float(model.ending(states)))
    assert await conversation.ends("…") == 0.0


async def test_only_new_words_are_read(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    run = Decoder.run

    def noted(self: Decoder, batch: Sequence[Rows], adapter: Adapter | None = None) -> list[torch.Tensor]:
        sizes.extend(len(rows.tokens) for rows in batch)
        return run(self, batch, adapter)

    template = ChatTemplate("{{ 'hello to you is the capital' }}" + CHATML, model.tokenizer)
    opening = len(header(template))
    engine = Engine(lambda: replace(model, template=template))
    monkeypatch.setattr(Decoder, "run", noted)
    conversation = engine.conversation()
    for text, most in (
        ("the capital of France", opening + 40),
        ("the capital of France is", 3),
        ("hello to you " * 100, 64),
        ("x" * 5000, 64),
    ):
        assert await conversation.ends(text) is not None
        assert sizes.pop() <= most
    assert await engine.conversation().ends("hello") is not None
    assert sizes.pop() <= 3  # the opening was lent
    engine.close()


async def test_asking_does_not_disturb_a_reply_under_way(engine: Engine) -> None:
    async def said(ask: bool) -> str:
        conversation, text = engine.conversation(), ""
        async for progress in conversation.reply(ASKED, max_tokens=30):
            text += progress.committed
            if ask:
                values.append(await conversation.ends(f"hello to you {progress.step}"))
        return text

    values: list[float | None] = []
    assert await said(True) == await said(False)
    assert len(values) > 3
    for number, value in enumerate(values, 1):
        assert value == close(await engine.conversation().ends(f"hello to you {number}"))


async def test_a_newer_question_takes_the_place_of_an_older(engine: Engine) -> None:
    conversation = engine.conversation()
    answers = await asyncio.gather(*(conversation.ends(f"hello {n}") for n in range(5)))
    assert answers[-1] == close(await engine.conversation().ends("hello 4"))
    for number, answer in enumerate(answers[:-1]):
        assert answer is None or answer == close(await engine.conversation().ends(f"hello {number}"))


async def test_nothing_is_said_where_nothing_was_trained(tiny_qwen2: Path) -> None:
    untrained = load_model(tiny_qwen2, device="cpu", precision="float32")
    assert untrained.ending is None
    engine = Engine(lambda: untrained)
    assert await engine.conversation().ends("hello to you") is None
    engine.close()


async def test_a_pass_that_fails_leaves_it_unknown(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Decoder.run

    def flaky(self: Decoder, batch: Sequence[Rows], adapter: Adapter | None = None) -> list[torch.Tensor]:
        if any(rows.states for rows in batch):
            raise RuntimeError("out of memory")
        return run(self, batch, adapter)

    conversation = engine.conversation()
    monkeypatch.setattr(Decoder, "run", flaky)
    assert await conversation.ends("hello to you") is None
    monkeypatch.undo()
    assert await conversation.ends("hello to you") == close(await engine.conversation().ends("hello to you"))


def test_a_classifier_is_saved_found_by_its_weights_and_refused_for_others(
    model: LoadedModel, tiny_qwen2: Path, tmp_path: Path
) -> None:
    config, base, path = model.decoder.config, weights_checksum(tiny_qwen2), tmp_path / "ending.safetensors"
    ending = replace(
        some_ending(config.hidden), base=base, metadata={"base_bytes": str(weights_size(tiny_qwen2)), "seed": "1"}
    )
    ending.save(path)
    again = load_ending(path, config, base)
    assert torch.equal(again.weight, ending.weight)
    assert again.bias == pytest.approx(ending.bias)
    assert again.metadata["seed"] == "1"
    found = shipped_ending(tiny_qwen2, config, tmp_path)
    assert found is not None and torch.equal(found.weight, ending.weight)
    with pytest.raises(BadModelFile, match="was made for weights with sha256"):
        load_ending(path, config, "other")
    with pytest.raises(BadModelFile, match="another shape"):
        load_ending(path, replace(config, hidden=32), base)
    replace(ending, base="0" * 64).save(path)
    assert shipped_ending(tiny_qwen2, config, tmp_path) is None
    path.write_bytes(b"no")
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_ending(path, config, base)


def test_a_checked_file_is_not_read_again_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    read = weights_checksum(path)
    stat = path.stat()
    note = {"sha256": "noted", "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    (tmp_path / ".model.gguf.verified").write_text(json.dumps(note))
    assert noted_checksum(path) == weights_checksum(path) == "noted"
    path.write_bytes(b"other weights")
    assert noted_checksum(path) is None
    assert weights_checksum(path) not in (read, "noted")


def test_templates_say_where_a_turn_could_end() -> None:
    texts = [places for _, places in spoken(random.Random(1))]
    marks = {" ".join(word for word, _ in places): [ends for _, ends in places] for places in texts}
    assert all(re_marked not in word for text in texts for word, _ in text for re_marked in "|~{}!")
    assert marks["turn it up a little"] == [False, False, True, False, True]
    assert marks["what time is it"] == [False, False, False, True]
    assert marks["remind me to"] == [False] * 3
    dictated = [places for places in texts if len(places) == 13 and places[0][0] == "my" and places[1][0] == "number"]
    assert [ends for _, ends in dictated[0]] == [False] * 9 + [None] + [False] * 2 + [True]


def test_what_is_complete_somewhere_is_not_called_unfinished_elsewhere() -> None:
    sides = ["What is the capital of France?", "What is it about this song?", "How long is it?", "How long is it now?"]
    texts = {text.origin: text.places for text in endings.sentences(sides, seed=1)}
    assert [ends for _, ends in texts["What is the capital of France?"]][:5:2] == [False] * 3
    assert texts["How long is it now?"][3] == ("it", None)
    assert texts["How long is it?"][-1] == ("it", True)


def test_a_rule_is_learned_from_a_models_states(model: LoadedModel, tiny_qwen2: Path) -> None:
    """With a model that knows nothing: complete is what ends with `you`."""
    draw = random.Random(2)
    texts = []
    for number in range(400):
        words = [draw.choice(("hello", "to", "you", "Paris", "is")) for _ in range(draw.randrange(2, 6))]
        texts.append(endings.Said(str(number), [(word, word == "you") for word in words]))
    taught, apart = endings.held_out(texts, 0.25, seed=1)
    assert len(apart) == 100
    ending = Ending(*endings.fit(*endings.states_of(model, taught), 1e-3), "base", {})
    figures = endings.figures(ending, *endings.states_of(model, apart))
    assert figures.auc > 0.99 and figures.accuracy > 0.95 and figures.recall > 0.95


def test_states_behind_many_texts_are_those_of_each_alone(model: LoadedModel) -> None:
    texts = [endings.Said("", [(word, True) for word in "the capital of france".split()[:n]]) for n in (1, 3, 4)] * 40
    states, complete = endings.states_of(model, texts)
    assert len(states) == len(complete) == 8 * 40
    ids = header(model.template) + model.tokenizer.encode("the capital of france")
    (alone,) = model.decoder.run([text_rows(model.decoder.new_cache(), ids, 1, states=True)])
    torch.testing.assert_close(states[7], alone[0])
    torch.testing.assert_close(states[-1], alone[0])


def test_teaching_uses_what_users_said_and_tells_how_good_it_is(
    model: LoadedModel, tiny_qwen2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.convert.spoken._FILLED", 1)
    talk = [TextMessage("system", "Paris"), TextMessage("user", "(1) no"), TextMessage("assistant", "Is it?")]
    talk.append(TextMessage("user", "Paris is\nIs hello to you the capital of France?"))
    corpus = Corpus((Text(tuple(model.template.encode(talk, answer=False)), (), "chat"),), "base", {})
    assert endings.user_sides(corpus, model) == ["Is hello to you the capital of France?"]
    base, size = weights_checksum(tiny_qwen2), weights_size(tiny_qwen2)
    ending, figures = endings.teach(model, corpus, base, size, seed=3)
    assert 0.5 < figures.auc < 1 and figures.places > 100
    assert json.loads(ending.metadata["held_out"])["auc"] == figures.auc
    assert (ending.base, ending.metadata["base_bytes"]) == (base, str(size))

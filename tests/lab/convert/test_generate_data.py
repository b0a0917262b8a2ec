"""The model generates its own training text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.convert.corpus import Corpus
from lab.convert.generate_data import CorpusConfig, CorpusGenerator
from model.checkpoint.gguf import BadModelFile
from model.engine.loader import LoadedModel, load_model
from tests.model.dialogues import with_doubled_weights


def test_the_model_generates_its_own_text_and_includes_own_conversations(model: LoadedModel, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    conversation = {"messages": [{"role": "user", "content": "hello to you"}, {"role": "assistant", "content": "x"}]}
    (own / "a.jsonl").write_text(json.dumps(conversation) + "\n")
    config = CorpusConfig(response_tokens=30, batch_size=4, own_conversations=own, shares={"json": 1.0})
    corpus = CorpusGenerator(model, "base", config, ["hello to you"]).run()
    assert corpus is not None and corpus.texts
    kinds = {text.kind for text in corpus.texts}
    assert kinds <= {"own", "json"}
    for text in corpus.texts:
        assert all(0 < begin < end <= len(text.tokens) for begin, end in text.spans)
    (own / "a.jsonl").write_text('{"messages": 3}\n')
    with pytest.raises(BadModelFile, match=r"(?s)a\.jsonl has lines .*line 1 is not a conversation"):
        CorpusGenerator(model, "base", config).run()


@pytest.fixture(scope="module")
def talkative(tiny_qwen2: Path, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model that does not repeat itself, as the other one does."""
    varied = with_doubled_weights(tiny_qwen2, tmp_path_factory.mktemp("varied"))
    return load_model(varied, device="cpu", precision="float32", adapter="none")


def test_generation_that_is_interrupted_goes_on_where_it_was(talkative: LoadedModel, tmp_path: Path) -> None:
    """The text is that of generation without a stop, to the last token."""
    config = CorpusConfig(response_tokens=400, batch_size=4, shares={"json": 1.0})
    whole = CorpusGenerator(talkative, "base", config, ["x"]).run()
    state, stops = tmp_path / "text.partial", 0
    while (parts := CorpusGenerator(talkative, "base", config, ["x"]).run(state, is_over=lambda: True)) is None:
        stops += 1
    assert stops >= 2 and whole is not None
    assert (parts.texts, parts.about) == (whole.texts, whole.about)


def test_text_that_was_begun_on_a_cpu_goes_on_elsewhere_but_not_for_other_settings(
    talkative: LoadedModel, tmp_path: Path
) -> None:
    """A GPU generates more texts at a time."""
    config = CorpusConfig(response_tokens=300, batch_size=4, shares={"json": 1.0})
    state = tmp_path / "text.partial"

    def stop(config: CorpusConfig, base: str = "base") -> Corpus | None:
        return CorpusGenerator(talkative, base, config).run(state, is_over=lambda: True)

    assert stop(config) is None
    with pytest.raises(BadModelFile, match=r"other settings \(seed\)"):
        stop(replace(config, seed=2))
    with pytest.raises(BadModelFile, match=r"other settings \(base\)"):
        stop(config, "another")
    more = CorpusGenerator(talkative, "base", replace(config, batch_size=8)).run(state)
    assert more is not None and int(more.about["answer_tokens"]) >= 300
    state.write_text("{")
    with pytest.raises(BadModelFile, match="cannot be read"):
        stop(config)

"""Every family in its published layout loads, sees what it should, and denoises as a slow reference does."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from model.adapter import Adapter, projection_shapes
from model.answer import Answer, Progress
from model.chat import CHATML, ChatTemplate, TextMessage
from model.decode import decoding
from model.decode.denoise import Denoiser, reading_start
from model.decode.draft import Draft
from model.decode.schedule import Schedule
from model.decode.verify import Pass
from model.engine import Engine, load_model
from model.families import FAMILIES, family_named, find_family, slides
from model.gguf_file import BadModelFile
from model.lora import load_lora
from model.sampling import Rule
from model.tokenizer import TextTokenizer
from model.transformer import MASK, Decoder, Precision, Rows, reading
from model.weights import open_checkpoint
from tests.conftest import save_tiny
from tests.model.families import LAYOUTS, MASK_TOKEN, Slow, save_family, sees_of, with_mask, write_slowly

CPU = torch.device("cpu")
PROMPT = [3, 99, 7, 250, 41, 41, 0, 12, 200, 5, 61, 8, 9]
CLOSING = {11, 12, 31}


class Collected(Answer):
    """An answer that keeps its tokens and never ends before its budget."""

    def __init__(self, tokenizer: Tokenizer, budget: int) -> None:
        self.progress: list[Progress] = []
        super().__init__(TextTokenizer(tokenizer), frozenset(), budget, 0, 0, self.progress.append)

    def closes(self, token: int) -> bool:
        return token in CLOSING


@pytest.fixture(scope="module", params=sorted(LAYOUTS))
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer
) -> tuple[Decoder, Slow, Tokenizer]:
    """A decoder of each family, transformers' model with the same weights, and the tokenizer."""
    ours, theirs = save_family(tmp_path_factory.mktemp(request.param), tiny_tokenizer, request.param)
    return Decoder(open_checkpoint(ours), CPU, "float32"), Slow(theirs), with_mask(tiny_tokenizer)


def write(decoder: Decoder, tokenizer: Tokenizer, schedule: Schedule, count: int, ids: list[int]) -> Collected:
    """What `denoise` writes behind `ids`."""
    how = decoder.config.denoising
    assert how is not None
    how = replace(how, canvas=min(how.canvas, 40), block=min(how.block, 8))
    cache, answer = decoder.new_cache(), Collected(tokenizer, count)
    start = reading_start(how, ids)
    for chunk in reading(cache, ids[:start], how.text, how.block):
        decoder.run([chunk])
    passes = decoding.write(Denoiser(cache, ids, how, schedule, Rule(), answer, decoder.config.context_length), answer)
    rows = next(passes)
    try:
        while True:
            rows = passes.send(decoder.run([rows])[0])
    except StopIteration:
        return answer


@pytest.mark.parametrize("text", [1, 8, 13, 16])
@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(bound=0.0, max_steps=1),
        Schedule(bound=0.02, max_steps=3),
        Schedule(bound=2.0, max_steps=8),
        Schedule("factor", 4.5, 8),
        Schedule("entropy", 11.0, 8),
        Schedule(bound=0.02, max_steps=8, remask=0.01),
        Schedule(bound=0.01, max_steps=4, edit=0.01),
        Schedule("entropy", 6.0, 8, remask=0.005, edit=0.02),
    ],
)
def test_blocks_are_denoised_as_the_slow_reference_does(
    family: tuple[Decoder, Slow, Tokenizer], text: int, schedule: Schedule
) -> None:
    decoder, slow, tokenizer = family
    how = decoder.config.denoising
    assert how is not None
    how = replace(how, canvas=min(how.canvas, 40), block=min(how.block, 8))
    ids = (PROMPT * 2)[:text]
    # The reference gives every block all its passes; the estimate of how many it needs has a test of its own.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("model.decode.schedule.passes_needed", lambda *_: schedule.max_steps - 1)
        ours = write(decoder, tokenizer, schedule, 20, ids)
    assert ours.tokens == write_slowly(slow, ids, how, schedule, 20, CLOSING)
    assert ours.progress[-1].finished == "length"


def test_several_blocks_in_flight_fill_every_block(family: tuple[Decoder, Slow, Tokenizer]) -> None:
    decoder, _, tokenizer = family
    answer = write(decoder, tokenizer, Schedule("threshold", 0.05, 6, in_flight=3), 24, PROMPT)
    assert len(answer.tokens) == 24
    assert decoder.mask_token not in answer.tokens
    assert len(answer.progress) <= 24 * 8


def test_a_noisy_pass_sees_what_the_family_says(family: tuple[Decoder, Slow, Tokenizer]) -> None:
    """Logits of text with two blocks of masks behind it, against transformers with a mask made pair by pair."""
    decoder, slow, _ = family
    how = decoder.config.denoising
    assert how is not None
    text = PROMPT[:12] if how.text != "block" else (PROMPT * 2)[: how.block]
    tokens = [*text, *[MASK] * 2 * how.block]
    sees = sees_of(how, len(text), [how.block, how.block])
    (ours,) = decoder.run([Rows(decoder.new_cache(), tokens, range(len(tokens)), sees, [False] * len(tokens), 9)])
    theirs, _ = slow.logits([how.mask if token == MASK else token for token in tokens], sees)
    theirs[:, how.mask] = -torch.inf
    torch.testing.assert_close(ours, theirs[-9:], atol=1e-4, rtol=1e-4)


async def reply(engine: Engine, words: str, budget: int = 24) -> list[Progress]:
    conversation = engine.conversation()
    messages = [TextMessage("user", words)]
    return [progress async for progress in conversation.reply(messages, max_tokens=budget, effort="low")]


def test_an_engine_answers_with_each_family(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    for name in LAYOUTS:
        (tmp_path / name).mkdir()
        ours, _ = save_family(tmp_path / name, tiny_tokenizer, name)
        engine = Engine(lambda ours=ours: load_model(ours, device="cpu", precision="float32"))  # type: ignore[misc]
        try:
            first = asyncio.run(reply(engine, "hello to you"))
            assert first[-1].finished
            assert asyncio.run(reply(engine, "hello to you"))[-1].tokens == first[-1].tokens
        finally:
            engine.close()


@pytest.mark.parametrize("name", ["i-dlm", "nemotron-labs-diffusion"])
def test_families_that_check_their_drafts_say_what_they_would_say_alone(
    tmp_path: Path, tiny_tokenizer: Tokenizer, name: str
) -> None:
    ours, theirs = save_family(tmp_path, tiny_tokenizer, name)
    slow = Slow(theirs)
    engine = Engine(lambda: load_model(ours, device="cpu", precision="float32"))
    try:
        model = engine.model
        ids = model.template.encode([TextMessage("user", "the capital of France")])
        said: list[int] = []
        mask = model.decoder.mask_token
        while len(said) < 24 and (not said or said[-1] not in model.stop_tokens):
            tokens = ids + said
            logits, _ = slow.logits(tokens, torch.ones(len(tokens), len(tokens)).tril().bool())
            logits[:, mask] = -torch.inf
            said.append(int(logits[-1].argmax()))
        progress = asyncio.run(reply(engine, "the capital of France"))
        assert progress[-1].tokens == len(said)
        stream = model.tokenizer.stream()
        words = "".join(stream.push(token) for token in said if token not in model.stop_tokens)
        assert "".join(p.committed for p in progress) == words
        if name == "nemotron-labs-diffusion":
            assert any(p.draft for p in progress)
    finally:
        engine.close()


def save_lora(folder: Path, model: Decoder, targets: tuple[str, ...] = ("o",)) -> dict[str, torch.Tensor]:
    """A random adapter in PEFT's layout; what it adds to each weight, by our name."""
    draw, tensors, added = torch.Generator().manual_seed(5), {}, {}
    for n in range(model.config.layers):
        for name in targets:
            rows, columns = projection_shapes(model.config)[name]
            a, b = torch.randn(4, columns, generator=draw) * 0.2, torch.randn(rows, 4, generator=draw) * 0.2
            key = f"base_model.model.encoder.layers.{n}.self_attn.{name}_proj"
            tensors |= {f"{key}.lora_A.weight": a, f"{key}.lora_B.weight": b}
            added[f"encoder.layers.{n}.self_attn.{name}_proj.weight"] = b @ a * 8 / 4
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(
        json.dumps({"r": 4, "lora_alpha": 8, "target_modules": [f"{t}_proj" for t in targets]})
    )
    return added


@pytest.mark.parametrize("targets", [("o",), ("q", "v")])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_nemotrons_own_adapter_drafts_and_leaves_the_text_alone(
    tmp_path: Path, tiny_tokenizer: Tokenizer, targets: tuple[str, ...], precision: Precision
) -> None:
    """Its drafting pass computes what weights with the adapter multiplied in compute; what is said is the base's."""
    ours, _ = save_family(tmp_path, tiny_tokenizer, "nemotron-labs-diffusion")
    bare = load_model(ours, device="cpu", precision=precision)
    added = save_lora(ours / "linear_spec_lora", bare.decoder, targets)
    merged = shutil.copytree(ours, tmp_path / "merged", ignore=shutil.ignore_patterns("linear_spec_lora"))
    weights = load_file(merged / "model.safetensors")
    save_file({name: value + added.get(name, 0) for name, value in weights.items()}, merged / "model.safetensors")
    model = load_model(ours, device="cpu", precision=precision)
    assert model.adapter is not None
    drafting = Pass(9, slots=7, linear=True)

    def logits(decoder: Decoder, adapter: Adapter | None) -> torch.Tensor:
        return decoder.run([drafting.rows(decoder.new_cache())], adapter)[0].nan_to_num(neginf=0)

    wanted = logits(load_model(merged, device="cpu", precision=precision).decoder, None)
    far = (logits(bare.decoder, None) - wanted).abs().mean()
    assert (logits(model.decoder, model.adapter) - wanted).abs().mean() < (
        0.3 if precision == "int8" else 0.01
    ) * far  # weights that were merged are rounded anew
    texts = []
    for loaded in (bare, model):
        engine = Engine(lambda loaded=loaded: loaded)  # type: ignore[misc]
        try:
            texts.append("".join(p.committed for p in asyncio.run(reply(engine, "the capital of France"))))
        finally:
            engine.close()
    assert texts[0] == texts[1]


def test_an_adapter_that_is_not_plain_lora_of_this_model_is_refused(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    ours, _ = save_family(tmp_path, tiny_tokenizer, "nemotron-labs-diffusion")
    model = load_model(ours, device="cpu", precision="float32")
    mask = torch.zeros(model.decoder.config.hidden)
    folder = tmp_path / "linear_spec_lora"
    save_lora(folder, model.decoder)
    for said, why in (
        ({"r": 4, "lora_alpha": 8, "use_dora": True}, "no plain LoRA"),
        ({"r": 4, "lora_alpha": 8, "target_modules": ["o_proj", "q_proj"]}, r"lacks \(0, 'q', 'A'\)"),
        ({"r": 0, "lora_alpha": 8}, "cannot be read"),
    ):
        (folder / "adapter_config.json").write_text(json.dumps(said))
        with pytest.raises(BadModelFile, match=why):
            load_lora(folder, model.decoder.config, mask)
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_lora(tmp_path / "none", model.decoder.config, mask)


def test_a_family_that_cannot_check_its_drafts_refuses_to(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    ours, _ = save_family(tmp_path, tiny_tokenizer, "sdar")
    with pytest.raises(ValueError, match=r"a sdar model cannot check its own drafts: choose the decoding `blocks`"):
        Engine(lambda: load_model(ours, device="cpu", precision="float32"), decoding="verified")


def test_an_unknown_family_is_refused_with_the_list(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}))
    with pytest.raises(BadModelFile, match=r"MambaForCausalLM / mamba model; known families are llama, .*nemotron"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [
        ("LLaDAMoEModelLM", "llada"),
        ("Qwen2ForSequenceClassification", "qwen2"),
        ("LlamaForTokenClassification", "llama"),
    ],
)
def test_an_unknown_architecture_is_refused_though_a_relative_shares_its_type(
    tmp_path: Path, architecture: str, model_type: str
) -> None:
    with pytest.raises(BadModelFile, match=f"a {architecture} / {model_type} model; known families are llama, "):
        find_family({"architectures": [architecture], "model_type": model_type}, tmp_path)
    assert find_family({"model_type": model_type}, tmp_path).name == model_type


def test_a_family_that_the_configuration_does_not_tell_can_be_named(
    tmp_path: Path, tiny_tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    """I-DLM as its authors publish it: SDAR's name, blocks of three, and nothing else that tells; in a folder that a
    hub names by a hash."""
    ours, _ = save_family(tmp_path, tiny_tokenizer, "i-dlm")
    folder = ours.rename(tmp_path / "3f1c9a77")
    settings = json.loads((folder / "config.json").read_text())
    del settings["use_regular_causal"]
    (folder / "config.json").write_text(json.dumps(settings))
    with caplog.at_level("INFO"):
        assert open_checkpoint(folder).config.family == "sdar"
        assert "3f1c9a77 is read as sdar (--family names another)" in caplog.text
        model = load_model(folder, device="cpu", precision="float32", family="i-dlm")
        assert "3f1c9a77 is read as i-dlm" in caplog.text
    how = model.decoder.config.denoising
    assert how is not None
    assert (how.text, how.block, how.verified) == ("causal", 3, "branches")
    with pytest.raises(BadModelFile, match="there is no family 'idlm'; known families are llama, "):
        open_checkpoint(folder, "idlm")
    with pytest.raises(BadModelFile, match="is a sdar model, which cannot be computed as dream"):
        open_checkpoint(folder, "dream")


@pytest.mark.parametrize(
    ("name", "said", "slides_"),
    [
        ("qwen2", {"use_sliding_window": False, "sliding_window": 32768}, False),
        ("qwen2", {"sliding_window": 32768}, False),  # transformers has it off unless it is said
        ("qwen2", {"use_sliding_window": True, "sliding_window": 32768}, True),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, True),
        ("dream", {"use_sliding_window": False, "sliding_window": None}, False),
        ("ministral", {"sliding_window": None}, False),
        ("ministral", {"sliding_window": 4096}, True),
        ("llama", {"use_sliding_window": None, "sliding_window": 4096}, True),
        ("nemotron-labs-diffusion", {"sliding_window": 4096}, True),
    ],
)
def test_a_sliding_window_is_told_as_transformers_tells_it(name: str, said: dict[str, object], slides_: bool) -> None:
    assert slides(family_named(name), said) == slides_


def test_a_checkpoint_with_a_sliding_window_is_refused(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder = save_tiny(tmp_path, tiny_tokenizer, "ministral3", sliding_window=16)
    with pytest.raises(BadModelFile, match="uses sliding-window attention"):
        open_checkpoint(folder)


def test_a_literal_mask_token_in_a_text_or_a_tool_is_never_a_mask(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    ours, _ = save_family(tmp_path, tiny_tokenizer, "sdar")
    model = load_model(ours, device="cpu", precision="float32")
    said = f"hello {MASK_TOKEN} to you"
    ids = model.template.encode([TextMessage("user", said)])
    assert model.decoder.mask_token not in ids
    assert said in model.tokenizer.decode(ids)
    template = ChatTemplate("{{ tools[0] | tojson }}{{ tools[0].about }}" + CHATML, model.tokenizer)
    ids = template.encode([TextMessage("user", "hello")], tools=[{"name": MASK_TOKEN, "about": f"a {MASK_TOKEN}"}])
    assert model.decoder.mask_token not in ids
    assert model.tokenizer.decode(ids).count(MASK_TOKEN) == 3


def test_a_mask_is_never_said(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    ours, _ = save_family(tmp_path, tiny_tokenizer, "dream")
    decoder = Decoder(open_checkpoint(ours), CPU, "float32")
    logits = decoder.forward(PROMPT, decoder.new_cache(), logits="all")
    assert (logits[:, decoder.mask_token] == -torch.inf).all()


def test_no_family_is_listed_twice() -> None:
    names = [architecture for family in FAMILIES for architecture in family.architectures]
    assert len(names) == len(set(names))
    assert Draft().tokens == ()


def test_a_tokenizer_of_vocabulary_and_merges_is_read(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    """Dream has no tokenizer.json."""
    said = json.loads(tiny_tokenizer.to_str())
    (tmp_path / "vocab.json").write_text(json.dumps(said["model"]["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in said["model"]["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    added = {token["content"]: token["id"] for token in said["added_tokens"]}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    tokenizer = TextTokenizer.from_folder(tmp_path)
    text = "<|im_start|>the capital of France"
    assert tokenizer.encode_template(text) == tiny_tokenizer.encode(text).ids
    (tmp_path / "vocab.json").write_text("no")
    with pytest.raises(BadModelFile, match="cannot be read"):
        TextTokenizer.from_folder(tmp_path)

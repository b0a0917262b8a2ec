"""dLLM's exports generate what dLLM's samplers (`dllm/core/samplers`, greedy) generate, written here once more and
without a cache. Two things are left out: they may output the mask token, and do not attend to padding that they output.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from chat.progress import MASK_CHARACTER
from chat.types import Ask, Message
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.decode.decoding import generate
from model.decode.diffusion import DiffusionDecoder
from model.decode.effort import EFFORTS, DenoisingSchedule
from model.decode.output import GenerationOutput
from model.decode.sampling import Sampler
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel, load_model
from tests.conftest import save_tiny_checkpoint
from tests.model.dialogues import HELLO, collect_progress, committed_text, with_doubled_weights
from tests.model.tiny_families import ReferenceModel

BLOCK = 32
PROMPTS = [[5, 61, 8], list(range(40, 77)), list(range(20, 84))]
"""Shorter than a block, longer, and two blocks exactly."""


def save_export(folder: Path, tokenizer: Tokenizer, kind: str, backbone: str, **settings: object) -> tuple[Path, Path]:
    """A tiny export as dLLM's trainer saves it, and the same weights in transformers' layout. The configuration names
    neither the kind nor the mask, and the base model's end token is not the one that ends a turn."""
    with_mask = Tokenizer.from_str(tokenizer.to_str())
    with_mask.add_special_tokens([AddedToken("<|mask|>", special=True, normalized=False)])
    plain = save_tiny_checkpoint(folder / "plain", with_mask, backbone, tie_word_embeddings=False, **settings)
    theirs = with_doubled_weights(plain, folder / "theirs")
    ours = folder / f"Qwen-0.6B-diffusion-{kind}-v0.1"
    ours.mkdir()
    config = json.loads((theirs / "config.json").read_text())
    config |= {"architectures": [f"A2D{backbone.capitalize()}LMHeadModel"], "model_type": f"a2d-{backbone}"}
    config["eos_token_id"] = with_mask.token_to_id("<|endoftext|>")
    (ours / "config.json").write_text(json.dumps(config))
    (ours / "tokenizer_config.json").write_text(json.dumps({"mask_token": "<|mask|>", "eos_token": "<|endoftext|>"}))
    for name in ("model.safetensors", "tokenizer.json"):
        (ours / name).write_bytes((theirs / name).read_bytes())
    return ours, theirs


def transfers(masks: int, steps: int) -> list[int]:
    """How many tokens each step of a block unmasks (`get_num_transfer_tokens`, linear schedule)."""
    counts = []
    for step in range(steps, 0, -1):
        counts.append(min(masks, round(masks * (1 - (step - 1) / step))))
        masks -= counts[-1]
    return [count for count in counts if count]


def unmask(tokens: list[int], logits: Tensor, start: int, end: int, count: int, mask: int) -> None:
    """Fill in the `count` most confident masks from `start` to `end`: a row predicts its own token."""
    logits[:, mask] = -math.inf
    best = logits.softmax(-1).max(-1)
    masked = [n for n in range(start, end) if tokens[n] == mask]
    for n in sorted(masked, key=lambda n: -float(best.values[n]))[:count]:
        tokens[n] = int(best.indices[n])


@torch.no_grad()
def sample_mdlm(model: ReferenceModel, prompt: list[int], mask: int, count: int, block: int, steps: int) -> list[int]:
    """`MDLMSampler`: all masks follow the prompt at once, and everything attends to everything."""
    tokens = [*prompt, *[mask] * count]
    everything = torch.ones(len(tokens), len(tokens), dtype=torch.bool)
    for start in range(len(prompt), len(tokens), block):
        end = min(start + block, len(tokens))
        for number in transfers(end - start, steps):
            unmask(tokens, model.logits(tokens, everything)[0], start, end, number, mask)
    return tokens[len(prompt) :]


@torch.no_grad()
def sample_bd3lm(
    model: ReferenceModel, prompt: list[int], mask: int, count: int, block: int, steps: int, ends: frozenset[int]
) -> list[int]:
    """`BD3LMSampler`: padding before the prompt makes it end with a block. A row attends to its own block and those
    before it, and not to padding, which has no position."""
    padding = -len(prompt) % block
    tokens = [-1] * padding + prompt
    first = len(tokens)
    while len(tokens) < first + count and not ends & set(tokens[first:]):
        start = len(tokens)
        tokens += [mask] * block
        for number in transfers(block, steps):
            number_of_block = torch.arange(len(tokens)) // block
            attends = number_of_block[:, None] >= number_of_block
            attends[:, :padding] = False
            attends[:padding] = torch.eye(padding, len(tokens), dtype=torch.bool)  # so that a row has something
            positions = (torch.arange(len(tokens)) - padding).clamp(min=0)
            bias = torch.where(attends, 0.0, -math.inf)[None, None]
            ids = torch.tensor([[max(token, 0) for token in tokens]])
            logits = model.model(ids, attention_mask=bias, position_ids=positions[None]).logits[0]
            unmask(tokens, logits, start, len(tokens), number, mask)
    return tokens[first:]


def trimmed(tokens: list[int], ends: frozenset[int]) -> list[int]:
    """Up to the first token that ends the response (`sample_trim`)."""
    return tokens[: next((n for n, token in enumerate(tokens) if token in ends), len(tokens))]


def generated(model: LoadedModel, prompt: list[int], schedule: DenoisingSchedule, count: int) -> list[int]:
    """What the decoder generates, in whole blocks."""
    diffusion, context = model.decoder.config.diffusion, model.decoder.config.context_length
    assert diffusion is not None
    output = GenerationOutput(model.tokenizer, model.stop_tokens, count, 0, 0, lambda progress: None)
    cache = model.decoder.new_cache()
    decoder = DiffusionDecoder(cache, prompt, diffusion, schedule, Sampler(), output, context)
    steps = generate(decoder, output)
    forward_input = next(steps)
    try:
        while True:
            forward_input = steps.send(model.decoder.run([forward_input])[0])
    except StopIteration:
        return output.tokens


def endless(folder: Path) -> LoadedModel:
    """A model that never stops by itself."""
    return replace(load_model(folder, device="cpu", precision="float32"), stop_tokens=frozenset())


@pytest.fixture
def whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks do not end at punctuation, and get all the steps that they may have, as in the samplers."""
    monkeypatch.setattr(GenerationOutput, "ends_clause", lambda *_: False)
    monkeypatch.setattr("model.decode.effort.steps_needed", lambda confidence, schedule: schedule.max_steps)


def steps_of(count: int) -> DenoisingSchedule:
    """The samplers' schedule: each of `count` steps unmasks as many tokens, however confident the model is."""
    return DenoisingSchedule(bound=2.0, max_steps=count)


@pytest.mark.parametrize("backbone", ["qwen2", "qwen3"])
@pytest.mark.parametrize("steps", [1, 8, 32])
def test_bd3lm_generates_what_its_sampler_generates(
    tmp_path: Path, tiny_tokenizer: Tokenizer, backbone: str, steps: int, whole_blocks: None
) -> None:
    ours, theirs = save_export(tmp_path, tiny_tokenizer, "bd3lm", backbone)
    model, reference = load_model(ours, device="cpu", precision="float32"), ReferenceModel(theirs)
    mask = model.decoder.mask_token
    assert mask == model.tokenizer.token_id("<|mask|>")
    for prompt in PROMPTS:
        expected = sample_bd3lm(reference, prompt, mask, 128, BLOCK, steps, frozenset())
        assert len(set(expected)) > 4  # random, and not one token over and over
        assert generated(replace(model, stop_tokens=frozenset()), prompt, steps_of(steps), 128) == expected
        ends = frozenset(expected[70:72])  # the sampler finishes the block that has one of them
        expected = sample_bd3lm(reference, prompt, mask, 128, BLOCK, steps, ends)
        assert generated(replace(model, stop_tokens=ends), prompt, steps_of(steps), 128) == trimmed(expected, ends)


def test_blocks_have_up_to_256_tokens(tmp_path: Path, tiny_tokenizer: Tokenizer, whole_blocks: None) -> None:
    """In 64 steps: eight for each 32 tokens."""
    settings = {"max_position_embeddings": 1024, "block_size": 256}
    ours, theirs = save_export(tmp_path, tiny_tokenizer, "bd3lm", "qwen3", **settings)
    model, reference = load_model(ours, device="cpu", precision="float32"), ReferenceModel(theirs)
    expected = sample_bd3lm(reference, PROMPTS[1], model.decoder.mask_token, 256, 256, 64, frozenset())
    assert generated(replace(model, stop_tokens=frozenset()), PROMPTS[1], steps_of(8), 256) == expected
    config = json.loads((ours / "config.json").read_text())
    (ours / "config.json").write_text(json.dumps(config | {"block_size": 257}))
    with pytest.raises(BadModelFile, match="the blocks of this checkpoint have 257 tokens, and must have 1 to 256"):
        open_checkpoint(ours)


async def test_mdlm_denoises_the_block_size_that_is_asked_for(
    tmp_path: Path, tiny_tokenizer: Tokenizer, whole_blocks: None
) -> None:
    ours, theirs = save_export(tmp_path, tiny_tokenizer, "mdlm", "qwen3", max_position_embeddings=1024)
    reference, schedule = ReferenceModel(theirs), replace(steps_of(1), block_size=256)
    engine = Engine(lambda: endless(ours), denoising_schedule=replace(schedule, bound=0.0))
    try:
        model = engine.model
        progress = await collect_progress(Conversation(engine), HELLO, max_tokens=256)
        ids, mask = model.template.encode([HELLO]), model.decoder.mask_token
        expected = sample_mdlm(reference, ids, mask, 256, 256, 1)
        detokenizer = model.tokenizer.detokenizer()
        assert committed_text(progress) == "".join(detokenizer(token) for token in expected)
        assert progress[-1].step == 1
    finally:
        engine.close()


@pytest.mark.parametrize("kind", ["mdlm", "bd3lm"])
async def test_effort_sets_the_steps_and_nothing_is_masked_again(
    tmp_path: Path, tiny_tokenizer: Tokenizer, kind: str, whole_blocks: None
) -> None:
    """High effort masks improbable tokens again in families that were trained for it. Here all are improbable."""
    ours, _ = save_export(tmp_path, tiny_tokenizer, kind, "qwen3")
    engine = Engine(lambda: endless(ours))
    try:
        steps = {}
        for effort in EFFORTS:
            progress = await collect_progress(Conversation(engine), HELLO, max_tokens=64, effort=effort)
            steps[effort] = progress[-1].step
            masks = [one.draft_masked[::-1] for one in progress if one.draft_masked]
            assert all(one.denoised.count(MASK_CHARACTER) == sum(one.draft_masked) for one in progress)
            for before, after in pairwise(masks):
                if sum(after) < sum(before):  # the same block, of which some tokens may have been committed
                    assert all(was or not masked for was, masked in zip(before, after, strict=False))
        assert steps == {effort: 2 * schedule.max_steps for effort, schedule in EFFORTS.items()}
    finally:
        engine.close()


@pytest.mark.parametrize("backbone", ["qwen2", "qwen3"])
def test_mdlm_generates_what_its_sampler_generates(
    tmp_path: Path, tiny_tokenizer: Tokenizer, backbone: str, whole_blocks: None
) -> None:
    """With a step for each block. In later steps of a block, the keys of the text before it are those of the first one,
    as in the other families whose text attends to what follows (`tests/model/decode/test_decoding.py`)."""
    ours, theirs = save_export(tmp_path, tiny_tokenizer, "mdlm", backbone)
    model, reference = load_model(ours, device="cpu", precision="float32"), ReferenceModel(theirs)
    mask = model.decoder.mask_token
    for prompt in PROMPTS:
        expected = sample_mdlm(reference, prompt, mask, 128, BLOCK, 1)
        for ends in (frozenset[int](), frozenset(expected[70:72])):
            assert generated(replace(model, stop_tokens=ends), prompt, steps_of(1), 128) == trimmed(expected, ends)


async def test_every_turn_of_a_conversation_is_what_the_sampler_generates(
    tmp_path: Path, tiny_tokenizer: Tokenizer, whole_blocks: None
) -> None:
    """Blocks are counted from the end of the prompt, so what was read for one turn is no use for the next."""
    ours, theirs = save_export(tmp_path, tiny_tokenizer, "bd3lm", "qwen3")
    reference = ReferenceModel(theirs)
    engine = Engine(lambda: load_model(ours, device="cpu", precision="float32"), denoising_schedule=steps_of(8))
    try:
        model, conversation = engine.model, Conversation(engine)
        messages = [Message("system", "the capital of France is Paris")]
        for words in ("hello", "hello to you", "the capital"):
            messages.append(Message("user", words))
            conversation.prepare(Ask(messages))
            progress = await collect_progress(conversation, *messages, max_tokens=64)
            ids = model.template.encode(messages)
            mask = model.decoder.mask_token
            expected = trimmed(sample_bd3lm(reference, ids, mask, 64, BLOCK, 8, model.stop_tokens), model.stop_tokens)
            detokenizer = model.tokenizer.detokenizer()
            text = "".join(detokenizer(token) for token in expected)
            assert committed_text(progress) == text
            messages.append(Message("assistant", text))
    finally:
        engine.close()


def test_a_response_ends_at_the_end_of_a_turn_and_at_the_base_models_own_end(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    ours, _ = save_export(tmp_path, tiny_tokenizer, "mdlm", "qwen2")
    model = load_model(ours, device="cpu", precision="float32")
    assert model.stop_tokens == {model.tokenizer.token_id(name) for name in ("<|im_end|>", "<|endoftext|>")}


def test_the_name_or_the_request_says_how_an_export_denoises(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    ours, _ = save_export(tmp_path, tiny_tokenizer, "bd3lm", "qwen2")
    assert open_checkpoint(ours).config.family == "bd3lm"
    nameless = ours.rename(tmp_path / "3f1c9a77")
    with pytest.raises(BadModelFile, match="nor its name says how it denoises: add --family mdlm or --family bd3lm"):
        open_checkpoint(nameless)
    for name in ("mdlm", "bd3lm"):
        config = open_checkpoint(nameless, name).config
        assert (config.family, config.backbone) == (name, "qwen2")
    with pytest.raises(BadModelFile, match="which cannot be computed as sdar"):
        open_checkpoint(nameless, "sdar")


def test_the_mask_of_published_exports_is_known_without_a_tokenizer_that_names_it(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    """`<|mask|>` follows the last token of Qwen2.5's and of Qwen3's tokenizer, to which dLLM adds it when it loads
    them."""
    for backbone, token in (("qwen2", 151665), ("qwen3", 151669)):
        ours, _ = save_export(tmp_path / backbone, tiny_tokenizer, "mdlm", backbone)
        (ours / "tokenizer_config.json").unlink()
        diffusion = open_checkpoint(ours).config.diffusion
        assert diffusion is not None and diffusion.mask_token == token

"""Every diffusion family, in its published layout, generates what a slow reference generates."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from chat.progress import Progress
from chat.types import Ask, Message
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.tokenizer import TextTokenizer
from model.decode import decoding
from model.decode.diffusion import DiffusionDecoder, prefill_length
from model.decode.effort import DenoisingSchedule
from model.decode.output import GenerationOutput
from model.decode.sampling import Sampler
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import load_model
from model.nn.decoder import Decoder
from model.nn.forward_batch import MASK, ForwardInput, prefill
from tests.model.tiny_families import (
    FAMILY_CONFIGS,
    ReferenceModel,
    add_mask_token,
    reference_denoise,
    reference_mask,
    save_tiny_family,
)

CPU = torch.device("cpu")
PROMPT = [3, 99, 7, 250, 41, 41, 0, 12, 200, 5, 61, 8, 9]
CLOSING = {11, 12, 31}


class RecordingOutput(GenerationOutput):
    """An output that records its progress and never ends before its budget."""

    def __init__(self, tokenizer: Tokenizer, budget: int) -> None:
        self.progress: list[Progress] = []
        super().__init__(TextTokenizer(tokenizer), frozenset(), budget, 0, 0, self.progress.append)

    def ends_clause(self, token: int) -> bool:
        return token in CLOSING


@pytest.fixture(scope="module", params=sorted(FAMILY_CONFIGS))
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer
) -> tuple[Decoder, ReferenceModel, Tokenizer]:
    """A decoder of each family, transformers' model with the same weights, and the tokenizer."""
    ours, theirs = save_tiny_family(tmp_path_factory.mktemp(request.param), tiny_tokenizer, request.param)
    return Decoder(open_checkpoint(ours), CPU, "float32"), ReferenceModel(theirs), add_mask_token(tiny_tokenizer)


def generate(
    decoder: Decoder, tokenizer: Tokenizer, schedule: DenoisingSchedule, count: int, ids: list[int]
) -> RecordingOutput:
    """Generate `count` tokens after `ids` with a `DiffusionDecoder`."""
    config = decoder.config.diffusion
    assert config is not None
    config = replace(config, canvas=min(config.canvas, 40), block_size=min(config.block_size, 8))
    cache, output = decoder.new_cache(), RecordingOutput(tokenizer, count)
    start = prefill_length(config, ids)
    for chunk in prefill(cache, ids[:start], config.text_attention, config.block_size):
        decoder.run([chunk])
    diffusion = DiffusionDecoder(cache, ids, config, schedule, Sampler(), output, decoder.config.context_length)
    steps = decoding.generate(diffusion, output)
    forward_input = next(steps)
    try:
        while True:
            forward_input = steps.send(decoder.run([forward_input])[0])
    except StopIteration:
        return output


@pytest.mark.parametrize("prompt_length", [1, 8, 13, 16])
@pytest.mark.parametrize(
    "schedule",
    [
        DenoisingSchedule(bound=0.0, max_steps=1),
        DenoisingSchedule(bound=0.02, max_steps=3),
        DenoisingSchedule(bound=2.0, max_steps=8),
        DenoisingSchedule("factor", 4.5, 8),
        DenoisingSchedule("entropy", 11.0, 8),
        DenoisingSchedule(bound=0.02, max_steps=8, remask=0.01),
        DenoisingSchedule(bound=0.01, max_steps=4, edit=0.01),
        DenoisingSchedule("entropy", 6.0, 8, remask=0.005, edit=0.02),
    ],
)
def test_blocks_are_denoised_like_the_reference(
    family: tuple[Decoder, ReferenceModel, Tokenizer], prompt_length: int, schedule: DenoisingSchedule
) -> None:
    decoder, reference, tokenizer = family
    config = decoder.config.diffusion
    assert config is not None
    config = replace(config, canvas=min(config.canvas, 40), block_size=min(config.block_size, 8))
    ids = (PROMPT * 2)[:prompt_length]
    # The reference gives every block all its steps; the estimate of how many it needs has its own test.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("model.decode.effort.steps_needed", lambda *_: schedule.max_steps - 1)
        ours = generate(decoder, tokenizer, schedule, 20, ids)
    assert ours.tokens == reference_denoise(reference, ids, config, schedule, 20, CLOSING)
    assert ours.progress[-1].finished == "length"


def test_several_blocks_in_flight_fill_every_block(family: tuple[Decoder, ReferenceModel, Tokenizer]) -> None:
    decoder, _, tokenizer = family
    output = generate(decoder, tokenizer, DenoisingSchedule("threshold", 0.05, 6, in_flight=3), 24, PROMPT)
    assert len(output.tokens) == 24
    assert decoder.mask_token not in output.tokens
    assert len(output.progress) <= 24 * 8


def test_a_denoising_step_uses_the_attention_mask_of_the_family(
    family: tuple[Decoder, ReferenceModel, Tokenizer],
) -> None:
    """Logits of text followed by two blocks of masks, against transformers with a mask computed pair by pair."""
    decoder, reference, _ = family
    config = decoder.config.diffusion
    assert config is not None
    text = PROMPT[:12] if config.text_attention != "block" else (PROMPT * 2)[: config.block_size]
    tokens = [*text, *[MASK] * 2 * config.block_size]
    mask = reference_mask(config, len(text), (config.block_size, config.block_size))
    positions, use_adapter = range(len(tokens)), [False] * len(tokens)
    (ours,) = decoder.run([ForwardInput(decoder.new_cache(), tokens, positions, mask, use_adapter, 9)])
    theirs, _ = reference.logits([config.mask_token if token == MASK else token for token in tokens], mask)
    theirs[:, config.mask_token] = -torch.inf
    torch.testing.assert_close(ours, theirs[-9:], atol=1e-4, rtol=1e-4)


async def reply(engine: Engine, text: str, budget: int = 24) -> list[Progress]:
    conversation = Conversation(engine)
    messages = [Message("user", text)]
    return [progress async for progress in conversation.reply(Ask(messages, max_tokens=budget, effort="low"))]


def test_an_engine_responds_with_each_family(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    for name in FAMILY_CONFIGS:
        (tmp_path / name).mkdir()
        ours, _ = save_tiny_family(tmp_path / name, tiny_tokenizer, name)
        engine = Engine(lambda ours=ours: load_model(ours, device="cpu", precision="float32"))  # type: ignore[misc]
        try:
            first = asyncio.run(reply(engine, "hello to you"))
            assert first[-1].finished
            assert asyncio.run(reply(engine, "hello to you"))[-1].tokens == first[-1].tokens
        finally:
            engine.close()


@pytest.mark.parametrize("name", ["i-dlm", "nemotron-labs-diffusion"])
def test_speculative_decoding_gives_the_same_text_as_autoregressive_decoding(
    tmp_path: Path, tiny_tokenizer: Tokenizer, name: str
) -> None:
    ours, theirs = save_tiny_family(tmp_path, tiny_tokenizer, name)
    reference = ReferenceModel(theirs)
    engine = Engine(lambda: load_model(ours, device="cpu", precision="float32"))
    try:
        model = engine.model
        ids = model.template.encode([Message("user", "the capital of France")])
        expected: list[int] = []
        mask = model.decoder.mask_token
        while len(expected) < 24 and (not expected or expected[-1] not in model.stop_tokens):
            tokens = ids + expected
            logits, _ = reference.logits(tokens, torch.ones(len(tokens), len(tokens)).tril().bool())
            logits[:, mask] = -torch.inf
            expected.append(int(logits[-1].argmax()))
        progress = asyncio.run(reply(engine, "the capital of France"))
        assert progress[-1].tokens == len(expected)
        detokenizer = model.tokenizer.detokenizer()
        text = "".join(detokenizer(token) for token in expected if token not in model.stop_tokens)
        assert "".join(p.committed for p in progress) == text
        if name == "nemotron-labs-diffusion":
            assert any(p.draft for p in progress)
    finally:
        engine.close()


def test_speculative_decoding_is_refused_for_a_family_that_cannot_verify(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    ours, _ = save_tiny_family(tmp_path, tiny_tokenizer, "sdar")
    with pytest.raises(ValueError, match=r"a sdar model cannot verify its own drafts: choose the decoding `blocks`"):
        Engine(lambda: load_model(ours, device="cpu", precision="float32"), decoding="verified")


def test_a_mask_token_is_never_generated(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    ours, _ = save_tiny_family(tmp_path, tiny_tokenizer, "dream")
    decoder = Decoder(open_checkpoint(ours), CPU, "float32")
    logits = decoder.forward(PROMPT, decoder.new_cache(), logits="all")
    assert (logits[:, decoder.mask_token] == -torch.inf).all()

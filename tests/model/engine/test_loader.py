"""Loading a model: onto which device and in which precision, and which kernels are imported for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from chat.types import Message
from model.checkpoint.checkpoint import open_checkpoint
from model.engine.bundled import weights_checksum, weights_size
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import Drafts, load_model
from model.nn.batch_drafter import BatchDrafter
from model.nn.decoder import Precision
from tests.model.dialogues import collect_progress, committed_text
from tests.model.nn.pretended_gpus import pretend_gpus
from tests.model.random_draft_head import random_block_drafter, random_draft_head
from tests.model.tiny_families import save_tiny_family


@pytest.mark.parametrize(
    ("capability", "amd", "precision"),
    [((8, 0), False, "bfloat16"), ((7, 5), False, "float32"), ((9, 4), True, "bfloat16")],
)
def test_cudnns_attention_is_off_before_a_model_is_loaded_onto_a_gpu_in_a_precision_that_it_has(
    tiny_qwen2: Path, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], amd: bool, precision: Precision
) -> None:
    pretend_gpus(monkeypatch, capability, amd=amd)

    class Reached(Exception):
        pass

    def load(checkpoint: object, device: torch.device, chosen: Precision, *_: object) -> None:
        assert device == torch.device("cuda", 0) and chosen == precision
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        raise Reached

    monkeypatch.setattr("model.engine.loader.Decoder", load)
    monkeypatch.setattr("model.engine.loader.gpu_operations", lambda device: None)
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        with pytest.raises(Reached):
            load_model(tiny_qwen2, device="cuda")
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def test_a_model_is_not_loaded_onto_a_device_that_does_not_exist(tiny_qwen2: Path) -> None:
    with pytest.raises(ValueError, match="choose auto, cpu, cuda"):
        load_model(tiny_qwen2, device="toaster")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            load_model(tiny_qwen2, device="cuda")


def test_a_draft_head_is_loaded_for_weights_of_any_precision(tiny_qwen2: Path, tmp_path: Path) -> None:
    config, file = open_checkpoint(tiny_qwen2).config, tmp_path / "head.safetensors"
    checksum = weights_checksum(tiny_qwen2)
    random_draft_head(3 * config.hidden, config.hidden, config.vocab_size, 1, checksum).save(file)
    model = load_model(tiny_qwen2, device="cpu", precision="int8", adapter=file)
    assert model.draft_head is not None and model.adapter is None
    assert load_model(tiny_qwen2, device="cpu", precision="int8", adapter="none").draft_head is None
    assert isinstance(load_model(tiny_qwen2, device="cpu", precision="float32", adapter=file).draft_head, BatchDrafter)


def test_a_bundled_block_drafter_is_the_default(
    tiny_qwen2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, checksum = open_checkpoint(tiny_qwen2).config, weights_checksum(tiny_qwen2)
    head = random_draft_head(3 * config.hidden, config.hidden, config.vocab_size, 1, checksum, size=256)
    head = replace(head, metadata={"base_bytes": str(weights_size(tiny_qwen2))})
    monkeypatch.setattr("model.engine.loader.BUNDLED_DRAFT_HEADS", tmp_path)

    def origin(drafts: Drafts, precision: Precision = "int8") -> str | None:
        made = load_model(tiny_qwen2, device="cpu", precision=precision, drafts=drafts).draft_head
        return None if made is None else made.origin

    with pytest.raises(ValueError, match="no draft head for this model here: choose --drafts none, or train one"):
        origin("recurrent")
    head.save(tmp_path / "head.safetensors")
    assert origin("auto") == origin("recurrent") == "recurrent"
    with pytest.raises(ValueError, match=r"no block drafter .* choose --drafts recurrent or none, or train"):
        origin("diffusion")
    random_block_drafter(head).save(tmp_path / "head.safetensors")
    assert [origin(drafts) for drafts in ("auto", "diffusion", "recurrent")] == ["diffusion", "diffusion", "recurrent"]
    with pytest.raises(ValueError, match=r"no adapter .* choose --drafts diffusion or recurrent or none,"):
        origin("masked")
    assert [origin(drafts, "float32") for drafts in ("auto", "recurrent")] == ["diffusion", "recurrent"]


@pytest.mark.parametrize("family", ["i-dlm", "nemotron-labs-diffusion"])
async def test_a_diffusion_model_can_generate_one_token_at_a_time(
    tmp_path: Path, tiny_tokenizer: Tokenizer, family: str
) -> None:
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, family)

    async def generated(drafts: Drafts) -> tuple[str, bool]:
        engine = Engine(lambda: load_model(folder, device="cpu", precision="float32", drafts=drafts))
        try:
            progress = await collect_progress(Conversation(engine), Message("user", "hello"), max_tokens=12)
            return committed_text(progress), engine.drafting().linear or engine.model.max_drafts > 0
        finally:
            engine.close()

    (text, drafts), (drafted_text, usually_drafts) = await generated("none"), await generated("auto")
    assert text == drafted_text and usually_drafts and not drafts

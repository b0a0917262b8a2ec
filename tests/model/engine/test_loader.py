"""Loading a model: which device a name stands for, and which kernels are imported for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.cuda._utils import _get_device_index

from model.checkpoint.checkpoint import open_checkpoint
from model.engine.bundled import weights_checksum, weights_size
from model.engine.loader import Drafts, find_device, load_model
from model.nn.batch_drafter import BatchDrafter
from model.nn.decoder import Precision
from tests.model.random_draft_head import random_block_drafter, random_draft_head


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two CUDA devices, as far as torch says."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("name", "index"), [("auto", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_a_cuda_device_can_be_made_the_current_one(name: str, index: int) -> None:
    """`torch.cuda.set_device` takes its index this way and refuses a device that has none."""
    assert _get_device_index(find_device(name)) == index


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("name", ["cuda:2", "cuda:x", "meta", "nonsense"])
def test_a_device_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"choose|on this machine"):
        find_device(name)


@pytest.mark.usefixtures("two_gpus")
def test_cudnns_attention_is_off_before_a_model_is_loaded_onto_a_gpu(
    tiny_qwen2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reached(Exception):
        pass

    def load(*_: object) -> None:
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        raise Reached

    monkeypatch.setattr("model.engine.loader.Decoder", load)
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        with pytest.raises(Reached):
            load_model(tiny_qwen2, device="cuda")
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def test_the_cpu_is_the_default_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")
    with pytest.raises(ValueError, match="no CUDA device"):
        find_device("cuda")


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

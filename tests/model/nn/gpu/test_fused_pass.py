"""Steps with the kernels commit the text of steps in plain PyTorch, for every backbone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from model.checkpoint.checkpoint import open_checkpoint
from model.decode.draft import Draft
from model.engine.cuda_graph import CUDAGraphRunner, slot_capacity
from model.nn.adapter import random_adapter
from model.nn.decoder import Decoder
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.operations import Operations
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.kv_slab import KeyValueSlab
from tests.conftest import save_tiny_checkpoint
from tests.model.dialogues import with_doubled_weights
from tests.model.tiny_families import save_tiny_family

CPU = torch.device("cpu")


def _text(decoder: Decoder, operations: Operations | None, past: int, steps: int, *, drafts: int = 2) -> list[int]:
    """What the steps of a conversation commit after `past` tokens."""
    adapter = random_adapter(decoder.config, 4, drafts, seed=1)
    slab = KeyValueSlab(decoder.config, decoder.dtype, CPU, 1, slot_capacity(300, drafts, 2))
    runner = CUDAGraphRunner(decoder, adapter, drafts, slab, 2, operations)
    assert isinstance(runner._pass, FusedPass) == (operations is not None)
    cache = slab.new_cache()
    prompt = torch.randint(1, 290, (past,), generator=torch.Generator().manual_seed(2)).tolist()
    decoder.forward(prompt, cache, logits="none")
    attachment = runner.attach(cache, 40, Draft((7, 9)[:drafts]))
    assert attachment is not None
    text = [40]
    for _ in range(steps):
        ((_, result),) = runner.step([attachment])
        committed = result.committed
        cache.commit([text[-1], *committed[:-1]])
        text += committed
    return text


@pytest.mark.slow
def test_the_kernels_commit_the_text_of_plain_pytorch(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    """A whole tiny model in Triton's interpreter, across the border between two parts of the attention. Two layers: the
    interpreter takes a second for each."""
    pytest.importorskip("triton", "3.9", "Triton before 3.9 does not work with numpy 2.4: pip install -U triton")
    from model.nn.gpu.triton_operations import TritonOperations

    folder = save_tiny_checkpoint(tmp_path / "tiny", tiny_tokenizer, "qwen2", num_hidden_layers=2)
    decoder = Decoder(open_checkpoint(with_doubled_weights(folder, tmp_path / "doubled")), CPU, "float32")
    assert _text(decoder, TritonOperations(CPU), 250, 2) == _text(decoder, None, 250, 2)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
        ("qwen3", {}),
        ("ministral3", {}),
        ("qwen2", {"tie_word_embeddings": True}),
    ],
)
def test_every_backbone_is_computed_as_the_decoder_does(
    tmp_path: Path, tiny_tokenizer: Tokenizer, family: str, settings: dict[str, object]
) -> None:
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, family, **settings)
    decoder = Decoder(open_checkpoint(folder), CPU, "float32")
    assert _text(decoder, TorchOperations(), 30, 12) == _text(decoder, None, 30, 12)


def test_a_mask_token_is_never_predicted(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder, _ = save_tiny_family(tmp_path, tiny_tokenizer, "i-dlm")
    decoder = Decoder(open_checkpoint(folder), CPU, "float32")
    assert decoder.mask_token is not None
    decoder.head_weight[decoder.mask_token] = 100 * decoder.norm
    text = _text(decoder, TorchOperations(), 30, 12)
    assert decoder.mask_token not in text and text == _text(decoder, None, 30, 12)


def test_int8_weights_are_rejected(tiny_qwen2: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, "int8")
    with pytest.raises(ValueError, match="load them as bfloat16 or float32"):
        _text(decoder, TorchOperations(), 30, 1)

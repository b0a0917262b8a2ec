"""LoRA adapters in PEFT's layout: they draft, and they do not change the text."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from chat.progress import Progress
from chat.types import Ask, Message
from model.checkpoint.gguf import BadModelFile
from model.decode.verify import VerificationStep
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import load_model
from model.nn.adapter import Adapter, projection_shapes
from model.nn.decoder import Decoder, Precision
from model.nn.peft import load_lora_adapter
from tests.model.tiny_families import (
    save_tiny_family,
)


async def reply(engine: Engine, text: str, budget: int = 24) -> list[Progress]:
    conversation = Conversation(engine)
    messages = [Message("user", text)]
    return [progress async for progress in conversation.reply(Ask(messages, max_tokens=budget, effort="low"))]


def save_lora(folder: Path, model: Decoder, targets: tuple[str, ...] = ("o",)) -> dict[str, torch.Tensor]:
    """Save a random adapter in PEFT's layout; return what it adds to each weight, by our names."""
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
def test_nemotrons_own_adapter_drafts_without_changing_the_text(
    tmp_path: Path, tiny_tokenizer: Tokenizer, targets: tuple[str, ...], precision: Precision
) -> None:
    """Its drafting step computes the same as weights with the adapter merged in; the text is the base model's."""
    ours, _ = save_tiny_family(tmp_path, tiny_tokenizer, "nemotron-labs-diffusion")
    bare = load_model(ours, device="cpu", precision=precision)
    added = save_lora(ours / "linear_spec_lora", bare.decoder, targets)
    merged = shutil.copytree(ours, tmp_path / "merged", ignore=shutil.ignore_patterns("linear_spec_lora"))
    weights = load_file(merged / "model.safetensors")
    save_file({name: value + added.get(name, 0) for name, value in weights.items()}, merged / "model.safetensors")
    model = load_model(ours, device="cpu", precision=precision)
    assert model.adapter is not None
    drafting = VerificationStep(9, num_drafts=7, linear=True)

    def logits(decoder: Decoder, adapter: Adapter | None) -> torch.Tensor:
        return decoder.run([drafting.forward_input(decoder.new_cache())], adapter)[0].nan_to_num(neginf=0)

    expected = logits(load_model(merged, device="cpu", precision=precision).decoder, None)
    difference = (logits(bare.decoder, None) - expected).abs().mean()
    assert (logits(model.decoder, model.adapter) - expected).abs().mean() < (
        0.3 if precision == "int8" else 0.01
    ) * difference  # merged weights are rounded again
    texts = []
    for loaded in (bare, model):
        engine = Engine(lambda loaded=loaded: loaded)  # type: ignore[misc]
        try:
            texts.append("".join(p.committed for p in asyncio.run(reply(engine, "the capital of France"))))
        finally:
            engine.close()
    assert texts[0] == texts[1]


def test_an_adapter_that_is_not_plain_lora_for_this_model_is_rejected(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    ours, _ = save_tiny_family(tmp_path, tiny_tokenizer, "nemotron-labs-diffusion")
    model = load_model(ours, device="cpu", precision="float32")
    mask = torch.zeros(model.decoder.config.hidden)
    folder = tmp_path / "linear_spec_lora"
    save_lora(folder, model.decoder)
    for settings, message in (
        ({"r": 4, "lora_alpha": 8, "use_dora": True}, "not a plain LoRA"),
        ({"r": 4, "lora_alpha": 8, "target_modules": ["o_proj", "q_proj"]}, r"lacks \(0, 'q', 'A'\)"),
        ({"r": 0, "lora_alpha": 8}, "cannot be read"),
    ):
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        with pytest.raises(BadModelFile, match=message):
            load_lora_adapter(folder, model.decoder.config, mask)
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_lora_adapter(tmp_path / "none", model.decoder.config, mask)

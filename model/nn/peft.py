"""Low-rank adapters in PEFT's layout: `adapter_config.json`, and `adapter_model.safetensors` with `….lora_A.weight`
[r, in] and `….lora_B.weight` [out, r]. Nemotron-Labs-Diffusion ships one for its drafting steps.

Source: LoRA (arXiv 2106.09685). The layout is taken from a port of these models to MLX.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile
from model.nn.adapter import Adapter, LowRank, projection_shapes

LINEAR_SPEC_FOLDER = "linear_spec_lora"
"""Folder of the drafting adapter in a Nemotron-Labs-Diffusion checkpoint."""

_KEY = re.compile(r"(?:^|\.)layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)_proj\.lora_([AB])\.weight")


def load_lora_adapter(folder: Path, config: DecoderConfig, mask: Tensor) -> Adapter:
    """Load an adapter. Projections that it does not target get a delta of zero.

    Args:
        config: the model's shape.
        mask: [hidden], the model's own embedding of a masked position.

    Raises:
        BadModelFile: missing, damaged, not a plain LoRA, or made for another shape.
    """
    try:
        settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "adapter_model.safetensors")
        rank = int(settings["r"])
        scale = float(settings["lora_alpha"]) / rank
        targets = {str(name).removesuffix("_proj") for name in settings.get("target_modules") or ("o_proj",)}
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise BadModelFile(f"the adapter in {folder} cannot be read ({error}): download it again") from None
    shapes = projection_shapes(config)
    if settings.get("use_dora") or settings.get("use_rslora") or not targets <= set(shapes):
        raise BadModelFile(
            f"the adapter in {folder} is not a plain LoRA of a layer's projections, which is the only supported kind: "
            "run without an adapter"
        )
    matrices: dict[tuple[int, str, str], Tensor] = {}
    for key, value in tensors.items():
        match = _KEY.search(key)
        if match is None:
            raise BadModelFile(
                f"the adapter in {folder} contains {key}, which is not supported: run without an adapter"
            )
        matrices[int(match[1]), match[2], match[3]] = value.float()

    def low_rank(layer: int, name: str) -> LowRank:
        rows, columns = shapes[name]
        if name not in targets:
            return LowRank(torch.zeros(rank, columns), torch.zeros(rows, rank))
        a, b = matrices[layer, name, "A"], matrices[layer, name, "B"] * scale
        if (b.shape[0], a.shape[1]) != (rows, columns) or not a.shape[0] == b.shape[1] == rank:
            raise BadModelFile(f"the adapter in {folder} has a different shape than the model")
        return LowRank(a, b)

    try:
        layers = tuple({name: low_rank(number, name) for name in shapes} for number in range(config.layers))
    except KeyError as error:
        raise BadModelFile(f"the adapter in {folder} lacks {error}: download it again") from None
    diffusion = config.diffusion
    return Adapter(mask.float(), layers, "", 0 if diffusion is None else diffusion.block_size - 1, {})

"""Low-rank adapters in PEFT's layout, as Nemotron-Labs-Diffusion brings one for its drafting passes in the folder
`linear_spec_lora`: `adapter_config.json` beside `adapter_model.safetensors` with `….lora_A.weight` [r, in] and
`….lora_B.weight` [out, r]. Source: LoRA (arXiv 2106.09685); the layout is read from a port of these models to MLX.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from model.adapter import Adapter, LowRank, projection_shapes
from model.gguf_file import BadModelFile
from model.weights import DecoderConfig

LINEAR_SPEC = "linear_spec_lora"
"""The folder beside a checkpoint's weights."""

_KEY = re.compile(r"(?:^|\.)layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)_proj\.lora_([AB])\.weight")


def load_lora(folder: Path, config: DecoderConfig, mask: Tensor) -> Adapter:
    """Open one. Projections that it leaves alone get a change that is zero.

    Args:
        config: the model's shape.
        mask: [hidden], what the model itself has a masked position enter with.

    Raises:
        BadModelFile: missing, damaged, of another kind than plain LoRA, or made for another shape.
    """
    try:
        said = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        stored = load_file(folder / "adapter_model.safetensors")
        rank = int(said["r"])
        scale = float(said["lora_alpha"]) / rank
        targets = {str(name).removesuffix("_proj") for name in said.get("target_modules") or ("o_proj",)}
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise BadModelFile(f"the adapter in {folder} cannot be read ({error}): fetch it again") from None
    shapes = projection_shapes(config)
    if said.get("use_dora") or said.get("use_rslora") or not targets <= set(shapes):
        raise BadModelFile(f"the adapter in {folder} is no plain LoRA of a layer's projections: run without an adapter")
    found: dict[tuple[int, str, str], Tensor] = {}
    for key, value in stored.items():
        match = _KEY.search(key)
        if match is None:
            raise BadModelFile(f"the adapter in {folder} holds {key}, which is not computed: run without an adapter")
        found[int(match[1]), match[2], match[3]] = value.float()

    def change(layer: int, name: str) -> LowRank:
        rows, columns = shapes[name]
        if name not in targets:
            return LowRank(torch.zeros(rank, columns), torch.zeros(rows, rank))
        a, b = found[layer, name, "A"], found[layer, name, "B"] * scale
        if (b.shape[0], a.shape[1]) != (rows, columns) or not a.shape[0] == b.shape[1] == rank:
            raise BadModelFile(f"the adapter in {folder} has another shape than the model")
        return LowRank(a, b)

    try:
        layers = tuple({name: change(number, name) for name in shapes} for number in range(config.layers))
    except KeyError as error:
        raise BadModelFile(f"the adapter in {folder} lacks {error}: fetch it again") from None
    how = config.denoising
    return Adapter(mask.float(), layers, "", 0 if how is None else how.block - 1, {})

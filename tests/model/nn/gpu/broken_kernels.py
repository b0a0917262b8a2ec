"""Kernels with one mistake each, as a compiler or a programmer may make it, and a small model whose step runs them."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch

from lab.benchmarks.gpu_acceptance.random_models import TINY, RandomCheckpoint
from model.decode.verify import verification_mask
from model.nn.adapter import random_adapter
from model.nn.cpu.block_formats import FORMATS
from model.nn.decoder import Decoder
from model.nn.gpu import (
    attention_kernel,
    block_kernels,
    drafter_kernels,
    kernels,
    tiling,
    triton_drafter,
    triton_operations,
)
from model.nn.gpu.block_matrix import BlockMatrix, BlockWeight
from model.nn.gpu.operations import Operations
from model.nn.gpu.selection import select_pass
from model.nn.gpu.stored_weights import StoredHead, StoredLinear
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.gpu.triton_operations import TritonOperations
from model.nn.step_pass import StepPass, StepShape
from tests.model.nn.cpu.random_blocks import random_blocks

CPU = torch.device("cpu")

ROUNDED_SHARES = "_rounded(shares, value.dtype, PRECISE)"
PARTS = "part_total * share[:, None]"

MISTAKES = {
    "probabilities are truncated": ("attend", attention_kernel, ROUNDED_SHARES, "shares.to(value.dtype)"),
    "another head's keys": (
        "attend",
        attention_kernel,
        "own = (slot * KV_HEADS + kv_head)",
        "own = (slot * KV_HEADS + KV_HEADS - 1 - kv_head)",
    ),
    "a row attends to one position too many": (
        "attend",
        attention_kernel,
        "attended = (n < past)[None, :]",
        "attended = (n < past + 2)[None, :]",
    ),
    "the mask is transposed": (
        "attend",
        attention_kernel,
        "r[:, None] * rows + other[None, :]",
        "other[None, :] * rows + r[:, None]",
    ),
    "the last tile of keys is left out": (
        "attend",
        attention_kernel,
        "range(whole, stop, KEYS, num",
        "range(whole, stop - KEYS, KEYS, num",
    ),
    "the first tile of keys is left out": (
        "attend",
        attention_kernel,
        "range(begin, whole, KEYS)",
        "range(begin + KEYS, whole, KEYS)",
    ),
    "scores are one percent too large": (
        "attend",
        attention_kernel,
        "scores, PRECISE) * scale\n",
        "scores, PRECISE) * scale * 1.01\n",
    ),
    "half of each head is left out of the scores": (
        "attend",
        attention_kernel,
        "tl.trans(second), scores, PRECISE)",
        "tl.trans(second), scores, PRECISE) * 0 + scores",
    ),
    "queries of a group are mixed up": (
        "attend",
        attention_kernel,
        "place = out + (row * HEADS + head)",
        "place = out + (row * HEADS + HEADS - 1 - head)",
    ),
    "parts of the attention are not weighted": ("attend", attention_kernel, PARTS, "part_total"),
    "the rotation goes backwards": ("attend", attention_kernel, "rotated += second * ", "rotated -= second * "),
    "keys are written one position late": (
        "attend",
        attention_kernel,
        "tl.store(keys + place, new_first",
        "tl.store(keys + HEAD_DIM + place, new_first",
    ),
    "values are not written": (
        "attend",
        attention_kernel,
        "tl.store(values + wide_place, new_value, mask=wide_mask)",
        "tl.store(values + wide_place, new_value, mask=wide_mask & (n < 0)[:, None])",
    ),
    "rows are rotated to their places instead of their positions": (
        "attend",
        attention_kernel,
        "position = tl.load(positions + row, mask=own, other=0)",
        "position = n",
    ),
    "the step's own keys are those of another row": (
        "attend",
        attention_kernel,
        "row = _row_of_step(r, rows, clean, tl.program_id(2)",
        "row = _row_of_step(rows - 1 - r, rows, clean, tl.program_id(2)",
    ),
    "the norm's weight is left out": (
        "project",
        kernels,
        "weighted = values * tl.load(norm",
        "weighted = values + 0 * tl.load(norm",
    ),
    "clean rows get the adapter": ("project", kernels, "m[:, None] >= first_draft, delta", "m[:, None] >= 0, delta"),
    "the bias is left out": (
        "project",
        kernels,
        "    if BIAS:\n        total += ",
        "    if BIAS:\n        total += 0 * ",
    ),
    "a part of the depth is left out": (
        "project",
        kernels,
        "for other in range(SPLITS):",
        "for other in range(SPLITS - 1):",
    ),
    "results are truncated": (
        "project",
        kernels,
        "_rounded(total, out.dtype.element_ty, PRECISE)",
        "total.to(out.dtype.element_ty)",
    ),
    "the gate's sign is wrong": ("gate_up", kernels, "tl.exp(-gate)", "tl.exp(gate)"),
    "the last tile of tokens is left out": (
        "predict",
        kernels,
        "inside = tile < tiles\n",
        "inside = tile < tiles - 1\n",
    ),
    "tokens are counted within a tile": ("predict", kernels, "tile * COLUMNS + tl.argmax", "tl.argmax"),
    "the adapter's groups are mixed up": ("project", block_kernels, "own_a = a + group * rank * depth", "own_a = a"),
    "low and high bits are swapped": ("project", block_kernels, "= both & 15, both >> 4", "= both >> 4, both & 15"),
    "the minimum is added": ("project", block_kernels, "[None, :] - other[None, :]", "[None, :] + other[None, :]"),
    "the minimum has the scale's bits": ("project", block_kernels, "((upper >> 2) & 3) << 4", "(upper & 3) << 4"),
    "the scale lacks two bits": (
        "project",
        block_kernels,
        "scale = (low & 15) | ((upper & 3) << 4)",
        "scale = low & 15",
    ),
    "the scales of halves are swapped": (
        "project",
        block_kernels,
        "scale[None, :], other[None, :])",
        "other[None, :], scale[None, :])",
    ),
    "the fifth bit is another block's": (
        "gate_up",
        block_kernels,
        "plane >> (2 * (pair % 4))",
        "plane >> (2 * (pair % 2))",
    ),
    "the offset is off by one": (
        "predict",
        block_kernels,
        "(values - OFFSET) * scale",
        "(values - OFFSET + 1) * scale",
    ),
    "the second section begins early": ("project", block_kernels, "m, n - border,", "m, n - border + 1,"),
    "the last pair of blocks is left out": (
        "project",
        block_kernels,
        "share, tl.cdiv(depth, 64))",
        "share, depth // 64 - 1)",
    ),
    "weights are truncated": (
        "project",
        block_kernels,
        "return _rounded(values, KIND, PRECISE)",
        "return values.to(KIND)",
    ),
}
"""For each mistake an operation that shows it, the module, what stands there, and what stands there instead."""

DRAFTER_MISTAKES = {
    "states are not normalized": (
        "read_features",
        drafter_kernels,
        "tl.load(weight + k, mask=k < depth, other=0.0)",
        "(1 + 0 * tl.load(weight + k, mask=k < depth, other=0.0))",
    ),
    "tapped states have another length": (
        "read_features",
        drafter_kernels,
        'cache_modifier=".cg") * factor * factor',
        'cache_modifier=".cg") * factor',
    ),
    "the second tapped layer is the first": (
        "read_features",
        drafter_kernels,
        "            second, norm, features + hidden,",
        "            first, norm, features + hidden,",
    ),
    "the token is another conversation's": ("read_features", drafter_kernels, "last + slot,", "last + m,"),
    "rows attend to another conversation's": (
        "attend_block",
        drafter_kernels,
        "same = (m // BLOCK)[:, None] == (m // BLOCK)[None, :]",
        "same = (m // BLOCK)[:, None] >= (m // BLOCK)[None, :]",
    ),
    "heads have the first head's keys": (
        "attend_block",
        drafter_kernels,
        "own = HEADS * HEAD_DIM + head",
        "own = head",
    ),
    "the residual is left out": (
        "attend_block",
        drafter_kernels,
        "total += tl.load(residual + row",
        "total += 0 * tl.load(residual + row",
    ),
    "rows of a block are scored as if it were shorter": (
        "score",
        drafter_kernels,
        "m // count * block",
        "m // count * count",
    ),
    "logits are not normalized": (
        "score",
        drafter_kernels,
        "squares / depth + eps)[:, None]\n    mask",
        "squares * 0 + 1)[:, None]\n    mask",
    ),
    "far words are compared": ("compare", drafter_kernels, "denoised > top - near", "denoised > top - 2 * near"),
    "what was read does not count": ("compare", drafter_kernels, "+ of_read * read", "+ 0 * read"),
    "words are counted within a tile": (
        "compare",
        drafter_kernels,
        "scores == most, n,",
        "scores == most, n - tile * COLUMNS,",
    ),
    "the last tiles are not merged": (
        "read_draft",
        drafter_kernels,
        "for start in range(0, tiles, TILES):",
        "for start in range(0, tiles - TILES, TILES):",
    ),
    "the state before is left out": (
        "read_draft",
        drafter_kernels,
        "total += of_state * tl.rsqrt",
        "total += 0 * of_state * tl.rsqrt",
    ),
    "the context is left out": (
        "read_draft",
        drafter_kernels,
        "total += tl.load(context + place",
        "total += 0 * tl.load(context + place",
    ),
    "drafts go to the wrong slot": (
        "store_drafts",
        drafter_kernels,
        "kept + slot * max_drafts",
        "kept + conversation * max_drafts",
    ),
    "earlier drafts are lost": (
        "store_drafts",
        drafter_kernels,
        "tl.load(drafts + place, mask=i < count - 1, other=0)",
        "0 * i",
    ),
}
"""The same of the kernels that draft."""

_NUMBER = itertools.count()


@contextmanager
def mistaken(name: str, folder: Path) -> Iterator[None]:
    """The kernels with a mistake, while this is entered."""
    _, module, right, wrong = {**MISTAKES, **DRAFTER_MISTAKES}[name]
    modules = (kernels, block_kernels, attention_kernel, drafter_kernels)
    names = {one: f"mistaken_{one.__name__.rpartition('.')[2]}_{next(_NUMBER)}" for one in modules}
    made = {}
    for one in modules:  # the others import the first
        assert one.__file__ is not None
        text = Path(one.__file__).read_text(encoding="utf-8")
        if one is module:
            assert text.count(right) == 1, f"{right!r} is there {text.count(right)} times"
            text = text.replace(right, wrong)
        path = folder / f"{names[one]}.py"
        path.write_text(text.replace("model.nn.gpu.kernels", names[kernels]), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(names[one], path)
        assert spec is not None and spec.loader is not None
        made[one] = importlib.util.module_from_spec(spec)
        with patch.dict("sys.modules", {names[key]: value for key, value in made.items()}):
            spec.loader.exec_module(made[one])
    with (
        patch.object(triton_operations, "kernels", made[kernels]),
        patch.object(triton_operations, "block_kernels", made[block_kernels]),
        patch.object(triton_operations, "attention_kernel", made[attention_kernel]),
        patch.object(triton_drafter, "drafter_kernels", made[drafter_kernels]),
    ):
        yield


def random_decoder() -> Decoder:
    """A layer and a head with random weights in the formats of real files."""
    config = replace(TINY, layers=1, hidden=256, intermediate=1024, vocab_size=321)
    decoder = Decoder(RandomCheckpoint(config, CPU), CPU, "bfloat16")

    def weight(inputs: int, *sections: tuple[str, int]) -> BlockWeight:
        matrices = []
        for seed, (name, outputs) in enumerate(sections):
            form = FORMATS[name]
            blocks = random_blocks(form, outputs, inputs, seed)
            matrices.append(BlockMatrix.of(form, blocks, inputs, CPU))
        return BlockWeight(tuple(matrices), torch.bfloat16)

    (layer,), bias = decoder.layers, getattr(decoder.layers[0].query_key_value, "bias", None)
    decoder.layers = [
        replace(
            layer,
            query_key_value=StoredLinear(weight(256, ("Q4_K", 96), ("Q6_K", 32)), bias),
            output=StoredLinear(weight(64, ("Q5_0", 256))),
            gate_up=StoredLinear(weight(256, ("Q5_K", 2048))),
            down=StoredLinear(weight(1024, ("Q6_K", 256))),
        )
    ]
    decoder.head = StoredHead(weight(256, ("Q8_0", 321)))
    return decoder


class OneKernel(TorchOperations):
    """Plain PyTorch but for one operation: the interpreter takes seconds for a step."""

    def __init__(self, name: str) -> None:
        setattr(self, name, getattr(TritonOperations(CPU), name))


_ADAPTER_SCALE = 50
"""Random adapters add little to random weights."""

_WIDE = 1024


def selected(decoder: Decoder, operations: Operations) -> StepPass:
    """The pass of a step of 9 rows that the check at the start chooses."""
    config = decoder.config
    cache = torch.zeros(2, config.layers, 1, config.kv_heads, 320, config.head_dim, dtype=torch.bfloat16)
    adapter = random_adapter(config, 4, 2, seed=0).to(CPU, torch.bfloat16)
    for low in (low for layer in adapter.layers for low in layer.values()):
        low.b.mul_(_ADAPTER_SCALE)
    with wide_tiles():
        return select_pass(decoder, adapter, StepShape(cache, verification_mask(2, 0, 2), 3), operations)


@contextmanager
def wide_tiles() -> Iterator[None]:
    """The interpreter takes as long for a narrow tile as for a wide one."""
    with (
        patch.object(tiling, "_WIDTHS", (_WIDE, 512, 256, 128, 64, 32, 16)),
        patch.object(tiling, "_ENOUGH_PROGRAMS", 1),
        patch.object(triton_operations, "GATE_UP_COLUMNS", _WIDE),
        patch.object(triton_operations, "HEAD_COLUMNS", 256),
        patch.object(triton_drafter, "_COLUMNS", 128),
        patch.object(triton_drafter, "_TILES", 2),
    ):
        yield

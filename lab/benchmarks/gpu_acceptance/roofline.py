"""The least time that a step can take: its bytes ÷ the memory's bandwidth + its kernels × the cost of starting one.

A measured time next to its roofline says how much is left to gain, and where: in the kernels' reading, or in their
number.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.adapter import projection_shapes

NODE_US = 2.0
"""µs that a dependent node of a CUDA graph costs on an H100 (1.8 to 2.5): an estimate, which the stage `machine`
measures."""

KERNELS_PER_LAYER = 5
KERNELS_OF_HEAD = 2
OTHER_KERNELS = 2
"""Kernels of a step outside of layers and head: one finds its rows and their embeddings, one what is accepted."""

STORED_BYTES = {"0.5B": 0.396e9, "1.5B": 0.980e9}
"""Bytes of the weights that a step reads, at the bits of the bundled models' files, as a test counts them."""

DRAFTER_BYTES = 31e6
"""Of a bundled block drafter in bfloat16: its matrices, and the rows of the output head that it scores."""

BANDWIDTH = {
    "RTX 3060": 360, "L4": 300, "RTX 4070": 504, "RTX 4090": 1008, "RTX 5090": 1792, "A100 80 GB": 2039,
    "H100 SXM": 3350, "H200": 4800, "B200": 8000,
}  # fmt: skip
"""Nominal memory bandwidth in GB/s."""


def drafter_kernels(drafts: int) -> int:
    """Kernels that a block drafter adds to a step."""
    return 11 + 4 * (drafts - 1) if drafts else 0


@dataclass(frozen=True)
class Roofline:
    """What a step has to do.

    Attributes:
        num_bytes: bytes that it reads: the weights, the adapter, and the keys and values of earlier tokens.
        nodes: kernels, one after the other.
    """

    num_bytes: int
    nodes: int

    def milliseconds(self, gigabytes_per_s: float, node_us: float = NODE_US) -> float:
        """The least time of a step."""
        return self.num_bytes / gigabytes_per_s / 1e6 + self.nodes * node_us / 1e3


def step_roofline(config: DecoderConfig, itemsize: int, rank: int, past: int, other_nodes: int = 0) -> Roofline:
    """The roofline of a step with the kernels.

    Args:
        itemsize: bytes of a weight.
        rank: of the adapter, 0 without one.
        past: earlier tokens, of all conversations.
        other_nodes: kernels outside of layers and head.
    """
    c, shapes = config, projection_shapes(config).values()
    weights = sum(columns * depth for columns, depth in shapes)
    adapter = sum(rank * (columns + depth) for columns, depth in shapes)
    bias = (c.heads + 2 * c.kv_heads) * c.head_dim if c.backbone == "qwen2" else 0
    head_norm = (c.heads + c.kv_heads) * c.head_dim if c.backbone == "qwen3" else 0
    cache = 2 * past * c.kv_heads * c.head_dim
    layer = weights + adapter + bias + head_norm + 2 * c.hidden + cache
    head = c.vocab_size * c.hidden + c.hidden
    nodes = c.layers * KERNELS_PER_LAYER + KERNELS_OF_HEAD + other_nodes
    return Roofline((c.layers * layer + head) * itemsize, nodes)

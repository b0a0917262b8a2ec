"""Reduces a drafting adapter to a lower rank, as the bundled one was: its file becomes that much smaller.

    python -m lab.benchmarks.reduce_adapter ADAPTER RANK OUTPUT [MODEL]

Of each update B A only the largest singular values are kept, which is the closest matrix of that rank (Eckart and
Young, 1936). `rejoinder convert eval --adapter OUTPUT` measures what that costs.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from model.checkpoint.checkpoint import open_checkpoint
from model.engine.bundled import required_checksum
from model.hub.catalog import QWEN_05B
from model.nn.adapter import Adapter, LowRank, load_adapter
from server.serving.runtime import locate_model


def reduced(adapter: Adapter, rank: int) -> Adapter:
    """The closest adapter of a rank."""
    layers = tuple({name: closest(low, rank) for name, low in layer.items()} for layer in adapter.layers)
    return replace(adapter, layers=layers, metadata={**adapter.metadata, "reduced_to_rank": str(rank)})


def closest(low: LowRank, rank: int) -> LowRank:
    """The closest update of a rank. Only matrices of the old rank are decomposed: B A = Q (R Sᵀ) Pᵀ, where B = Q R and
    Aᵀ = P S."""
    q, r = torch.linalg.qr(low.b)
    p, s = torch.linalg.qr(low.a.T)
    left, strength, right = torch.linalg.svd(r @ s.T)
    root = strength[:rank].sqrt()
    return LowRank((p @ right[:rank].T * root).T.contiguous(), q @ left[:, :rank] * root)


def main() -> None:
    """Run with the arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("adapter", type=Path)
    parser.add_argument("rank", type=int)
    parser.add_argument("output", type=Path)
    parser.add_argument("model", nargs="?", default=QWEN_05B.name)
    arguments = parser.parse_args()
    path = locate_model(arguments.model, Console(stderr=True))
    base = required_checksum(path, arguments.adapter)
    reduced(load_adapter(arguments.adapter, open_checkpoint(path).config, base), arguments.rank).save(arguments.output)


if __name__ == "__main__":
    main()

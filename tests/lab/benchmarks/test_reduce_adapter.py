"""An adapter of a lower rank is the closest one."""

from __future__ import annotations

import torch

from lab.benchmarks.reduce_adapter import closest
from model.nn.adapter import LowRank


def test_the_closest_update_keeps_the_largest_singular_values() -> None:
    draw = torch.Generator().manual_seed(1)
    low = LowRank(torch.randn(8, 40, generator=draw), torch.randn(30, 8, generator=draw))
    whole = low.b @ low.a
    found = closest(low, 3)
    assert (found.a.shape, found.b.shape) == ((3, 40), (30, 3))
    left, strength, right = torch.linalg.svd(whole, full_matrices=False)
    torch.testing.assert_close(found.b @ found.a, left[:, :3] * strength[:3] @ right[:3], rtol=1e-4, atol=1e-4)
    all_of_it = closest(low, 8)
    torch.testing.assert_close(all_of_it.b @ all_of_it.a, whole, rtol=1e-4, atol=1e-4)

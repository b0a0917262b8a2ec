"""The estimate is that of what the code does: its bytes and kernels are counted, and its time follows from them."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason='Triton is not installed: pip install -e ".[test]"')

from lab.benchmarks.gpu_acceptance.roofline import BANDWIDTH, NODE_US, step_roofline
from lab.benchmarks.gpu_estimate import ATTAINED, MODELS, Model, StepCost, counted, num_bytes, rows, stored
from model.engine.cuda_graph import host_seconds
from model.nn.adapter import projection_shapes


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_weights_and_kernels_are_counted_from_a_step(model: Model) -> None:
    """Weights are two bytes each today, and never fewer than 4.5 bits; a layer has some kernels, not dozens."""
    cost, c = counted(model), model.config
    num_weights = c.layers * sum(a * b for a, b in projection_shapes(c).values()) + c.vocab_size * c.hidden
    assert 4.5 / 8 * num_weights < cost.weights <= 1.001 * 2 * num_weights
    assert 4 * c.layers < cost.nodes < 12 * c.layers
    roofline = step_roofline(c, 2, 32 if model.drafts else 0, 600)
    assert cost.weights + cost.others <= 1.001 * roofline.num_bytes


def test_a_step_takes_its_bytes_and_its_kernels_or_the_host_if_that_is_longer() -> None:
    cost = StepCost(weights=700e6, others=0, nodes=100, tokens=(1.0, 2.0))
    assert cost.milliseconds(1000) == pytest.approx(1.0 / (ATTAINED / 0.7) + 100 * NODE_US / 1e3)
    assert cost.tokens_per_s(1000) == pytest.approx((1e3 / 1.2, 2e3 / 1.2))
    assert StepCost(1, 0, 1, (1.0, 1.0)).milliseconds(1000) == 1e3 * host_seconds(1)


def test_tensors_that_are_used_twice_are_read_once() -> None:
    import torch

    weight = torch.zeros(3, dtype=torch.bfloat16)
    assert num_bytes(({"a": weight, "b": [weight]}, (torch.zeros(2),), 5, None)) == 6 + 8


def test_the_goals_are_within_reach_on_an_h100() -> None:
    for model in MODELS:
        low, high = stored(model).tokens_per_s(BANDWIDTH["H100 SXM"])
        assert low < high and model.goal < low


def test_the_table_has_a_row_for_each_gpu() -> None:
    table = list(rows([stored(model) for model in MODELS]))
    assert [row.split("|")[1].strip() for row in table] == [*BANDWIDTH]

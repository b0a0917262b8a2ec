"""The table of the guide says what the code allocates."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton", reason='Triton is not installed: pip install -e ".[test]"')

from lab.benchmarks.gpu_estimate import MODELS, Model
from lab.benchmarks.gpu_memory import CONVERSATIONS, TOKENS, gpu_memory
from model.engine.cuda_graph import slot_capacity
from model.nn.adapter import projection_shapes

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "gpu.md"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_memory_is_that_of_the_shapes_and_the_guide_says_it(model: Model) -> None:
    memory, c = gpu_memory(model), model.config
    assert memory.conversation == 4 * c.layers * c.kv_heads * c.head_dim * slot_capacity(TOKENS, 4, 7, branches=False)
    assert memory.embedding == 2 * c.vocab_size * c.hidden
    assert memory.adapter == 2 * 32 * c.layers * sum(a + b for a, b in projection_shapes(c).values())
    bfloat16 = gpu_memory(model, stored=False)
    assert bfloat16.output == memory.embedding and memory.layers < 0.4 * bfloat16.layers
    largest = 2 * CONVERSATIONS * 2 * c.intermediate
    assert memory.workspace > largest  # at least what goes from gate and up to down
    logits = 4 * CONVERSATIONS * (4 + 1) * c.vocab_size  # float32, of each token and each of four drafts
    assert logits < memory.logits < 1.05 * logits
    parts = (
        memory.layers, memory.embedding, memory.output, memory.drafter, memory.conversation, memory.workspace,
        memory.logits,
    )  # fmt: skip
    totals = ", ".join(f"{memory.total(count) / 1e9:.2f} GB" for count in (1, CONVERSATIONS))
    row = f"| {model.name}, stored | {' | '.join(f'{part / 1e6:,.0f} MB' for part in parts)} | {totals} |"
    assert row in GUIDE.read_text(encoding="utf-8"), row

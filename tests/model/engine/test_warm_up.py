"""Forward passes are timed at the first start only."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.checkpoint.checkpoint import open_checkpoint
from model.engine.bundled import weights_checksum
from model.engine.loader import load_model
from model.engine.warm_up import warm_up
from tests.model.random_draft_head import random_draft_head


@pytest.mark.parametrize("with_head", [False, True])
def test_the_next_start_knows_what_a_forward_pass_takes(
    varied_qwen2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_head: bool
) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    config, file = open_checkpoint(varied_qwen2).config, tmp_path / "head.safetensors"
    checksum = weights_checksum(varied_qwen2)
    random_draft_head(3 * config.hidden, config.hidden, config.vocab_size, 1, checksum).save(file)
    model = load_model(varied_qwen2, device="cpu", precision="int8", adapter=file if with_head else "none")
    first = warm_up(model, 2)
    with monkeypatch.context() as patch:
        patch.setattr(model.decoder, "run", lambda *_: pytest.fail("it is timed again"))
        again = warm_up(model, 2)
    for rows in (1, 2, 5, 9):
        assert again.step_seconds(rows) == first.step_seconds(rows) > 0
    assert (again.head_seconds, again.acceptance) == (first.head_seconds, first.acceptance)

"""`bench model` on a tiny model: every figure is there, and passes are timed as decoding runs them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console
from tokenizers import Tokenizer

from model.adapter import random_adapter
from model.engine import load_model
from model.shipped import weights_checksum
from model.transformer import Decoder, Rows
from server import bench
from server.loading import Choice
from tests.conftest import save_tiny


def test_every_figure_is_measured_on_any_model(
    tmp_path: Path, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny(tmp_path / "tiny", tiny_tokenizer, "qwen2", max_position_embeddings=4096)
    base = load_model(folder, device="cpu", precision="float32", ending="none")
    adapter = tmp_path / "adapter.safetensors"
    drafts = random_adapter(base.decoder.config, 4, 2, seed=0)
    replace(drafts, base=weights_checksum(folder)).save(adapter)
    for name, small in {
        "PROMPTS": bench.PROMPTS[:2],
        "MOST_TOKENS": 8,
        "_REPEATS": 2,
        "_STREAM_BYTES": 1 << 20,
    }.items():
        monkeypatch.setattr(bench, name, small)
    noise: set[tuple[int, int]] = set()
    run = Decoder.run

    def noted(self: Decoder, batch: list[Rows], adapter: object = None) -> object:
        noise.update((len(rows.tokens), sum(rows.noise)) for rows in batch)
        return run(self, batch, adapter)  # type: ignore[arg-type]

    monkeypatch.setattr(Decoder, "run", noted)
    choice = Choice(str(folder), device="cpu", precision="float32", adapter=adapter, ending="none")
    console = Console(record=True, width=120)
    figures = bench.run(choice, console, crowds=(2,))
    assert figures.identical_to_autoregressive == "2 of 2"
    assert figures.llama_cpp_tokens_per_second is None
    assert list(figures.ms_by_rows) == list(bench.ROWS)
    assert list(figures.ms_by_drafts) == [0, 1, 2]
    assert {(1, 0), (4, 2), (9, 6), (9, 0)} <= noise  # drafts and their branches, and nine rows of plain text
    assert all(ms > 0 for ms in (*figures.ms_by_rows.values(), *figures.ms_by_drafts.values()))
    assert [crowd.conversations for crowd in figures.crowds] == [2]
    assert json.loads(json.dumps(asdict(figures)))["tokens_per_second"] > 0
    bench.show(figures, console)
    shown = console.export_text()
    assert "ms for a pass of 9 rows of text" in shown
    assert "ms for a pass of 2 drafts, 9 rows" in shown

"""`rejoinder bench model`: the figures of a tiny model, and the tables that show them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console
from tokenizers import Tokenizer

from lab.bench import llm as bench
from model.engine.bundled import weights_checksum
from model.engine.loader import load_model
from model.nn.adapter import random_adapter
from model.nn.decoder import Decoder
from model.nn.forward_batch import ForwardInput
from server.serving.options import ModelOptions
from tests.conftest import save_tiny_checkpoint


def test_every_figure_is_measured_on_any_model(
    tmp_path: Path, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny_checkpoint(tmp_path / "tiny", tiny_tokenizer, "qwen2", max_position_embeddings=4096)
    base = load_model(folder, device="cpu", precision="float32", turn_completion="none")
    adapter_file = tmp_path / "adapter.safetensors"
    adapter = random_adapter(base.decoder.config, 4, 2, seed=0)
    replace(adapter, base=weights_checksum(folder)).save(adapter_file)
    for name, small in {
        "PROMPTS": bench.PROMPTS[:2],
        "MAX_TOKENS": 8,
        "_REPEATS": 2,
        "_STREAM_BYTES": 1 << 20,
    }.items():
        monkeypatch.setattr(bench, name, small)
    timed: set[tuple[int, int]] = set()
    run = Decoder.run

    def spy(self: Decoder, batch: list[ForwardInput], adapter: object = None) -> object:
        timed.update((len(rows.tokens), sum(rows.noise)) for rows in batch)
        return run(self, batch, adapter)  # type: ignore[arg-type]

    monkeypatch.setattr(Decoder, "run", spy)
    model_options = ModelOptions(
        model=str(folder), device="cpu", precision="float32", adapter=adapter_file, turn_completion="none"
    )
    figures = bench.run(model_options, Console(record=True, width=120), concurrencies=(2,))
    assert figures.identical_to_autoregressive == "2 of 2"
    assert figures.llama_cpp_tokens_per_second is None
    assert list(figures.ms_by_rows) == list(bench.ROWS)
    assert list(figures.ms_by_drafts) == [0, 1, 2]
    assert figures.ms_by_drafts[0] == figures.ms_by_rows[1]  # the same forward pass
    assert {(1, 0), (4, 2), (9, 6), (9, 0)} <= timed  # (rows, noise rows): drafts with their branches, and plain text
    assert all(ms > 0 for ms in (*figures.ms_by_rows.values(), *figures.ms_by_drafts.values()))
    assert [row.conversations for row in figures.crowds] == [2]
    assert json.loads(json.dumps(asdict(figures)))["tokens_per_second"] > 0
    table = table_of(figures)
    assert "ms for a forward pass of 9 rows of text" in table
    assert "ms for a forward pass of 2 drafts, 9 rows, 6 of them noise rows" in table


FIGURES = bench.Figures(
    model="tiny",
    device="cpu",
    precision="int8",
    tokens_per_second=57.2,
    tokens_per_forward=1.4,
    ms_per_forward=23.0,
    autoregressive_tokens_per_second=43.5,
    llama_cpp_tokens_per_second=None,
    first_clause_ms=210.0,
    identical_to_autoregressive="8 of 8",
    drafted_by="masked",
    drafts_shown=10,
    drafts_kept=4,
    steps=20,
    drafts=1,
    ms_by_rows={1: 20.0, 4: 26.0, 9: 40.0},
    ms_by_drafts={0: 20.0, 1: 28.0, 2: 50.0},
    replayed_ms={1: 0.7, 64: 4.9},
    draft_head_ms=None,
    weight_bytes=494_000_000,
    gigabytes_per_second=21.5,
    memory_gigabytes_per_second=30.0,
    teraflops_per_second=0.1,
    product_teraflops_per_second=0.4,
    peak_memory_gigabytes=1.2,
    crowds=[bench.ConcurrencyFigures(4, 81.5, 350.0, 410.0)],
)


def table_of(figures: bench.Figures) -> dict[str, str]:
    """The first table: names to values. Fails if a name appears twice."""
    console = Console(record=True, width=120)
    bench.show(figures, console)
    lines = console.export_text().partition("└")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    table = {row[0]: row[1] for row in rows}
    assert len(table) == len(rows)
    return table


def test_the_table_gives_one_time_for_each_forward_pass() -> None:
    table = table_of(FIGURES)
    assert {name: value for name, value in table.items() if name.startswith("ms for")} == {
        "ms for a forward pass of 1 row of text": "20.0 (1.00×)",
        "ms for a forward pass of 4 rows of text": "26.0 (1.30×)",
        "ms for a forward pass of 9 rows of text": "40.0 (2.00×)",
        "ms for a forward pass of 1 draft, 4 rows, 2 of them noise rows": "28.0 (1.40×)",
        "ms for a forward pass of 2 drafts, 9 rows, 6 of them noise rows": "50.0 (2.50×)",
    }
    assert table["ms of a replayed step for 1 conversation"] == "0.7"
    assert table["ms of a replayed step for 64 conversations"] == "4.9"
    assert table["weight bytes"] == "494,000,000"
    assert table["llama cpp tokens per second"] == "not compared"


def test_the_second_table_shows_concurrent_conversations_if_they_were_measured() -> None:
    console = Console(record=True, width=120)
    bench.show(FIGURES, console)
    shown = console.export_text()
    assert "total tokens/s" in shown and "81.5" in shown
    bench.show(replace(FIGURES, crowds=[]), console)
    assert "total tokens/s" not in console.export_text()

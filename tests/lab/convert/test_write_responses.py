"""A model's own text is written once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.convert import write_responses as module
from lab.convert.write_responses import write_responses
from model.engine.loader import LoadedModel


def test_an_interrupted_run_continues_with_the_next_file(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    interrupting = ["7-500.safetensors"]
    skipped: list[bool] = []
    reports: list[tuple[str, int, int]] = []

    def generate_shard(model: object, base: str, path: Path, *_: object, **options: Any) -> None:
        if path.name in interrupting:
            interrupting.remove(path.name)
            raise KeyboardInterrupt
        written.append(path.name)
        skipped.extend((options["skip"]("What is asked?"), options["skip"]("What else?")))
        path.touch()

    monkeypatch.setattr(module, "_SHARD_TOKENS", 500)
    monkeypatch.setattr(module, "generate_shard", generate_shard)
    monkeypatch.setattr(module, "invent_questions", lambda *_, **__: [("chat", "Why?")])
    monkeypatch.setattr(module, "load_shard", lambda path, base: path.name)
    arguments = (model, "base", tmp_path, 1000, 7, "Be brief.", ["what is asked"], lambda *one: reports.append(one))
    with pytest.raises(KeyboardInterrupt):
        write_responses(*arguments)
    assert (tmp_path / "questions-7.json").exists()
    assert write_responses(*arguments) == ["7-0.safetensors", "7-500.safetensors"]
    assert written == ["7-0.safetensors", "7-500.safetensors"]
    assert skipped[:2] == [True, False]
    assert reports[-1] == ("generating responses", 1000, 1000)

"""`rejoinder models`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from model.hub import catalog
from server.cli import models as models_module
from server.cli.main import app


@pytest.mark.parametrize("columns", [80, 200])
def test_the_list_shows_every_name_licence_and_title_unbroken(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(models_module._out, "width", columns)
    output = CliRunner().invoke(app, ["models", "list"]).output
    lines = output.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= columns
    assert "…" not in output
    for model in catalog.MODELS:
        (row,) = [line for line in lines if line.startswith(model.name)]
        assert f"{model.size / 1e6:,.0f} MB" in row and model.licence in row
        assert any(line.startswith(f"    {model.title}") for line in lines)
        assert model.authors in " ".join(output.split())


def test_the_list_fits_three_lines_per_model_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_module._out, "width", 80)
    lines = CliRunner().invoke(app, ["models", "list"]).output.splitlines()
    assert len(lines) <= 1 + 3 * len(catalog.MODELS)

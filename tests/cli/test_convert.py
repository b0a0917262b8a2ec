"""`rejoinder convert` on a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from tokenizers import Tokenizer
from typer.testing import CliRunner

from cli.main import app
from model.engine.bundled import weights_checksum, weights_size
from tests.conftest import save_tiny_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    """A checkpoint whose context fits the prompts that generate data."""
    root = tmp_path_factory.mktemp("conversion")
    save_tiny_checkpoint(root / "model", tiny_tokenizer, "qwen2", max_position_embeddings=4096)
    return root


def rejoinder(*arguments: object) -> str:
    """Run the command and return its output."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_data_train_and_eval_produce_an_adapter_and_its_metrics(folder: Path) -> None:
    model = ("--folder", folder / "work", "--model", folder / "model", "--device", "cpu")
    assert "response tokens are in" in rejoinder("convert", "data", *model, "--tokens", 200, "--batch-size", 16)
    assert "the adapter is" in rejoinder(
        "convert", "train", *model, "--steps", 3, "--batch-size", 1, "--positions-per-text", 8, "--rank", 2
    )
    payload = json.loads(rejoinder("convert", "eval", *model, "--prompts", 6, "--json"))
    assert len(payload["slot_acceptance"]) == 4
    assert payload["identical_to_autoregressive"] is True
    assert payload["tokens_per_forward"] >= 1 or payload["kinds"]["all"]["loops"]
    assert "identical" in rejoinder("convert", "eval", *model, "--prompts", 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--folder", "nowhere"), "run `rejoinder convert data`"),
        (("train", "--minutes", "1", "--steps", "2"), "either --minutes or --steps"),
        (("eval", "--adapter", "nowhere.safetensors"), "cannot be read"),
        (("eval", "--bundled"), "nothing that drafts is bundled for these weights"),
    ],
)
def test_invalid_usage_is_reported(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["convert", *arguments, "--model", str(folder / "model"), "--device", "cpu"])
    assert result.exit_code != 0
    assert message in " ".join(result.output.replace("│", " ").split())


def test_a_classifier_s_file_says_for_which_weights_it_is_and_how_good(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.convert.spoken_templates._USES", 1)
    model = ("--folder", folder / "classifiers", "--model", folder / "model", "--device", "cpu")
    assert "use it with `--turn-completion" in rejoinder("convert", "turn-completion", *model)
    with safe_open(folder / "classifiers" / "ending.safetensors", "pt") as file:
        metadata = file.metadata()
    assert metadata["base_sha256"] == weights_checksum(folder / "model")
    assert metadata["base_bytes"] == str(weights_size(folder / "model"))
    assert 0.4 < json.loads(metadata["held_out"])["auc"] < 1 and metadata["trained_on"]

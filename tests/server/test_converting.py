"""`rejoinder convert` and the options of the model, as a person types them, on a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from server.cli import app
from tests.conftest import save_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    """A checkpoint, big enough for the prompts of the data to fit its context."""
    root = tmp_path_factory.mktemp("conversion")
    save_tiny(root / "model", tiny_tokenizer, "qwen2", max_position_embeddings=4096)
    return root


def rejoinder(*words: object) -> str:
    """Run the command; what it prints."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_model_is_converted_from_the_command_line(folder: Path) -> None:
    model = ("--folder", folder / "work", "--model", folder / "model", "--device", "cpu")
    assert "answer tokens are in" in rejoinder("convert", "data", *model, "--tokens", 200, "--lanes", 16)
    assert "the adapter is" in rejoinder(
        "convert", "train", *model, "--steps", 3, "--texts", 1, "--rows", 8, "--rank", 2
    )
    said = json.loads(rejoinder("convert", "eval", *model, "--prompts", 6, "--json"))
    assert len(said["slot_acceptance"]) == 4
    assert said["identical_to_autoregressive"] is True
    assert said["tokens_per_forward"] >= 1 or said["kinds"]["all"]["loops"]
    assert "identical" in rejoinder("convert", "eval", *model, "--prompts", 3)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "--folder", "nowhere"), "run `rejoinder convert data`"),
        (("train", "--minutes", "1", "--steps", "2"), "one of the two"),
        (("eval", "--adapter", "nowhere.safetensors"), "cannot be read"),
        (("eval", "--shipped"), "no adapter is shipped for these weights"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(folder: Path, words: tuple[str, ...], sentence: str) -> None:
    result = CliRunner().invoke(app, ["convert", *words, "--model", str(folder / "model"), "--device", "cpu"])
    assert result.exit_code != 0
    assert sentence in " ".join(result.output.replace("│", " ").split())


def test_every_command_that_runs_a_model_takes_the_same_options() -> None:
    for command in (("serve",), ("ask",), ("talk",), ("bench", "model")):
        said = rejoinder(*command, "--help")
        for option in ("--model", "--adapter", "--decoding", "--effort", "--max-steps", "--rule", "--blocks-in-flight"):
            assert option in said

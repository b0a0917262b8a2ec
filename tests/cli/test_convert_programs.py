"""`rejoinder convert programs` on a tiny checkpoint."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from agent.program.prompt import INSTRUCTIONS, program_messages
from chat.types import Tool
from cli import convert_programs
from cli.main import app
from model.engine.bundled import weights_checksum
from model.engine.loader import load_model
from model.nn.trained_prefix import load_trained_prefix
from server.serving.runtime import program_prefix_tokens
from tests.conftest import save_tiny_checkpoint


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    """A checkpoint whose context fits the instructions."""
    return save_tiny_checkpoint(tmp_path_factory.mktemp("base"), tiny_tokenizer, "qwen2", max_position_embeddings=2048)


def test_a_prefix_is_trained_in_slices_and_stands_for_the_instructions(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples, folder = tmp_path / "examples.txt", tmp_path / "work"
    examples.write_text("\n\n".join(f"U: The capital of France and {n}?\nanswer = {n}" for n in range(24)))
    command = ["convert", "programs", "--examples", str(examples), "--folder", str(folder), "--model", str(base)]
    command += ["--device", "cpu", "--epochs", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(convert_programs, "over_after", lambda minutes: lambda: True)
        stopped = CliRunner().invoke(app, [*command, "--stop-after", "5"])
    assert "stopped after 5 minutes" in stopped.output and not (folder / "programs.safetensors").exists()
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "of the held-out programs are right" in done.output
    loaded = load_model(base, device="cpu")
    file = folder / "programs.safetensors"
    prefix = load_trained_prefix(file, loaded.decoder.config, weights_checksum(base))
    assert prefix.metadata["instructions_sha256"] == hashlib.sha256(INSTRUCTIONS.encode()).hexdigest()
    assert list(prefix.tokens) == program_prefix_tokens(loaded.template)
    for names in ((), ("set_light",)):
        prompt = loaded.template.encode(program_messages([Tool(name, "", {}) for name in names], [], "Hello."))
        assert prompt[: len(prefix.tokens)] == list(prefix.tokens)


def test_a_training_may_go_on_from_a_prefix(base: Path, tmp_path: Path) -> None:
    examples = tmp_path / "examples.txt"
    examples.write_text("\n\n".join(f"U: The capital of France and {n}?\nanswer = {n}" for n in range(24)))
    command = ["convert", "programs", "--examples", str(examples), "--model", str(base), "--device", "cpu"]
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    start = str(first / "programs.safetensors")
    for arguments in (
        ["--folder", str(first), "--epochs", "1"],
        ["--folder", str(second), "--epochs", "0.01", "--rate", "1e-6", "--start", start],
        ["--folder", str(third), "--epochs", "0.01", "--rate", "1e-6"],
    ):
        done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*command, *arguments])
        assert done.exit_code == 0, done.output
    config, checksum = load_model(base, device="cpu").decoder.config, weights_checksum(base)
    one, two, untrained = (
        load_trained_prefix(folder / "programs.safetensors", config, checksum) for folder in (first, second, third)
    )
    assert (two.keys - one.keys).abs().max() < 0.02 < (untrained.keys - one.keys).abs().max()
    assert two.metadata["start"] and not one.metadata["start"]

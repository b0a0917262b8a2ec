"""`rejoinder convert tune` on a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner

from cli import convert_tune
from cli.convert_tune import advice
from cli.main import app
from lab.convert.tuning_evaluation import HeldOutMetrics
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.tuned import tuned_from
from model.engine.bundled import weights_checksum
from tests.conftest import save_tiny_checkpoint
from tests.model.random_draft_head import random_block_drafter, random_draft_head


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    """A checkpoint whose context fits the default instructions."""
    return save_tiny_checkpoint(tmp_path_factory.mktemp("base"), tiny_tokenizer, "qwen2", max_position_embeddings=2048)


@pytest.fixture
def conversations(tmp_path: Path) -> Path:
    path = tmp_path / "own.jsonl"
    roles = ("user", "assistant")
    turns = [(f"the capital of France and {n}", f"Paris {n}") for n in range(20)]
    lines = [{"messages": [{"role": r, "content": c} for r, c in zip(roles, turn, strict=True)]} for turn in turns]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_model_is_tuned_measured_and_says_what_it_was_tuned_from(
    base: Path, conversations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["convert", "tune", str(conversations), "--folder", str(tmp_path / "work"), "--model", str(base)]
    command += ["--device", "cpu", "--rank", "2", "--epochs", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(convert_tune, "over_after", lambda minutes: lambda: True)
        stopped = CliRunner().invoke(app, [*command, "--stop-after", "5"])
    assert "stopped after 5 minutes" in stopped.output and not (tmp_path / "work" / "tuned").exists()
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, command)
    assert done.exit_code == 0, done.output
    tuned = tmp_path / "work" / "tuned"
    assert f"--model {tuned}" in done.output
    assert "trained on 18 conversations, 2 held out" in done.output
    assert tuned_from(tuned) == weights_checksum(base)
    config, head = open_checkpoint(tuned).config, tmp_path / "drafter.safetensors"
    sizes = 3 * config.hidden, config.hidden, config.vocab_size
    asked = ["ask", "hello", "--no-builtin-tools", "--model", str(tuned), "--adapter", str(head)]
    asked += ["--device", "cpu", "--precision", "int8", "--data", str(tmp_path / "data")]
    random_block_drafter(random_draft_head(*sizes, 1, "another", size=256)).save(head)
    refused = CliRunner(env={"COLUMNS": "200"}).invoke(app, asked)
    assert refused.exit_code == 1 and "was made for weights with sha256 another" in " ".join(refused.output.split())
    for made_for in (tuned, base):
        drafter = random_block_drafter(random_draft_head(*sizes, 1, weights_checksum(made_for), size=256))
        drafter.save(head)
        answered = CliRunner().invoke(app, [*asked, "--json"])
        assert answered.exit_code == 0, answered.output
        assert json.loads(answered.stdout)["question"] == "hello"


def test_too_few_conversations_are_refused(base: Path, conversations: Path) -> None:
    conversations.write_text("\n".join(conversations.read_text().splitlines()[:9]))
    result = CliRunner().invoke(app, ["convert", "tune", str(conversations), "--model", str(base)])
    assert result.exit_code == 1
    assert "has 9 conversations, and at least 10 are needed" in " ".join(result.output.split())


def test_training_again_is_advised_where_much_was_lost() -> None:
    before = HeldOutMetrics(2.0, 0.5, 0.6, 1.5, 0.95, 0.5)
    path = Path("tuned.gguf")
    assert advice(before, HeldOutMetrics(1.0, 0.7, 0.58, 1.4, 0.94, 0.0), path) == []
    lost = advice(before, HeldOutMetrics(1.0, 0.7, 0.4, 1.1, 0.9, 0.4), path)
    assert [line.partition(":")[0] for line in lost] == [
        "fewer drafts are accepted",
        "turns are recognized less well",
        "the request classifier would decline 40% of the questions that the model now answers",
    ]
    nothing = HeldOutMetrics(1.0, 0.7, None, None, None, None)
    assert advice(nothing, nothing, path) == []

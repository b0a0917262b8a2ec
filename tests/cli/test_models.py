"""`rejoinder models`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import console
from cli.main import app
from model.hub import catalog
from model.hub.store import ModelStore
from model.nn.cpu.packed_file import packed_path
from server.serving.model_choice import open_record
from server.serving.model_record import Trial
from tests.model.hub.hub_client import run_commands
from tests.model.hub.hub_server import Repository, running_hub

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("columns", [80, 200])
def test_the_list_shows_every_name_licence_and_title_unbroken(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(console.stdout, "width", columns)
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
    monkeypatch.setattr(console.stdout, "width", 80)
    lines = CliRunner().invoke(app, ["models", "list"]).output.splitlines()
    assert len(lines) <= 1 + 3 * len(catalog.MODELS)


def test_the_list_says_which_language_models_suit_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelStore, "availability", lambda store, model: "installed")
    open_record(data=tmp_path).save_trial(catalog.QWEN_15B.name, Trial(640, 2))
    output = CliRunner().invoke(app, ["models", "list", "--data", str(tmp_path)]).output
    assert re.search(catalog.QWEN_15B.name + r".*\n.*\n +chosen by auto: median 640 ms in its trial\s*\n", output)
    assert re.search(catalog.QWEN_05B.name + r".*\n.*\n +not tried yet; often wrong", output)


def test_hub_models_are_pulled_listed_and_verified(tmp_path: Path) -> None:
    with running_hub() as hub:
        hub.repositories["org/model"] = Repository(info={"gguf": {"architecture": "qwen3"}})
        commit = hub.repositories["org/model"].commit({"m-Q4_K_M.gguf": b"four" * 1000})
        hub.repositories["org/other"] = Repository(info={"gguf": {"architecture": "gemma3"}})
        hub.repositories["org/other"].commit({"m-Q4_K_M.gguf": b"four" * 1000})
        done = run_commands(
            hub,
            tmp_path,
            "models pull org/model:Q4_K_M",
            "models pull org/other",
            "models list",
            "models verify org/model:Q4_K_M",
            "models verify org/absent",
        )
    pulled, rejected, listed, verified, absent, _ = re.split(r"exit \d\n", done.stdout)
    assert re.findall(r"exit (\d)\n", done.stdout) == list("01001")
    assert pulled.startswith("org/model:Q4_K_M is in ") and pulled.endswith(f"/snapshots/{commit}/m-Q4_K_M.gguf\n")
    assert "org/model:Q4_K_M  0 MB  mit  ready\n" in listed and f"at commit {commit[:12]}" in listed
    assert verified == "org/model:Q4_K_M/m-Q4_K_M.gguf: ok\n"
    assert rejected == absent == ""
    assert "is a gemma3 model; known families are llama, qwen2, qwen3" in done.stderr
    assert "org/absent has not been downloaded: run `rejoinder models pull org/absent`" in done.stderr
    assert len(hub.downloads()) == 1


def test_general_models_are_recommended_by_what_this_machine_has_shown(tmp_path: Path) -> None:
    small, large = catalog.GENERAL_MODELS[0], catalog.GENERAL_MODELS[-1]
    open_record(data=tmp_path).save_trial(catalog.QWEN_15B.name, Trial(650, 2))
    with running_hub() as hub:
        hub.repositories[small.repository] = Repository(info={"gguf": {"architecture": "qwen2"}})
        hub.repositories[small.repository].commit({"m-q4_k_m.gguf": b"four" * 1000})
        done = run_commands(
            hub,
            tmp_path,
            f"models recommend --data {tmp_path}/none",
            f"models pull {small.name}",
            f"models recommend --data {tmp_path}",
            f"models list --data {tmp_path}",
            f"models recommend --device cpu --data {tmp_path}",
            "models recommend --device tpu",
        )
    untried, _, recommended, listed, on_cpu, refused = re.split(r"exit [02]\n|exit 1\n", done.stdout)[:6]
    assert on_cpu == recommended and not refused
    assert "'tpu' is not a device: choose auto, cpu, cuda or cuda:N" in done.stderr
    assert f"{small.name}\n    0.5 GB · Apache-2.0 · 29 languages · not tried\n" in untried
    assert "The first start of `rejoinder serve` shows how quick this machine is" in untried
    assert f"{small.name}  (pulled)\n    0.5 GB · Apache-2.0 · 29 languages · a turn takes about 0.4 s\n" in recommended
    assert re.search(f"{large.name}\n.* · a turn takes about 2.1 s, too long for a conversation\n", recommended)
    assert f"Estimated from the turns of {catalog.QWEN_15B.name} on this machine" in recommended
    assert re.search(f"{small.name}  0 MB  mit  ready\n.*\n +not tried yet\n", listed)


def test_a_model_of_the_hub_is_removed_but_for_the_files_that_another_one_has(tmp_path: Path) -> None:
    with running_hub() as hub:
        hub.repositories["org/model"] = Repository(info={"gguf": {"architecture": "qwen3"}})
        files = {"m-Q4_K_M.gguf": b"four" * 500_000, "m-Q8_0.gguf": b"eight" * 500_000}
        hub.repositories["org/model"].commit(files)
        done = run_commands(
            hub,
            tmp_path,
            "models pull org/model:Q4_K_M",
            "models pull org/model:Q8_0",
            "models pull org/model",
            "models remove org/model",
            "models remove org/model:Q8_0",
            "models list --json",
            "models verify",
            "models remove org/model:Q8_0",
        )
    *_, shared, removed, listed, verified, absent, _ = re.split(r"exit \d\n", done.stdout)
    assert re.findall(r"exit (\d)\n", done.stdout) == list("00000001")
    assert shared == "org/model is deleted; 0 MB are free again\n"  # `org/model:Q4_K_M` has the same file
    assert removed == "org/model:Q8_0 is deleted; 2 MB are free again\n"
    models = {one["name"]: one for one in json.loads(listed)}
    assert models["org/model:Q4_K_M"]["status"] == "ready" and "org/model:Q8_0" not in models
    assert models["whisper-base"]["kind"] == "transcription" and models["kokoro"]["variants"]
    assert verified == "org/model:Q4_K_M/m-Q4_K_M.gguf: ok\n" and absent == ""
    left = [path.name for path in (tmp_path / "hf").rglob("*") if path.is_file() and path.stat().st_size > 1000]
    assert len(left) == 2  # the file, and the link to it


def test_packed_weights_stay_while_another_model_has_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path / "cache"))
    with running_hub() as hub:
        hub.repositories["org/model"] = Repository(info={"gguf": {"architecture": "qwen3"}})
        hub.repositories["org/model"].commit({"m-Q4_K_M.gguf": b"four" * 1000})
        run_commands(hub, tmp_path, "models pull org/model:Q4_K_M", "models pull org/model")
        packed = packed_path(next((tmp_path / "hf").rglob("m-Q4_K_M.gguf")))
        packed.parent.mkdir(parents=True)
        packed.write_bytes(b"0")
        run_commands(hub, tmp_path, "models remove org/model")
        assert packed.exists()
        run_commands(hub, tmp_path, "models remove org/model:Q4_K_M")
        assert not packed.exists()


def test_a_model_of_the_catalog_is_removed_with_its_packed_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    folder = tmp_path / "models" / catalog.SMOLLM2.name
    folder.mkdir(parents=True)
    weights = folder / catalog.SMOLLM2.main_file
    weights.write_bytes(b"0" * 3_000_000)
    packed = packed_path(weights)
    packed.parent.mkdir()
    packed.write_bytes(b"0" * 4_000_000)
    output = CliRunner().invoke(app, ["models", "remove", catalog.SMOLLM2.name]).output
    assert output.startswith("smollm2-135m is deleted; 7 MB are free again")
    assert not folder.exists() and not packed.exists()
    folder.mkdir()
    (folder / ".lock").touch()  # as a download that has failed leaves it
    assert CliRunner().invoke(app, ["models", "verify"]).exit_code == 0
    assert CliRunner().invoke(app, ["models", "remove", "nothing"]).exit_code == 1

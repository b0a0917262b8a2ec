"""Models from a hub: downloaded once, pinned, resumed and used offline. Each start is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.model.hub.hub_client import ROOT, environment, run_program
from tests.model.hub.hub_server import TOKEN, Hub, Repository, git_sha1, running_hub, sha256

MEBI = 1 << 20

PROGRAM = """
import shutil, sys
from model.hub.download import HubModels
from model.hub.reference import parse_reference
from model.hub.transfer import ModelUnavailable

def check(config):
    if config["model_type"] == "unknown":
        raise ModelUnavailable("unknown architecture")

hub, progress = HubModels(check_config=check), []
report = lambda *arguments: progress.append(arguments)
for argument in sys.argv[1:]:
    action, _, name = argument.partition("=")
    try:
        if action == "locate":
            print(hub.locate(parse_reference(name), report))
        elif action == "pull":
            print(hub.path(hub.pull(parse_reference(name), report)))
        elif action == "check":
            print(*(line for model in hub.recorded() for line in hub.check(model, report)), sep="\\n")
        elif action == "progress":
            print(progress)
        elif action == "download-elsewhere":
            from huggingface_hub import hf_hub_download
            hf_hub_download(*name.split(":"))
        elif action == "free":
            usage = shutil.disk_usage("/")._replace(free=int(name))
            shutil.disk_usage = lambda path: usage
    except ModelUnavailable as error:
        print("error:", error)
"""

Start = Callable[..., list[str]]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as running:
        yield running


@pytest.fixture
def start(hub: Hub, tmp_path: Path) -> Start:
    """Runs actions in a new process whose caches are in `tmp_path`, and returns the lines that it prints."""

    def run(*actions: str, **variables: str) -> list[str]:
        return run_program(hub, tmp_path, PROGRAM, *actions, **variables)

    return run


def repository(hub: Hub, name: str = "org/model", **files: bytes) -> Repository:
    """Add a repository with one commit; in names of files, `__` stands for a dot."""
    added = hub.repositories[name] = Repository()
    added.commit({path.replace("__", "."): content for path, content in files.items()})
    return added


def test_the_first_start_downloads_and_later_starts_need_no_network(hub: Hub, start: Start, tmp_path: Path) -> None:
    commit = repository(hub, m_Q4_K_M__gguf=b"four" * 1000, m_Q8_0__gguf=b"eight" * 1000).branches["main"]
    path, progress = start("locate=org/model", "progress")
    assert Path(path).read_bytes() == b"four" * 1000
    assert Path(path) == tmp_path / f"hf/hub/models--org--model/snapshots/{commit}/m_Q4_K_M.gguf"
    assert "('m_Q4_K_M.gguf', 4000, 4000)" in progress
    assert len(hub.downloads()) == 1
    hub.requests.clear()
    assert start("locate=org/model") == start("locate=org/model", HF_HUB_OFFLINE="1") == [path]
    assert hub.requests == []


def test_a_start_uses_the_commit_of_the_first_and_a_pull_updates_it(hub: Hub, start: Start, tmp_path: Path) -> None:
    moving = repository(hub, m__gguf=b"first")
    old = moving.branches["main"]
    (first,) = start("locate=org/model")
    moving.commit({"m.gguf": b"second"})
    again, pulled, after = start("locate=org/model", "pull=org/model", "locate=org/model")
    assert again == first and Path(first).read_bytes() == b"first"
    assert pulled == after and Path(after).read_bytes() == b"second"
    assert (tmp_path / "hf/hub/models--org--model/refs/main").read_text() == moving.branches["main"]
    assert start(f"locate=org/model@{old}") == [first]


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: Hub, start: Start) -> None:
    models = repository(hub, m__gguf=b"main")
    models.commit({"m.gguf": b"other"}, branch="refs/pr/1")
    path, error = start("locate=org/model@refs/pr/1", "locate=org/model@v9")
    assert Path(path).read_bytes() == b"other"
    assert error.startswith("error: org/model has no revision v9")


def test_an_interrupted_download_continues_where_it_stopped_and_at_the_same_commit(
    hub: Hub, start: Start, tmp_path: Path
) -> None:
    content = os.urandom(12 * MEBI)
    models = repository(hub, m__gguf=content)
    hub.cut_after, hub.failing_after_cut = [11 * MEBI], True
    (error,) = start("locate=org/model")
    assert "answered with status 503" in error and "is kept and continued" in error
    assert not list(tmp_path.rglob("*.gguf"))
    (offline,) = start("locate=org/model", HF_HUB_OFFLINE="1")
    assert "is not on this machine completely and HF_HUB_OFFLINE is set" in offline
    hub.failing = False
    models.commit({"m.gguf": b"a later commit"})
    (path,) = start("locate=org/model")
    assert Path(path).read_bytes() == content
    assert hub.downloads() == [None, f"bytes={10 * MEBI}-", f"bytes={10 * MEBI}-"]


def test_a_cut_connection_is_resumed_at_once(hub: Hub, start: Start) -> None:
    content = os.urandom(12 * MEBI)
    repository(hub, m__gguf=content)
    hub.cut_after = [11 * MEBI]
    path, progress = start("locate=org/model", "progress")
    assert Path(path).read_bytes() == content
    assert hub.downloads() == [None, f"bytes={10 * MEBI}-"]
    assert f"('m.gguf', {12 * MEBI}, {12 * MEBI})" in progress


def test_a_safetensors_checkpoint_is_downloaded_without_code_or_pickled_weights(hub: Hub, start: Start) -> None:
    wanted = {"config.json": b'{"model_type": "known"}', "tokenizer.json": b"{}", "model.safetensors": b"weights"}
    others = {"modeling_own.py": b"import os", "pytorch_model.bin": b"pickle", "README.md": b"text"}
    hub.repositories["org/model"] = Repository()
    hub.repositories["org/model"].commit(wanted | others)
    (folder,) = start("locate=org/model")
    assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == wanted


def test_an_unknown_architecture_is_rejected_before_the_weights_are_downloaded(hub: Hub, start: Start) -> None:
    repository(hub, config__json=b'{"model_type": "unknown"}', model__safetensors=b"weights")
    repository(hub, "org/gguf", m__gguf=b"weights").info = {"gguf": {"architecture": "unknown"}}
    assert start("locate=org/model", "locate=org/gguf", "check=") == ["error: unknown architecture"] * 2 + [""]
    assert hub.downloads() == []


def test_every_error_is_one_sentence(hub: Hub, start: Start) -> None:
    repository(hub, m__gguf=b"content")
    repository(hub, "org/gated", m__gguf=b"content").gated = True
    absent, file, gated, free = start(
        "locate=org/absent", "locate=org/model:n.gguf", "locate=org/gated", "free=1000", "locate=org/model"
    )
    assert absent.startswith("error: the hub has no model org/absent, or it is private")
    assert file.startswith("error: org/model has no n.gguf: it has m.gguf, and supported are Q4_K_M, ")
    assert gated.startswith(f"error: org/gated is gated: accept its terms at {hub.url}/org/gated")
    assert "is full, so org/model cannot be downloaded (0 MB needed, 0 free)" in free
    offline, unpulled = start("locate=org/model", "pull=org/model", HF_HUB_OFFLINE="1")
    assert "org/model is not on this machine and HF_HUB_OFFLINE is set" in offline
    assert "cannot be pulled while HF_HUB_OFFLINE is set" in unpulled
    (unreachable,) = start("locate=org/other", HF_ENDPOINT="http://127.0.0.1:9")
    assert "the connection to the hub at http://127.0.0.1:9 failed" in unreachable
    (path,) = start("locate=org/gated", HF_TOKEN=TOKEN)
    assert Path(path).read_bytes() == b"content"
    assert hub.tokens_at_store == 0


def test_a_damaged_download_is_deleted(hub: Hub, start: Start, tmp_path: Path) -> None:
    repository(hub, m__gguf=b"content")
    hub.damaging = True
    (error,) = start("locate=org/model")
    assert "the download of m.gguf was damaged and has been deleted" in error and sha256(b"content") in error
    assert not list(tmp_path.rglob("*.incomplete"))
    hub.damaging = False
    (path,) = start("locate=org/model")
    assert Path(path).read_bytes() == b"content"


def test_checks_compare_the_checksums_of_the_hub_and_a_pull_repairs(hub: Hub, start: Start) -> None:
    repository(hub, config__json=b'{"model_type": "known"}', model__safetensors=b"weights")
    (folder,) = start("locate=org/model")
    assert start("check=") == ["('config.json', 'ok')", "('model.safetensors', 'ok')"]
    for name, content in (("config.json", b'{"model_type": "KNOWN"}'), ("model.safetensors", b"Weights")):
        (Path(folder) / name).resolve().write_bytes(content)
    config, weights = start("check=")
    assert "wrong checksum" in config and git_sha1(b'{"model_type": "known"}') in config
    assert "wrong checksum" in weights and sha256(b"weights") in weights
    assert start("pull=org/model", "check=") == [folder, "('config.json', 'ok')", "('model.safetensors', 'ok')"]


def test_what_another_program_downloaded_is_used_without_network(hub: Hub, start: Start) -> None:
    repository(hub, m_Q8_0__gguf=b"eight", m_Q4_0__gguf=b"four")
    start("download-elsewhere=org/model:m_Q8_0.gguf")
    offline = start("locate=org/model", "locate=org/model:Q4_0", HF_HUB_OFFLINE="1")
    assert Path(offline[0]).read_bytes() == b"eight"
    assert offline[1].startswith("error: org/model:Q4_0 is not on this machine")
    assert start("locate=org/model", HF_ENDPOINT="http://127.0.0.1:9") == offline[:1]
    hub.requests.clear()
    (four,) = start("locate=org/model:Q4_0")
    assert Path(four).read_bytes() == b"four" and len(hub.downloads()) == 1


def test_two_processes_at_once_download_a_file_once(hub: Hub, tmp_path: Path) -> None:
    content = os.urandom(4 * MEBI)
    repository(hub, m__gguf=content)
    command = [sys.executable, "-c", PROGRAM, "locate=org/model"]
    both = [
        subprocess.Popen(command, env=environment(hub, tmp_path), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = [process.communicate(timeout=60)[0].strip() for process in both]
    assert paths[0] == paths[1] and Path(paths[0]).read_bytes() == content
    assert len(hub.downloads()) == 1

"""The files in deploy/: they name metrics and options that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app as cli
from cli.main import load_command
from server.access.admission import Admission
from server.observability.metrics import Metrics, stage_readings
from server.observability.stages import StageExecutor
from server.operator_routes import admission_readings
from tests.fakes import InlineExecutor

DEPLOY = Path(__file__).parent.parent / "deploy"


def test_the_example_configuration_is_valid_and_the_unit_uses_options_that_exist() -> None:
    done = CliRunner().invoke(cli, ["config", "--config", str(DEPLOY / "rejoinder.toml")])
    assert done.exit_code == 0, done.output
    options = {option for parameter in load_command("serve").params for option in parameter.opts}
    for name in ("rejoinder.service", "Dockerfile"):
        serve_lines = [line for line in (DEPLOY / name).read_text().splitlines() if "serve" in line]
        used = {option for line in serve_lines for option in re.findall(r"--[a-z-]+", line)}
        assert used and used <= options


@pytest.mark.skipif(shutil.which("hadolint") is None, reason='hadolint is not installed: pip install -e ".[test]"')
def test_hadolint_accepts_the_dockerfile() -> None:
    done = subprocess.run(["hadolint", str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_image_gets_what_it_installs_and_no_secrets() -> None:
    lines = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]

    def is_left_out(path: str) -> bool:
        parents = [path, *map(str, PurePosixPath(path).parents)]
        return any(
            fnmatch(one, pattern.removeprefix("**/")) or fnmatch(one, pattern)
            for pattern in patterns
            for one in parents
        )

    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    packages = [name.removesuffix("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]]
    needed = [
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "deploy/requirements.lock",
        *(f"{name}/__init__.py" for name in packages),
    ]
    assert [path for path in needed if is_left_out(path)] == []
    secret = [".git/config", ".venv/bin/python", "deploy/rejoinder.env", "key.pem", "turns.sqlite", "keys.sqlite-wal"]
    assert [path for path in secret if not is_left_out(path)] == []


def test_the_guide_says_why_checks_of_checkov_are_left_out() -> None:
    left_out, explained = (
        set(re.findall(r"CKV\w+", (DEPLOY.parent / name).read_text()))
        for name in (".ci/run", "docs/guide/deployment.md")
    )
    assert left_out == explained != set()


@pytest.mark.slow
def test_bandit_finds_nothing_in_the_packages_that_serve() -> None:
    """At medium severity: the rest are asserts, subprocesses and random numbers."""
    pytest.importorskip("bandit", reason='bandit is not installed: pip install -e ".[test]"')
    packages = ["agent", "chat", "cli", "model", "server", "voice", "web"]
    options = ["-q", "-c", "pyproject.toml", "--severity-level", "medium", "-r", *packages]
    command = [sys.executable, "-m", "bandit", *options]
    done = subprocess.run(command, cwd=DEPLOY.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "rejoinder.service").read_text().replace("/opt/rejoinder/venv/bin/rejoinder", sys.executable)
    (tmp_path / "rejoinder.service").write_text(unit)
    command = ["systemd-analyze", "verify", str(tmp_path / "rejoinder.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "rejoinder.service" not in done.stderr, done.stderr


def test_kubernetes_accepts_the_manifests_and_the_pods_of_the_ray_cluster() -> None:
    reason = 'kubernetes-validate is not installed: pip install -e ".[test]"'
    kubernetes_validate, yaml = (pytest.importorskip(name, reason=reason) for name in ("kubernetes_validate", "yaml"))
    text = (DEPLOY / "kubernetes" / "cluster.yaml").read_text()
    documents: list[dict[str, Any]] = [one for one in yaml.safe_load_all(text) if one]
    (ray,) = (one for one in documents if one["kind"] == "RayCluster")  # its own schema is KubeRay's
    documents.remove(ray)
    groups = [ray["spec"]["headGroupSpec"], *ray["spec"]["workerGroupSpecs"]]
    documents += [{"apiVersion": "v1", "kind": "Pod", "metadata": {}, **group["template"]} for group in groups]
    assert len(documents) == 7
    for document in documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_grafana_asks_for_metrics_that_exist() -> None:
    metrics = Metrics()
    metrics.add_readings(admission_readings(Admission()))
    metrics.add_readings(stage_readings([StageExecutor("x", InlineExecutor())]))
    known = set(re.findall(r"^# TYPE (\w+)", metrics.text().decode(), re.MULTILINE))
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {
        name.removesuffix("_bucket") for text in expressions for name in re.findall(r"(?:rejoinder|process)_\w+", text)
    }
    assert len(asked) > 10
    assert asked - known == set()

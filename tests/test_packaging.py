"""What the package offers to install can be installed: the extras, the wheel, and the locked packages."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.real_time import HANG_S

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("agent", "chat", "cli", "lab", "model", "server", "voice", "web")


def test_no_extra_needs_a_build_without_isolation() -> None:
    """flash-attn's build imports torch, which pip's isolated build environment lacks, so it cannot be an extra: the
    documentation says how to install it separately."""
    extras = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    assert not [requirement for requirement in extras if requirement.startswith("flash-attn")]


def files(folder: Path) -> set[str]:
    """Files that are to be in the packages: all but the scripts of benchmarks."""
    found = {path.relative_to(folder) for name in PACKAGES for path in (folder / name).rglob("*") if path.is_file()}
    return {str(path) for path in found if "__pycache__" not in path.parts and path.parts[:2] != ("lab", "benchmarks")}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this tree, in which the wheel is built."""
    source = tmp_path_factory.mktemp("source")
    for name in [*PACKAGES, "tests"]:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return source


BUILD = """
import sys
from setuptools.build_meta import build_wheel
build_wheel(sys.argv[1], {"--build-option": ["--compression=stored"]})
"""
"""What pip runs, without compressing the weights."""


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel of this tree is unpacked, as an installation is."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, folder], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    ZipFile(built).extractall(folder / "site")
    return folder / "site"


@pytest.mark.slow
def test_the_wheel_contains_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    assert files(wheel) == files(ROOT)
    assert not (wheel / "lab" / "benchmarks").exists()
    assert {path.name for path in wheel.iterdir()} == {*PACKAGES, f"rejoinder-{PROJECT['version']}.dist-info"}


@pytest.mark.slow
def test_the_source_distribution_contains_the_packages_and_what_builds_them(source: Path, wheel: Path) -> None:
    """setuptools takes some tests along unless it is told not to."""
    (listed,) = source.glob("*.egg-info/SOURCES.txt")
    sources = {line for line in listed.read_text().splitlines() if not line.startswith("rejoinder.egg-info/")}
    assert sources == files(ROOT) | {"pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"}


@pytest.mark.parametrize("folder", ["adapters", "draft_heads"])
def test_what_drafts_takes_at_most_15_megabytes(folder: str) -> None:
    sizes = {file.name: file.stat().st_size for file in (ROOT / "model" / "engine" / folder).glob("*.safetensors")}
    assert sizes and max(sizes.values()) <= 15_000_000, sizes


SLOW = {"mcp", "openai"}
"""Packages that take up to a second to import. A default server does not use them."""

SPEECH = {"faster_whisper", "av", "onnxruntime", "piper"}
"""What a question in writing does not need either."""

PROGRAM = """
import sys
import server
assert server.__file__.startswith(sys.argv[1]), server.__file__
sys.path.append(sys.argv[2])  # for the fakes
import server.openmp, asyncio, atexit, os
from concurrent.futures import Future
from server import app
from cli.main import main
from server.serving import service
from tests.fakes import FakeLanguageModel, fake_speech_models

class Engine:
    failure, context = Future(), 512
    model = type("Model", (), {"grammars": type("Grammars", (), {"preload": staticmethod(lambda: None)})})
    def submit(self, steps, on_error, on_done, **options):
        on_done()
    def close(self):
        pass

service.load_engine = lambda *_: Engine()
service.load_speech_models = lambda *_: fake_speech_models()
service.Conversation = lambda engine: FakeLanguageModel()
app.read_ahead = lambda engine, tools: asyncio.sleep(0)
@atexit.register
def check_imports():
    if slow := SLOW & set(sys.modules):
        print("imported without need:", *slow, file=sys.stderr)
        os._exit(3)

sys.argv = ["rejoinder", "serve", "--port", "0", "--model", "tiny", "--max-conversations", "2"]
main()
""".replace("SLOW", str(SLOW))


@pytest.mark.slow
async def test_an_installed_wheel_serves_the_page(wheel: Path, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", PROGRAM, str(wheel), str(ROOT), cwd=tmp_path, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(wheel), "REJOINDER_DATA": str(tmp_path)},
    )  # fmt: skip
    assert process.stderr is not None
    try:
        async with asyncio.timeout(4 * HANG_S):  # for a server that imports everything
            log, match = b"", None
            while match is None:
                line = await process.stderr.readline()
                log += line
                assert line, log.decode()
                match = re.search(rb"Ready: (http://[\d.:]+)/", line)
        async with httpx.AsyncClient(base_url=match[1].decode(), timeout=HANG_S) as client:
            assert (await client.get("/healthz")).json()["version"] == PROJECT["version"]
            for path in (ROOT / "web").iterdir():
                if path.suffix in (".js", ".css", ".svg", ".json", ".png"):
                    assert (await client.get(f"/{path.name}")).content == path.read_bytes(), path.name
            assert "app.js" in (await client.get("/")).text
        process.terminate()
        log = await process.stderr.read()
        assert await process.wait() == 0, log.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.slow
def test_commands_import_only_what_they_use(tmp_path: Path) -> None:
    program = f"""
import server.openmp, sys
from types import SimpleNamespace
from cli import ask
from cli.main import app
assert not {SPEECH!r} & set(sys.modules), {SPEECH!r} & set(sys.modules)
from tests.fakes import FakeLanguageModel  # which needs some of them
ask.resolve_model = lambda options, data: options
ask.load_engine = lambda *_: SimpleNamespace(close=lambda: None)
ask.Conversation = lambda engine, **_: FakeLanguageModel()
app(["--help"], standalone_mode=False)
app(["ask", "What is the capital of France?"], standalone_mode=False)
assert not {SLOW!r} & set(sys.modules), {SLOW!r} & set(sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "REJOINDER_DATA": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris." in done.stdout


DEPLOY = ROOT / "deploy"
TORCH = next(Requirement(text) for text in PROJECT["dependencies"] if text.startswith("torch=="))
"""In no lock: its builds for processors and for GPUs have different checksums, and pyproject.toml pins it."""


def locked() -> dict[str, str]:
    """Version of each locked package; the checksums are on lines of their own."""
    text = (DEPLOY / "requirements.lock").read_text()
    pins = re.findall(r"^([a-z0-9-]+)==([^ ;]+)[^\\\n]*\\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(pins) == len(re.findall(r"^[a-z]", text, re.MULTILINE))  # every package has a checksum
    return dict(pins)


def constrained() -> dict[str, str]:
    """Version of each package of all extras."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^ \n]+)", (DEPLOY / "constraints.txt").read_text(), re.MULTILINE))


def test_every_dependency_is_locked_in_a_version_that_the_project_allows() -> None:
    pins, extras = constrained(), PROJECT["optional-dependencies"]
    names = [name for group in [PROJECT["dependencies"], *extras.values()] for name in group]
    for requirement in map(Requirement, names):
        if requirement.name not in ("torch", "triton", "rejoinder"):  # torch's builds for GPUs pin Triton
            name = canonicalize_name(requirement.name)
            assert pins[name] in requirement.specifier, f"run deploy/lock.sh: {requirement}"


def test_the_image_installs_those_versions_with_their_checksums() -> None:
    pins, versions, extras = locked(), constrained(), PROJECT["optional-dependencies"]
    assert {name: versions[name] for name in pins} == pins
    names = [*PROJECT["dependencies"], *extras["models-small"], *extras["qwen-1-5b"], *extras["tracing"]]
    assert {canonicalize_name(Requirement(name).name) for name in names} - {"torch"} <= set(pins)


def test_the_bill_of_materials_names_the_packages_of_all_extras_and_torch() -> None:
    sbom = json.loads((DEPLOY / "sbom.json").read_text())
    assert sbom["metadata"]["component"]["version"] == PROJECT["version"], "run deploy/lock.sh"
    named = {component["name"]: component["version"] for component in sbom["components"]}
    assert named.pop("torch") in TORCH.specifier
    assert named == constrained()

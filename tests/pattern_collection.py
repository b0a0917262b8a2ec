"""Every regular expression of the product, with the operations that it is used in, read from the syntax trees.

A pattern that is put together inside a function cannot be tested before it is used: it has to be a constant.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_PACKAGES = ("agent", "cli", "lab", "model", "server", "voice", "web")
_MEASUREMENTS = ROOT / "lab" / "benchmarks"
"""Scripts of the project's own measurements, which read nothing from outside."""

_OPERATIONS = frozenset("match search fullmatch sub subn split findall finditer".split())
_ANY_LITERAL = "a"
"""Stands for what `re.escape` returns: it has no quantifier."""


PUT_TOGETHER = {
    ("lab/convert/known_facts.py", "pattern"): "how right answers to our own questions are recognized",
    ("lab/bench/grading.py", "'|'.join(alternatives)"): "phrases of the question files of our own benchmarks",
}
"""The expressions that may be known only when they run, and what they are."""


@dataclass(frozen=True)
class Use:
    """A pattern, and how it is used.

    Attributes:
        module: where it is defined, as `agent.closed_forms`.
        where: module and line, or module and name.
        operations: methods of `re.Pattern`. Without a known use: `finditer` and `fullmatch`.
    """

    module: str
    where: str
    pattern: re.Pattern[Any]
    operations: frozenset[str]


@dataclass(frozen=True)
class Collection:
    """The patterns, and the expressions that cannot be read before they run, each as a sentence."""

    uses: tuple[Use, ...]
    unreadable: tuple[str, ...]


def collect() -> Collection:
    """All patterns of the product. Imports each module that has one."""
    paths = [
        path for package in _PACKAGES for path in (ROOT / package).rglob("*.py") if _MEASUREMENTS not in path.parents
    ]
    sources = {path: ast.parse(path.read_text()) for path in paths}
    operations = _operations(sources.values())
    uses: list[Use] = []
    unreadable: list[str] = []
    for path, tree in sorted(sources.items()):
        calls = list(_pattern_calls(tree))
        if not calls:
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        names = vars(importlib.import_module(name))
        constants = dict(_constants(names, tree))
        uses += [
            Use(name, f"{name}.{constant}", pattern, operations[constant] or frozenset({"finditer", "fullmatch"}))
            for constant, patterns in constants.items()
            for pattern in patterns
        ]
        module_level, made = _module_level(tree), _in_makers_of_constants(tree)
        for call, operation in calls:
            if operation == "compile" and (module_level.get(call) in constants or call in made):
                continue
            place = f"{path.relative_to(ROOT)}:{call.lineno}"
            if call.args and (str(path.relative_to(ROOT)), ast.unparse(call.args[0])) in PUT_TOGETHER:
                continue
            try:
                pattern = _evaluated(call, operation, names)
            except Exception as error:
                unreadable.append(
                    f"{place}: {ast.unparse(call)[:80]} is known only when it runs ({error}): make it a constant."
                )
                continue
            used = frozenset({"finditer", "fullmatch"} if operation == "compile" else {operation})
            uses.append(Use(name, f"{name}:{call.lineno}", pattern, used))
    return Collection(tuple(uses), tuple(unreadable))


def _pattern_calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Calls of the module `re` that take a pattern."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(value=ast.Name(id="re"), attr=operation) if operation in {*_OPERATIONS, "compile"}:
                yield node, operation


def _evaluated(call: ast.Call, operation: str, names: dict[str, Any]) -> re.Pattern[Any]:
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    position = {"compile": 1, "split": 3, "sub": 4, "subn": 4}.get(operation, 2)
    flags = keywords.get("flags") or (call.args[position] if len(call.args) > position else ast.Constant(0))
    pattern = _value(_without_escapes(call.args[0]), names)
    if isinstance(pattern, re.Pattern):
        return pattern
    return re.compile(pattern, _value(flags, names))


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.fix_missing_locations(ast.Expression(node)), "<pattern>", "eval"), dict(names))


def _without_escapes(node: ast.expr) -> ast.expr:
    class Escapes(ast.NodeTransformer):
        def visit_Call(self, call: ast.Call) -> ast.AST:
            if ast.unparse(call.func) == "re.escape" or ".join(map(re.escape, " in ast.unparse(call):
                return ast.copy_location(ast.Constant(_ANY_LITERAL), call)
            return self.generic_visit(call)

    copied = ast.parse(ast.unparse(node), mode="eval").body
    return Escapes().visit(copied)  # type: ignore[no-any-return]


def _in_makers_of_constants(tree: ast.Module) -> set[ast.Call]:
    """The calls in functions that are only called for constants, whose patterns are found there."""
    at_module_level = _module_level(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    found: set[ast.Call] = set()
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            callers = [call for call in calls if ast.unparse(call.func) == function.name]
            if callers and all(call in at_module_level for call in callers):
                found |= {node for node in ast.walk(function) if isinstance(node, ast.Call)}
    return found


def _module_level(tree: ast.Module) -> dict[ast.Call, str]:
    """The calls outside functions, by the constant that they are assigned to."""
    found: dict[ast.Call, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found |= {node: target.id for node in ast.walk(statement) if isinstance(node, ast.Call)}
    return found


def _constants(names: dict[str, Any], tree: ast.Module) -> Iterator[tuple[str, list[re.Pattern[Any]]]]:
    """The constants that a module assigns and that hold compiled patterns, in containers and objects, too."""
    for name in dict.fromkeys(_module_level(tree).values()):
        if name in names and (patterns := list(_patterns_in(names[name]))):
            yield name, patterns


def _patterns_in(value: Any, depth: int = 4) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict):
        for part in (*value, *value.values()):
            yield from _patterns_in(part, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _patterns_in(part, depth - 1)
    elif depth and hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        for part in vars(value).values():
            yield from _patterns_in(part, depth - 1)


def _operations(trees: Any) -> dict[str, frozenset[str]]:
    """The methods that are called on each name, in any module."""
    found: dict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=operation)) if operation in _OPERATIONS:
                    found[name].add(operation)
    return defaultdict(frozenset, {name: frozenset(used) for name, used in found.items()})

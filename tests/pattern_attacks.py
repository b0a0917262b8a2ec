"""What makes a regular expression slow: strings derived from its syntax tree, and repetitions that overlap.

An attack is what leads up to a repetition, much of what it repeats, and an end that does not match.
"""

from __future__ import annotations

import re
import re._constants as sre  # the names of the tree's nodes
import re._parser as sre_parser
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

Node: TypeAlias = tuple[Any, Any]

_ALPHABET = tuple(map(chr, range(9, 127))) + tuple("’é–…😀\x00")
"""Characters that stand for all others."""

MANY = 20
"""A repetition with a limit above this one is attacked like one without a limit."""

_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)
_TAILS = ("", "\x00", " !")
_GENERIC = (
    " ",
    "\t\n",
    "0",
    "a",
    ".",
    "-",
    "a ",
    "1 ",
    "a1",
    "0, ",
    "a.",
    "1-",
    " and ",
    "one ",
    ", ",
    '"',
    "'",
    "@",
    "<",
    "[",
    "a@a.",
    "\n",
)
_MAX_SAMPLES = 12
_MAX_DERIVED = 200
"""Pairs of a beginning and what it repeats, for each pattern. Long alternatives of words have thousands."""


def attacks(pattern: re.Pattern[Any], length: int) -> Iterator[Any]:
    """Strings of this length that may make the pattern slow; bytes for a pattern of bytes."""
    tree = list(sre_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
    seen: set[str] = set()
    derived = list(dict.fromkeys(_derived(tree)))
    step = max(1, -(-len(derived) // _MAX_DERIVED))
    for prefix, pump in derived[::step]:
        for tail in _TAILS:
            count = max(0, length - len(prefix) - len(tail)) // len(pump)
            text = (prefix + pump * count)[: length - len(tail)] + tail
            if text not in seen:
                seen.add(text)
                yield text.encode("utf-8", "replace")[:length] if isinstance(pattern.pattern, bytes) else text


def _derived(tree: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """What begins an attack and what it repeats."""
    pumps = dict.fromkeys(_GENERIC)
    for prefix, body in _repetitions(tree, [""]):
        samples = _samples(body)
        for pump in filter(None, samples):
            pumps[pump] = None
            for start in prefix:
                yield start, pump
                if start:
                    pumps[start + pump] = None  # the beginning of a match again and again
                    pumps[start] = None
        chars = [sample for sample in samples if len(sample) == 1]
        for first in chars[:4]:
            for second in chars[:4]:
                if first != second:
                    pumps[first + second] = None
    pumps |= dict.fromkeys(filter(None, _samples(tree)))
    for sample in filter(None, _samples(tree)):
        pumps[sample + " "] = None
    for pump in pumps:
        yield "", pump


def _repetitions(tree: Sequence[Node], before: list[str]) -> Iterator[tuple[list[str], Sequence[Node]]]:
    """The bodies of the repetitions, with samples of what comes before each."""
    prefix = before
    for node in tree:
        op, value = node
        if op in (*_REPEATS, sre.POSSESSIVE_REPEAT):
            if value[1] == sre.MAXREPEAT or value[1] > MANY:
                yield prefix, value[2]
            yield from _repetitions(value[2], prefix)
        elif op is sre.SUBPATTERN:
            yield from _repetitions(value[-1], prefix)
        elif op is sre.BRANCH:
            for branch in value[1]:
                yield from _repetitions(branch, prefix)
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _repetitions(value[1], prefix)
        elif op is sre.ATOMIC_GROUP:
            yield from _repetitions(value, prefix)
        prefix = [start + sample for start in prefix for sample in _samples([node])][:3]


def _samples(tree: Sequence[Node]) -> list[str]:
    """A few strings that a part of a pattern matches, most of them without regard to what is around it."""
    found = [""]
    for op, value in tree:
        match op:
            case sre.LITERAL:
                more = [chr(value)]
            case sre.NOT_LITERAL | sre.ANY | sre.IN:
                more = _representatives((op, value))
            case sre.BRANCH:
                more = [sample for branch in value[1] for sample in _samples(branch)[:3]]
            case sre.SUBPATTERN:
                more = _samples(value[-1])
            case sre.ATOMIC_GROUP:
                more = _samples(value)
            case sre.MAX_REPEAT | sre.MIN_REPEAT | sre.POSSESSIVE_REPEAT:
                least, most, body = value
                inner = _samples(body)
                more = [sample * max(1, least) for sample in inner]
                more = [*more, ""] if least == 0 and most == 1 else more
            case _:  # positions, assertions and references
                more = [""]
        found = [start + sample for start, sample in _spread(found, more)]
    return list(dict.fromkeys(found))


def _spread(found: list[str], more: list[str]) -> Iterator[tuple[str, str]]:
    """Combinations, in such a way that each part occurs even where there are too many."""
    if len(found) * len(more) <= _MAX_SAMPLES:
        yield from ((start, sample) for start in found for sample in more)
        return
    for number in range(min(_MAX_SAMPLES, max(len(found), len(more)))):
        yield found[number % len(found)], more[number % len(more)]


def characters(node: Node, ignore_case: bool = False) -> frozenset[str]:
    """Which characters of the alphabet a node for one character matches."""
    op, value = node
    if op is sre.LITERAL:
        found = {chr(value)}
    elif op is sre.NOT_LITERAL:
        found = set(_ALPHABET) - {chr(value)}
    elif op is sre.ANY:
        found = set(_ALPHABET) - {"\n"}
    else:
        negated, found = False, set[str]()
        for kind, part in value:
            match kind:
                case sre.NEGATE:
                    negated = True
                case sre.LITERAL:
                    found.add(chr(part))
                case sre.RANGE:
                    found |= {chr(part[0])} | {char for char in _ALPHABET if part[0] <= ord(char) <= part[1]}
                case sre.CATEGORY:
                    found |= {char for char in _ALPHABET if _CATEGORIES[part](char)}
        found = set(_ALPHABET) - found if negated else found
    if ignore_case:
        found |= {variant for char in found for variant in (char.lower(), char.upper())}
    return frozenset(found)


_CATEGORIES = {
    sre.CATEGORY_DIGIT: lambda char: char.isdigit(),
    sre.CATEGORY_NOT_DIGIT: lambda char: not char.isdigit(),
    sre.CATEGORY_SPACE: lambda char: char.isspace(),
    sre.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    sre.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    sre.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}


def _representatives(node: Node) -> list[str]:
    """A letter, a digit, a space and others, of those that it matches."""
    found = characters(node)
    preferred = [char for char in "a0 .-,'\n_A(9" if char in found]
    return [*preferred, *sorted(found - set(preferred))[:2]][:5]


def overlaps(pattern: re.Pattern[Any]) -> list[str]:
    """Repetitions without a limit that can divide the same characters between them in several ways: one inside the
    other, or one after the other with nothing between them that has to match. Empty for a good pattern."""
    ignore_case = bool(pattern.flags & re.IGNORECASE)
    tree = list(sre_parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG))
    return list(dict.fromkeys(_Overlaps(ignore_case).found_in(tree)))


class _Overlaps:
    """Looks for overlaps. Follows `first`, what a part can begin with, and `open`, the repetitions that a part can end
    in the middle of."""

    def __init__(self, ignore_case: bool) -> None:
        self._ignore_case, self._found = ignore_case, list[str]()

    def found_in(self, tree: Sequence[Node]) -> list[str]:
        self._open_after(tree, [])
        return self._found

    def _open_after(self, tree: Sequence[Node], opened: list[frozenset[str]]) -> list[frozenset[str]]:
        """The repetitions that may still go on after a part, given those that may go on before it."""
        for op, value in tree:
            if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
                opened = []
            elif op is sre.SUBPATTERN:
                opened = self._open_after(value[-1], opened)
            elif op is sre.BRANCH:
                opened = [entry for branch in value[1] for entry in self._open_after(branch, opened)]
            elif op is sre.POSSESSIVE_REPEAT or op is sre.ATOMIC_GROUP:
                body = value[2] if op is sre.POSSESSIVE_REPEAT else value
                self._open_after(body, opened)
                opened = opened if self._nullable([(op, value)]) else []
            elif op in _REPEATS:
                opened = self._after_repeat(value, opened)
        return opened

    def _after_repeat(self, value: Any, opened: list[frozenset[str]]) -> list[frozenset[str]]:
        least, most, body = value
        unlimited = most == sre.MAXREPEAT
        skipped = opened if least == 0 else []
        if unlimited and len(body) == 1 and body[0][0] in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            mine = characters(body[0], self._ignore_case)
            for other in opened:
                if both := mine & other:
                    self._found.append(f"two repetitions next to each other both match {min(both)!r}")
            return [*skipped, mine]
        inside = self._open_after(body, opened)
        if unlimited:
            inside = self._open_after(body, inside)  # the next round
        return [*skipped, *inside]

    def _nullable(self, tree: Sequence[Node]) -> bool:
        low, _ = sre_parser.SubPattern(sre_parser.State(), list(tree)).getwidth()
        return low == 0

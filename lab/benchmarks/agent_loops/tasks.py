"""Twenty tasks over the shop's tools: what a user wants, what goes wrong, and how the loop must end with a model that
makes the calls of a script. A real model is asked the same (`__main__.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.tool_loop import MAX_CALLS, MAX_REPEATS
from lab.benchmarks.agent_loops.shop import NUM_PAGES, Faults

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        request: what the user says.
        contains: what a right answer contains; empty where only the end of the loop is of interest.
        script: the calls that a scripted model makes; then, or once it has no tools, it answers.
        made, failed: how many calls the response then has, and how many of them failed; None if that depends on time.
        served: how many of them reached the shop.
        stopped_by: why no further calls could be made.
        options: further fields of the request.
    """

    name: str
    request: str
    contains: str
    script: Sequence[Call]
    made: int | None
    failed: int | None = 0
    served: int | None = None
    stopped_by: str | None = None
    faults: Faults = field(default_factory=Faults)
    options: dict[str, Any] = field(default_factory=dict)


def _price(product: str) -> Call:
    return "price", {"product": product}


def _stock(product: str) -> Call:
    return "stock", {"product": product}


def _pages(first: int, last: int) -> list[Call]:
    return [("read_page", {"page": page}) for page in range(first, last + 1)]


_ORDER, _CUSTOMER = ("find_order", {"number": "A17"}), ("find_customer", {"name": "Maria Sand"})
_MESSAGE = ("send_message", {"email": "m.sand@example.org", "text": "Your lamps are ready."})

TASKS = (
    Task("one call", "What does a lamp cost?", "24.5", [_price("lamp")], 1),
    Task(
        "two tools", "What does a rug cost, and how many are left?", "12", [_price("rug"), _stock("rug")], 2
    ),
    Task(
        "a chain", "Tell the customer of order A17 by e-mail that their lamps are ready.", "",
        [_ORDER, _CUSTOMER, _MESSAGE], 3,
    ),
    Task("thirty pages", "Read the manual to page 30. Which word is on page 30?", "harbour", _pages(1, 30), 30),
    Task(
        "more pages than calls", f"Read the manual to page {NUM_PAGES}.", "", _pages(1, NUM_PAGES), MAX_CALLS,
        stopped_by="max_tool_calls",
    ),
    Task(
        "the request's own limit", "Which words are on pages 1 to 5?", "", _pages(1, 5), 3,
        stopped_by="max_tool_calls", options={"max_tool_calls": 3},
    ),
    Task(
        "an error once", "What does a table cost?", "240", [_price("table")] * 2, 2, failed=1,
        faults=Faults(errors=Counter(price=1)),
    ),
    Task(
        "an error each time", "What does a chair cost?", "", [_price("chair")] * 9, 2 * MAX_REPEATS,
        failed=2 * MAX_REPEATS, served=MAX_REPEATS, stopped_by="repetition", faults=Faults(errors=Counter(price=99)),
    ),
    Task(
        "an error, and another tool", "Is order A17 of somebody in Oslo?", "", [_ORDER, _CUSTOMER], 2, failed=1,
        faults=Faults(errors=Counter(find_order=1)),
    ),
    Task(
        "nothing is found", "Where does Maria live?", "Oslo", [("find_customer", {"name": "Maria"}), _CUSTOMER], 2
    ),
    Task(
        "the same call again and again", "How many tables are left?", "3", [_stock("table")] * 9, 1 + MAX_REPEATS,
        failed=MAX_REPEATS, served=1, stopped_by="repetition",
    ),
    Task(
        "pages in a circle", "Read the manual to its end.", "", _pages(1, 3) * 5, 8, failed=MAX_REPEATS, served=5,
        stopped_by="repetition", faults=Faults(last_page=3),
    ),
    Task("read, change and read", "Check A17, write to Maria, and check it again.", "", [_ORDER, _MESSAGE, _ORDER], 3),
    Task(
        "slow but in time", "How many rugs are left?", "12", [_stock("rug")], 1,
        faults=Faults(seconds={"stock": 0.1}),
    ),
    Task(
        "a time-out", "What does a rug cost?", "", [_price("rug")], 1, failed=1, faults=Faults(seconds={"price": 3.0})
    ),
    Task(
        "a time-out, and another tool", "Who ordered A17, and what does a lamp cost?", "24.5",
        [_ORDER, _price("lamp")], 2, failed=1, faults=Faults(seconds={"find_order": 3.0}),
    ),
    Task(
        "no time left", "How many of everything are left?", "",
        [_stock(product) for product in ("lamp", "chair", "table", "rug")], None, failed=None, stopped_by="time_limit",
        faults=Faults(seconds={"stock": 0.3}), options={"max_tool_seconds": 0.5},
    ),
    Task(
        "an overlong result", "What does a chair cost?", "89", [_price("chair")], 1,
        faults=Faults(long=frozenset({"price"})),
    ),
    Task(
        "overlong results, more than the context holds", "Read pages 1 to 8. Which word is on page 8?", "marble",
        _pages(1, 8), 8, faults=Faults(long=frozenset({"read_page"})),
    ),
    Task(
        "long and failing", "Which word is on page 2, and what does a lamp cost?", "24.5",
        [*_pages(2, 2), _price("lamp"), _price("lamp")], 3, failed=1,
        faults=Faults(errors=Counter(price=1), long=frozenset({"read_page"})),
    ),
)  # fmt: skip

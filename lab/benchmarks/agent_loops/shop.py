"""An MCP server of a shop, whose tools fail as a task wants them to."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field

from mcp.server.mcpserver import MCPServer

_ORDERS = {"A17": ("Maria Sand", "lamp", 2), "B40": ("David Roth", "chair", 1)}
_CUSTOMERS = {"Maria Sand": ("Oslo", "m.sand@example.org"), "David Roth": ("Bergen", "d.roth@example.org")}
_PRICES = {"lamp": 24.5, "chair": 89.0, "table": 240.0, "rug": 61.0}
_STOCK = {"lamp": 7, "chair": 0, "table": 3, "rug": 12}
_WORDS = "harbour lantern meadow copper violin thunder saddle orchard marble falcon".split()

NUM_PAGES = 60


@dataclass
class Faults:
    """What goes wrong.

    Attributes:
        errors: by tool, how many of its next calls fail.
        seconds: by tool, how long each call takes.
        long: tools whose results are followed by 20,000 characters of nothing.
        last_page: the page after which the book begins again; 0 for never.
    """

    errors: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    long: frozenset[str] = frozenset()
    last_page: int = 0


class Shop:
    """The server's tools, and what was called.

    Attributes:
        faults: of the task that runs.
        served: names of the tools of all calls that arrived.
    """

    def __init__(self) -> None:
        self.faults, self.served = Faults(), list[str]()
        self.server = MCPServer("shop")
        for tool in (self.find_order, self.find_customer, self.price, self.stock, self.read_page, self.send_message):
            self.server.tool()(tool)

    def begin(self, faults: Faults) -> None:
        """Another task begins."""
        self.faults, self.served = Faults(Counter(faults.errors), faults.seconds, faults.long, faults.last_page), []

    async def find_order(self, number: str) -> str:
        """Look up an order by its number: who ordered it, and what."""
        return await self._result("find_order", _found(_ORDERS, number, ("customer", "product", "count")))

    async def find_customer(self, name: str) -> str:
        """Look up a customer by name: city and e-mail address."""
        return await self._result("find_customer", _found(_CUSTOMERS, name, ("city", "email")))

    async def price(self, product: str) -> str:
        """Look up what a product costs."""
        return await self._result(
            "price", _found({key: (value,) for key, value in _PRICES.items()}, product, ("price",))
        )

    async def stock(self, product: str) -> str:
        """Look up how many pieces of a product are left."""
        return await self._result("stock", _found({key: (value,) for key, value in _STOCK.items()}, product, ("left",)))

    async def read_page(self, page: int) -> str:
        """Read a page of the manual. Each page says which page comes next."""
        text = f"Page {page}. The word is {_WORDS[page % len(_WORDS)]}."
        last = self.faults.last_page
        following = 1 if page == last else page + 1
        return await self._result("read_page", f"{text} The next page is {following}." if page < NUM_PAGES else text)

    async def send_message(self, email: str, text: str) -> str:
        """Send a message to an e-mail address."""
        return await self._result("send_message", f"Sent to {email}.")

    async def _result(self, tool: str, text: str) -> str:
        self.served.append(tool)
        await asyncio.sleep(self.faults.seconds.get(tool, 0.0))
        if self.faults.errors[tool] > 0:
            self.faults.errors[tool] -= 1
            raise RuntimeError("the database is busy, try again")
        return text + " nothing" * 2500 if tool in self.faults.long else text


def _found(table: dict[str, tuple[object, ...]], key: str, names: tuple[str, ...]) -> str:
    if key not in table:
        return json.dumps({"error": f"nothing is known of {key}"})
    return json.dumps(dict(zip(names, table[key], strict=True)))

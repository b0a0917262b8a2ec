"""Python functions as tools: their schema, their calls, and what is wrong with those that cannot be one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Any, Literal

import pytest

from agent.capture import Form, PhoneNumber
from agent.tools import Caller, Dialogue, Spoken, tool
from agent.tools.function_tool import BadTool, function_tool
from agent.tools.protocol import ToolOutput
from tests.real_time import HANG_S, wait_until

ME = Caller("me")


@tool(read_only=True, holding_phrase="Let me look.", timeout_s=5)
def find_stock(product: str, shop: Literal["north", "south"] = "north", limit: int = 3) -> dict[str, Any]:
    """How many pieces of a product are in stock.

    Use it before a sale.

    Args:
        product: its name, as
            the customer says it
        shop: which shop

    Returns:
        the count
    """
    return {"product": product, "shop": shop, "limit": limit}


async def greet(name: str, caller: Caller) -> Spoken:
    """Greet someone."""
    await asyncio.sleep(0)
    return Spoken(f"Hello {name} from {caller.owner}")


def test_the_schema_comes_from_type_hints_and_docstring() -> None:
    made = function_tool(find_stock)
    assert made.declaration.name == "find_stock"
    assert made.declaration.description == "How many pieces of a product are in stock. Use it before a sale."
    assert made.declaration.parameters == {
        "type": "object",
        "properties": {
            "product": {"type": "string", "description": "its name, as the customer says it"},
            "shop": {"type": "string", "enum": ["north", "south"], "description": "which shop"},
            "limit": {"type": "integer"},
        },
        "required": ["product"],
    }
    assert (made.traits.read_only, made.traits.holding_phrase, made.traits.timeout_s) == (True, "Let me look.", 5)


async def test_functions_and_coroutines_are_called_with_checked_arguments() -> None:
    made = function_tool(find_stock)
    assert await made.run({"product": "tea"}, ME) == ToolOutput('{"product": "tea", "shop": "north", "limit": 3}')
    with pytest.raises(ValueError, match="shop: Input should be 'north' or 'south'"):
        await made.run({"product": "tea", "shop": "east"}, ME)
    with pytest.raises(ValueError, match="product: Field required"):
        await made.run({}, ME)
    spoken = function_tool(greet)
    assert "caller" not in spoken.declaration.parameters["properties"]
    assert await spoken.run({"name": "Ann"}, ME) == ToolOutput("Hello Ann from me", "Hello Ann from me")


async def test_a_function_that_blocks_does_not_block_the_others() -> None:
    release = threading.Event()

    def block() -> str:
        """Wait."""
        return "released" if release.wait(5) else "stuck"

    waiting = asyncio.create_task(function_tool(block).run({}, ME))
    await function_tool(find_stock).run({"product": "tea"}, ME)
    release.set()
    assert (await waiting).text == "released"


async def test_a_function_that_hangs_stops_no_other_and_is_called_again_once_it_returns() -> None:
    release = threading.Event()

    def hang() -> str:
        """Wait."""
        release.wait(HANG_S)
        return "released"

    hanging = function_tool(hang)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await hanging.run({}, ME)

    await asyncio.gather(*(give_up() for _ in range(16)))
    assert (await function_tool(find_stock).run({"product": "tea"}, ME)).text.startswith("{")
    with pytest.raises(ValueError, match="hang hangs: 16 earlier calls"):
        await hanging.run({}, ME)
    release.set()
    await wait_until(lambda: "tool" not in [thread.name for thread in threading.enumerate()])
    assert (await hanging.run({}, ME)).text == "released"


def test_a_function_that_hangs_does_not_keep_the_process_alive() -> None:
    program = """
import asyncio, time
from agent.tools.function_tool import Caller, function_tool

def hang():
    "Wait."
    time.sleep(3600)

async def call():
    async with asyncio.timeout(0.1):
        await function_tool(hang).run({}, Caller("me"))

try:
    asyncio.run(call())
except TimeoutError:
    print("timed out")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=HANG_S, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "timed out\n")


class Answers:
    """A user who answers each form with their number."""

    async def fill_in(self, form: Form) -> dict[str, Any]:
        return {"phone": "5551234567"}


async def ends_later() -> None:
    """End the process."""
    sys.exit(3)


def ends_at_once() -> None:
    """End the process."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("function", "error"), [(ends_later, "SystemExit"), (ends_at_once, "KeyboardInterrupt")])
async def test_a_function_that_ends_the_process_only_fails(function: Any, error: str) -> None:
    with pytest.raises(RuntimeError, match=f"raised {error}"):
        await function_tool(function).run({}, ME)


async def test_a_tool_asks_the_user_through_a_parameter_that_the_schema_does_not_have() -> None:
    @tool(opens_calls=True)
    async def sign_up(dialogue: Dialogue, caller: Caller) -> str:
        """Sign up."""
        return f"{caller.owner}: {(await dialogue.fill_in(Form(phone=PhoneNumber())))['phone']}"

    made = function_tool(sign_up)
    assert made.traits.opens_calls
    assert made.declaration.parameters["properties"] == {}
    assert (await made.run({}, replace(ME, dialogue=Answers()))).text == "me: 5551234567"
    with pytest.raises(ValueError, match="The user cannot be asked here"):
        await made.run({}, ME)


def asks_and_blocks(dialogue: Dialogue) -> str:
    """Something."""
    return ""


@tool(read_only=True)
async def asks_and_only_reads(dialogue: Dialogue) -> str:
    """Something."""
    return ""


@tool(opens_calls=True)
def opens_with_arguments(name: str) -> str:
    """Something."""
    return name


def no_docstring(name: str) -> None: ...


def no_hint(name) -> None:  # type: ignore[no-untyped-def]
    """Something."""


def any_number(*names: str) -> None:
    """Something."""


def no_schema(thing: threading.Lock) -> None:
    """Something."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_docstring, "no_docstring has no docstring"),
        (no_hint, "the parameter 'name' of no_hint has no type hint"),
        (any_number, "takes \\*names"),
        (no_schema, "have no JSON schema"),
        (asks_and_blocks, "has to be an `async def`"),
        (asks_and_only_reads, "cannot be read_only"),
        (opens_with_arguments, "cannot have arguments without a default"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_rejected(function: Any, message: str) -> None:
    with pytest.raises(BadTool, match=message):
        function_tool(function)

"""Function calls during a phone call: logged, and reported to a simulated phone that asks for it."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from lab.simulator.carriers import CARRIERS, REPORT_FUNCTIONS, CalledFunction
from server.telephony.called_functions import CalledFunctions
from tests.server.realtime.test_response_writer import ARGUMENTS, WEATHER
from tests.server.telephony.virtual_call import VirtualCaller, run_call

RAIN = CalledFunction("get_weather", ARGUMENTS, "Rain.")


async def ask_for_the_weather(caller: VirtualCaller) -> None:
    """The caller asks, the assistant calls a function, and its result is spoken."""
    await caller.listen(0.1)
    assert caller.conversation is not None

    async def send(type: str, **fields: Any) -> None:
        assert caller.conversation is not None
        await caller.conversation.receive(json.dumps({"type": type, **fields}))

    caller.language_model.calls = [("get_weather", ARGUMENTS)]
    await send("session.update", session={"type": "realtime", "tools": [WEATHER]})
    await caller.ask()
    (call,) = [event for event in caller.events if event.type == "response.function_call_arguments.done"]
    output = {"type": "function_call_output", "call_id": (call.model_extra or {})["call_id"], "output": "Rain."}
    await send("conversation.item.create", item=output)
    await send("response.create")
    await caller.listen(3.0)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_function_call_is_logged_and_reported_to_a_phone_that_asks(
    carrier: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rejoinder.phone")
    caller = run_call(ask_for_the_weather, VirtualCaller(carrier, **REPORT_FUNCTIONS))  # type: ignore[arg-type]
    assert caller.functions == ([] if carrier == "audiosocket" else [RAIN])  # which has no frames of text
    logged = [record.getMessage() for record in caplog.records if "get_weather" in record.getMessage()]
    assert len(logged) == 1 and logged[0].endswith(f"called get_weather({ARGUMENTS}) → Rain.")
    assert caller.heard_s > 0.5


def test_calls_of_mcp_tools_carry_their_output_or_what_went_wrong() -> None:
    item = {"type": "mcp_call", "name": "dim", "arguments": "{}", "output": "Done.", "error": None}
    failed = {**item, "output": None, "error": {"type": "http_error", "message": "HTTP status 500"}}
    outputs = [called.output for one in (item, failed) if (called := CalledFunctions().on_item(one)) is not None]
    assert outputs == ["Done.", "HTTP status 500"]


def test_a_carrier_gets_no_frame_that_it_does_not_know() -> None:
    assert run_call(ask_for_the_weather).functions == []

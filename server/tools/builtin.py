"""The built-in tools, together."""

from __future__ import annotations

from datetime import datetime

from server.tools.alarms import Alarms
from server.tools.calculator import calculator_tools
from server.tools.function_tool import ServerTool
from server.tools.notes import note_tools
from server.tools.time_questions import time_sum_tools
from server.tools.user_data import UserData
from server.tools.world_clock import clock_tools


def local_time() -> datetime:
    """The time of this machine, with its zone."""
    return datetime.now().astimezone()


def builtin_tools(data: UserData, alarms: Alarms) -> list[ServerTool]:
    """All of them."""
    clocks = [*clock_tools(local_time), *time_sum_tools(local_time)]
    return [*clocks, *calculator_tools(), *alarms.tools(), *note_tools(data, local_time)]

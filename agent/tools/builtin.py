"""The built-in tools, together."""

from __future__ import annotations

from datetime import datetime

from agent.tools.alarms import Alarms
from agent.tools.calculator import calculator_tools
from agent.tools.function_tool import ServerTool
from agent.tools.notes import note_tools
from agent.tools.time_questions import time_sum_tools
from agent.tools.user_data import UserData
from agent.tools.world_clock import clock_tools


def local_time() -> datetime:
    """The time of this machine, with its zone."""
    return datetime.now().astimezone()


def builtin_tools(data: UserData, alarms: Alarms) -> list[ServerTool]:
    """All of them."""
    clocks = [*clock_tools(local_time), *time_sum_tools(local_time)]
    return [*clocks, *calculator_tools(), *alarms.tools(), *note_tools(data, local_time)]

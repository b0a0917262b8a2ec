"""Functions that the server itself runs: built-in ones, the operator's Python functions, and tools of MCP servers."""

from agent.capture.form_runner import Dialogue, NotCaptured
from agent.tools.function_tool import Caller, Spoken, tool

__all__ = ["Caller", "Dialogue", "NotCaptured", "Spoken", "tool"]

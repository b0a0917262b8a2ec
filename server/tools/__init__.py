"""Functions that the server itself runs: built-in ones, the operator's Python functions, and tools of MCP servers."""

from server.tools.function_tool import Caller, Spoken, tool
from voice.captures import Dialogue, NotCaptured

__all__ = ["Caller", "Dialogue", "NotCaptured", "Spoken", "tool"]

"""A file of Python functions as tools, for `rejoinder serve --tools my_tools.py`."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from pathlib import Path

from agent.tools.function_tool import BadTool, ServerTool, function_tool


def load_tool_file(path: Path) -> list[ServerTool]:
    """The tools in a file: its own public functions, in their order. Functions that it imports and names that begin
    with an underscore are not tools.

    Raises:
        ValueError: the file cannot be imported, or a function in it cannot be a tool. The message names file and line.
    """
    path = Path(os.path.expanduser(path)).absolute()
    if not path.is_file():
        raise ValueError(f"there is no file of tools at {path}")
    name = f"rejoinder_tools_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file: its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{error.filename}, line {error.lineno}: {error.msg}") from None
    except Exception as error:
        raise ValueError(f"{path}, line {_line_in(path, error)}: {type(error).__name__}: {error}") from None
    functions = [
        value
        for attribute, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == name and not attribute.startswith("_")
    ]
    if not functions:
        raise ValueError(f"{path} defines no public function, so it has no tools")
    try:
        return [function_tool(function) for function in functions]
    except BadTool as error:
        line = inspect.getsourcelines(inspect.unwrap(error.function))[1]
        raise ValueError(f"{path}, line {line}: {error}") from None


def _line_in(path: Path, error: Exception) -> int:
    """The line of the file where it failed."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return lines[-1] or 0 if lines else 0

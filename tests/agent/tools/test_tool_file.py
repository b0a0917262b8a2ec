"""Files of tools, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.tools.tool_file import load_tool_file


def written(folder: Path, text: str) -> Path:
    path = folder / "my_tools.py"
    path.write_text(text)
    return path


def test_the_public_functions_of_a_file_are_tools(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\nfrom os.path import join\nfrom agent.tools import tool\n\n"
        "def _helper(a: int) -> int:\n    return a\n\n@tool(consequential=True)\ndef pay(amount: float) -> str:\n"
        '    """Pay."""\n    return join("a", str(_helper(1)))\n\n'
        'async def look() -> str:\n    """Look."""\n    return ""\n'
    )
    tools = load_tool_file(written(tmp_path, text))
    assert [tool.name for tool in tools] == ["pay", "look"]
    assert tools[0].traits.consequential


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ndef f(:\n", r"my_tools\.py, line 2: "),
        ("x = 1\n\nimport no_such_module\n", r"my_tools\.py, line 3: ModuleNotFoundError: No module named"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", r"my_tools\.py, line 2: ZeroDivisionError"),
        ("x = 1\n\n\ndef f(a: int) -> int:\n    return a\n", r"my_tools\.py, line 4: f has no docstring"),
        ("x = 1\n", r"defines no public function"),
    ],
)
def test_an_error_names_the_file_and_the_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_tool_file(written(tmp_path, text))


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file of tools"):
        load_tool_file(tmp_path / "none.py")

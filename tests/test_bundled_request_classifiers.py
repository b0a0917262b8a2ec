"""The request classifiers that are bundled were trained with the instructions and tools that sessions have today."""

from __future__ import annotations

import json
from pathlib import Path

from agent.instructions import INSTRUCTIONS
from agent.tools.server_tools import ServerTools, ToolSettings
from model.checkpoint.bound_file import load_bound_file
from model.engine.bundled import BUNDLED_REQUEST_CLASSIFIERS
from model.engine.request_classifier import instructions_checksum


def test_bundled_request_classifiers_know_the_default_instructions_and_the_built_in_tools(tmp_path: Path) -> None:
    """Otherwise they are never asked: train them again with `rejoinder convert request-classifier`."""
    tools = {tool.name for tool in ServerTools(ToolSettings(data=tmp_path)).registry}
    files = list(BUNDLED_REQUEST_CLASSIFIERS.glob("*.safetensors"))
    assert files
    for file in files:
        _, metadata = load_bound_file(file, "request classifier", "train it")
        assert metadata["instructions_sha256"] == instructions_checksum(INSTRUCTIONS)
        assert tools <= set(json.loads(metadata["tools"]))

"""A server with a tiny model in a process of its own, whose memory is that of nothing else.

python -m tests.server.budget_server CHECKPOINT TOOLS

Prints `host:port`, and serves until its input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from agent.tools.server_tools import ServerTools, ToolSettings
from model.engine.engine import Engine
from model.engine.loader import load_model
from tests.fakes import LoudnessDetector
from tests.server.live_server import serving
from voice import session


def main(checkpoint: Path, tools: Path) -> None:
    """Serve."""
    engine = Engine(lambda: load_model(checkpoint, device="cpu", precision="float32"))
    settings = ToolSettings((tools,), builtin=False)
    with (
        patch.object(session, "SpeechDetector", LoudnessDetector),
        serving(engine=engine, tools=ServerTools(settings)) as address,
    ):
        print(address, flush=True)
        sys.stdin.read()
    engine.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

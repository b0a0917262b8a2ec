"""Outside proof: OpenAI's own Twilio bridge carries a call to /v1/realtime, G.711 both ways, with its truncation.

It is an npm package. `npm install --prefix DIR @openai/agents @openai/agents-extensions ws zod` and
`REJOINDER_AGENTS=DIR` run this test; it is skipped otherwise.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.fakes import FakeBrain, LoudnessDetector
from tests.phone.test_lines import FakeEngine, serving
from voice import session

FOLDER = os.environ.get("REJOINDER_AGENTS", "")

pytestmark = pytest.mark.skipif(
    not FOLDER or shutil.which("node") is None, reason="REJOINDER_AGENTS names no folder with @openai/agents-extensions"
)


@pytest.fixture(autouse=True)
def _loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


async def test_openais_twilio_bridge_speaks_g711_and_truncates(monkeypatch: pytest.MonkeyPatch) -> None:
    long = FakeBrain(words=[f" word{n}" for n in range(60)], pace=0.001)
    monkeypatch.setattr(FakeEngine, "conversation", lambda self: long)
    script = Path(__file__).parent / "agents_twilio.mjs"
    with serving() as served:
        process = await asyncio.create_subprocess_exec(
            "node", str(script), FOLDER, f"ws://{served.where}/v1/realtime", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    told = json.loads(out.decode().strip().splitlines()[-1])
    assert told["errors"] == []
    assert told["formats"] == {"input": {"type": "audio/pcmu"}, "output": {"type": "audio/pcmu"}}
    assert 0 < told["answeredMs"] < 1500
    assert told["said"]["clear"] >= 1
    assert told["said"]["mark"] >= 5
    # It counts whole pieces that were played and at most 50 ms of the next one.
    assert len(told["truncated"]) >= 1
    assert 0 < told["truncated"][0] <= told["heardMs"] + 50
    assert told["truncated"][0] >= told["heardMs"] - 400

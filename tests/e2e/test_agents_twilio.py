"""OpenAI's own Twilio bridge carries a call to /v1/realtime, G.711 in both directions, and truncates interrupted items.

It is an npm package. `npm install --prefix DIR @openai/agents @openai/agents-extensions ws zod` and
`REJOINDER_AGENTS=DIR` run this test; otherwise it is skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.fakes import FakeLanguageModel, LoudnessDetector
from tests.real_time import retried_under_load
from tests.server.telephony.live_server import live_server
from voice import session

FOLDER = os.environ.get("REJOINDER_AGENTS", "")

pytestmark = pytest.mark.skipif(
    not FOLDER or shutil.which("node") is None, reason="REJOINDER_AGENTS names no folder with @openai/agents-extensions"
)


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


@retried_under_load(attempts=3)
async def test_openais_twilio_bridge_speaks_g711_and_truncates() -> None:
    language_model = FakeLanguageModel(words=[f" word{n}" for n in range(60)], seconds_per_word=0.001)
    script = Path(__file__).parent / "agents_twilio.mjs"
    with live_server(language_model=lambda: language_model) as server:
        process = await asyncio.create_subprocess_exec(
            "node", str(script), FOLDER, f"ws://{server.address}/v1/realtime", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    result = json.loads(out.decode().strip().splitlines()[-1])
    assert result["errors"] == []
    assert result["formats"] == {"input": {"type": "audio/pcmu"}, "output": {"type": "audio/pcmu"}}
    assert 0 < result["latencyMs"] < 1500
    assert result["sent"]["clear"] >= 1
    assert result["sent"]["mark"] >= 5
    # The bridge counts whole chunks that were played, and at most 50 ms of the next one.
    assert len(result["truncated"]) >= 1
    assert 0 < result["truncated"][0] <= result["heardMs"] + 50
    assert result["truncated"][0] >= result["heardMs"] - 400

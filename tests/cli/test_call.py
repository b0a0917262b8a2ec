"""`rejoinder call` against a real server with fake models."""

from __future__ import annotations

import asyncio
import wave
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from cli.main import app as cli
from lab.simulator import call
from lab.simulator.call import place_call
from tests.fakes import LoudnessDetector
from tests.real_time import HANG_S, retried_under_load, wait_until
from tests.server.telephony.live_server import check, live_server, plan, words
from voice import session
from voice.audio.codec import OUTPUT_RATE, to_pcm16


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    monkeypatch.setattr(call, "_QUIET_S", 0.2)


@retried_under_load(attempts=3)
async def test_a_call_can_press_keys_and_end_abruptly() -> None:
    with live_server() as server:
        pressed, _ = await asyncio.gather(
            place_call(plan(server, digits="12#")), place_call(plan(server, abruptly=True))
        )
        check(pressed)
        async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=HANG_S) as client:

            async def no_call_is_counted() -> bool:
                return bool((await client.get("/healthz")).json()["conversations"] == 0)

            await wait_until(no_call_is_counted)


@retried_under_load(attempts=3)
def test_the_command_prints_latencies_and_writes_what_was_heard(tmp_path: Path) -> None:
    question, heard = tmp_path / "question.wav", tmp_path / "heard.wav"
    with wave.open(str(question), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(OUTPUT_RATE)
        file.writeframes(to_pcm16(words()[0]))
    with live_server() as server:
        url = server.phone_url
        arguments = ["call", str(question), "--as", "plivo", "--calls", "2", "--url", url, "--out", str(heard)]
        done = CliRunner().invoke(cli, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
        no_server = CliRunner().invoke(cli, ["call", str(question), "--url", "ws://127.0.0.1:9/phone"])
        wrong_url = CliRunner().invoke(cli, ["call", str(question), "--as", "audiosocket", "--url", url])
    assert done.exit_code == 0, done.output
    assert "2 responses, p50" in done.output
    with wave.open(str(heard)) as file:
        assert file.getnframes() > 8000 * 0.6
    assert no_server.exit_code == 1
    assert wrong_url.exit_code == 1


def test_a_missing_recording_is_reported_in_one_sentence() -> None:
    done = CliRunner().invoke(cli, ["call", "/no/such.wav"], env={"COLUMNS": "400", "NO_COLOR": "1"})
    assert done.exit_code == 1
    assert "there is no file /no/such.wav" in " ".join(done.output.split())

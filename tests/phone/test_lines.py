"""Simulated carriers call the real server over real sockets: websockets and AudioSocket, refusals, many at once."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest
import uvicorn
from rich.console import Console
from typer.testing import CliRunner
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from server.app import ServerState, build_app
from server.calling import command as command_module
from server.calling.carriers import CARRIERS
from server.calling.command import Outcome, Plan, place
from server.calling.phone import Weather, dialling
from server.calling.reported import phoning
from server.cli import app as cli
from server.phone.routes import PhoneSettings
from server.phone.rules import CallRules
from server.phone.trust import Trust
from server.report import client as client_module
from server.report.client import NoServer, calling, speak
from server.report.corpus import SpokenTurn, bounds_ms
from server.serving import Serving, _greet
from tests.fakes import FakeBrain, LoudnessDetector, fake_stages
from voice import session
from voice.audio import SPEAKING_RATE, Samples, to_pcm16

ANSWERED_MS = 1500
"""An answer of the fakes comes some 700 ms after the words; a busy machine takes longer."""


@pytest.fixture(autouse=True)
def _loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    monkeypatch.setattr(command_module, "_QUIET_S", 0.2)


class FakeEngine:
    def conversation(self) -> FakeBrain:
        return FakeBrain()


class Served:
    def __init__(self, where: str, tcp: str) -> None:
        self.where, self.ws, self.tcp = where, f"ws://{where}/phone", f"tcp://{tcp}"

    def url(self, carrier: str) -> str:
        return self.tcp if carrier == "audiosocket" else self.ws


@contextmanager
def serving(rules: CallRules | None = None, trust: Trust | None = None, **settings: Any) -> Iterator[Served]:
    phone = PhoneSettings(rules or CallRules(greeting="Hello."), trust or Trust())
    listening, tcp = socket.create_server(("127.0.0.1", 0)), socket.socket()
    tcp.bind(("127.0.0.1", 0))
    state = ServerState(FakeEngine(), fake_stages(), "tiny", phone=phone, audiosocket=tcp, **settings)  # type: ignore[arg-type]
    config = uvicorn.Config(build_app(state), log_level="error", ws="websockets-sansio", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.005)
    try:
        hosts = [f"127.0.0.1:{one.getsockname()[1]}" for one in (listening, tcp)]
        yield Served(*hosts)
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()


def words(seconds: float = 0.8) -> tuple[Samples, float]:
    samples = np.full(int(SPEAKING_RATE * seconds), 0.5, np.float32)
    return samples, bounds_ms(samples)[1]


def plan(served: Served, carrier: str = "twilio", **more: Any) -> Plan:
    return Plan(more.pop("url", served.url(carrier)), carrier, [words()], **more)


def check(outcome: Outcome) -> None:
    assert outcome.refused == ""
    assert outcome.faults == []
    (latency,) = outcome.latencies_ms
    assert latency is not None
    assert 0 < latency < ANSWERED_MS


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_call_is_greeted_and_answered(carrier: str) -> None:
    with serving() as served:
        outcome = await place(plan(served, carrier))
    check(outcome)
    assert outcome.greeted_ms is not None
    assert (outcome.marks > 0) == (carrier != "audiosocket")


async def test_a_call_in_bad_weather_is_answered() -> None:
    with serving() as served:
        weather = Weather(jitter_ms=15, reorder=0.1, loss=0.03)
        check(await place(plan(served, "telnyx", weather=weather)))


async def test_keys_and_abrupt_ends() -> None:
    with serving() as served:
        pressed = await place(plan(served, digits="12#"))
        check(pressed)
        await place(plan(served, abruptly=True))
        async with httpx.AsyncClient(base_url=f"http://{served.where}") as web:
            for _ in range(50):
                if (await web.get("/healthz")).json()["conversations"] == 0:
                    break
                await asyncio.sleep(0.05)
            else:
                pytest.fail("a call that went away is still counted")


async def test_eight_calls_at_once_keep_their_clocks() -> None:
    with serving() as served:
        outcomes = await asyncio.gather(*(place(plan(served, name)) for name in [*CARRIERS, "twilio", "plivo"]))
    for outcome in outcomes:
        check(outcome)
    # A busy machine may hold up a call or two for longer than is sent ahead; a call that stalls others would stall all.
    assert sum(outcome.gaps > 0 for outcome in outcomes) <= 2


async def test_a_call_too_many_is_told_so() -> None:
    with serving(most_conversations=1) as served:
        async with dialling(served.ws, CARRIERS["twilio"]({})):
            await asyncio.sleep(0.2)
            with pytest.raises(NoServer, match="503 every line is busy"):
                async with dialling(served.ws, CARRIERS["twilio"]({})):
                    pass
            async with dialling(served.tcp, CARRIERS["audiosocket"]({})) as phone:
                await asyncio.wait_for(phone.gone.wait(), 2)


async def test_an_unsigned_call_gets_403_and_one_line_of_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(trust=Trust(shared=("s3cret",))) as served:
        with pytest.raises(InvalidStatus) as refused:
            await connect(served.ws)
        assert refused.value.response.status_code == 403
        warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warned) == 1
        assert "neither a carrier's signature nor the secret" in warned[0]
        assert capsys.readouterr().err == ""  # where uvicorn logs
        check(await place(plan(served, url=f"{served.ws}?token=s3cret")))
        check(await place(plan(served, url=f"{served.ws}/s3cret")))


async def test_who_opens_a_tunnel_without_a_secret_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as served:
        host, _, port = served.where.partition(":")
        for _ in range(2):
            (await connect("ws://phone.example.org/phone", host=host, port=int(port))).transport.abort()
        await (await connect(served.ws)).close()
    warned = [record.getMessage() for record in caplog.records if "anybody else's" in record.getMessage()]
    assert len(warned) == 1
    assert "phone.example.org" in warned[0]


async def test_audiosocket_calls_are_known_by_their_uuid() -> None:
    trust = Trust(shared=("s3cret",))
    with serving(trust=trust) as served:
        async with dialling(served.tcp, CARRIERS["audiosocket"]({})) as phone:
            await asyncio.wait_for(phone.gone.wait(), 2)
        check(await place(plan(served, "audiosocket", parameters={"uuid": str(trust.audiosocket_id)})))


async def test_a_signed_upgrade_of_twilio() -> None:
    validator = pytest.importorskip("twilio.request_validator").RequestValidator("token")
    with serving(trust=Trust(twilio="token")) as served:
        signature = validator.compute_signature(served.ws.replace("ws:", "wss:"), {})
        async with dialling(served.ws, CARRIERS["twilio"]({}), headers={"X-Twilio-Signature": signature}) as phone:
            await asyncio.sleep(0.5)
            assert phone.player.pieces


@pytest.mark.parametrize("written", [True, False], ids=["json", "text"])
async def test_a_call_over_asterisks_websocket(written: bool) -> None:
    """`connection_type = per_call_config` with `protocols = media`, as docs/phone.md has it."""
    fields = {"connection_id": "c1", "channel": "WebSocket/rejoinder/0x1", "channel_id": "1.1", "format": "ulaw"}
    plain = " ".join(["MEDIA_START", *(f"{name}:{value}" for name, value in fields.items())])
    start, heard, commands = json.dumps({"event": "MEDIA_START", **fields}) if written else plain, 0, []
    with serving() as served:
        async with connect(f"{served.ws}?token=any", subprotocols=[Subprotocol("media")]) as socket_:
            assert socket_.subprotocol == "media"
            await socket_.send(start)
            while heard < 8 * 100:
                frame = await asyncio.wait_for(socket_.recv(), 5)
                if isinstance(frame, bytes):
                    heard += len(frame)
                else:
                    commands.append(json.loads(frame)["command"] if written else frame.split()[0])
            await socket_.send('{"event": "HANGUP"}' if written else "HANGUP")
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    await asyncio.wait_for(socket_.recv(), 5)
    assert commands[0] == "ANSWER"
    assert set(commands) <= {"ANSWER", "MARK_MEDIA"}
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000


async def test_pages_may_not_call_for_their_visitors() -> None:
    with serving() as served, pytest.raises(InvalidStatus) as refused:
        await connect(served.ws, origin="https://evil.example")
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("name", ["twilio.xml", "telnyx.xml", "plivo.xml", "vonage.json", "exotel.json"])
async def test_the_documents_send_a_call_here_and_let_it_in(name: str) -> None:
    carrier = name.partition(".")[0]
    with serving(trust=Trust(shared=("s3cret",))) as served:
        async with httpx.AsyncClient(base_url=f"http://{served.where}") as web:
            refused = await web.post(f"/phone/{name}", data={"From": "+1555"})
            query = {"token": "s3cret", "greeting": 'Hi <there> & "you"', "speed": "1.25", "other": "1"}
            answer = await web.post(f"/phone/{name}", params=query, data={"From": "+1555", "To": "+1556"})
        assert refused.status_code == 403
        assert answer.status_code == 200
        if name.endswith("xml"):
            root = ElementTree.fromstring(answer.text)
            (stream,) = root.iter("Stream")
            url = stream.get("url") or (stream.text or "").strip()
            given = {one.get("name"): one.get("value") for one in root.iter("Parameter")}
        else:
            body = json.loads(answer.text)
            url = body["url"] if carrier == "exotel" else body[0]["endpoint"][0]["uri"]
            given = {} if carrier == "exotel" else body[0]["endpoint"][0]["headers"]
        assert url.startswith(f"{served.ws}/")
        if carrier in ("twilio", "telnyx", "vonage"):
            assert given["greeting"] == 'Hi <there> & "you"'
            assert (given["speed"], given["from"], "other" in given) == ("1.25", "+1555", False)
        check(await place(plan(served, carrier, url=url)))


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (["{nonsense"], 1007),
        ([b"\x00" * 640], 1003),
        (['{"event": "media", "media": {}}'], 1008),
        (['{"event": "websocket:connected", "content-type": "audio/opus"}'], 1003),
    ],
)
async def test_what_is_no_call_is_closed_with_the_code_for_it(frames: list[str | bytes], code: int) -> None:
    with serving() as served:
        async with connect(served.ws) as socket:
            for frame in frames:
                await socket.send(frame)
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket.recv(), 5)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code


async def test_a_client_that_stops_reading_does_not_disturb_a_call() -> None:
    with serving(rules=CallRules(greeting=" ".join(["word"] * 300))) as served:
        socket_ = socket.create_connection(("127.0.0.1", int(served.tcp.rpartition(":")[2])))
        socket_.sendall(b"\x01\x00\x10" + bytes(16) + b"\x10\x01\x40" + bytes(320))
        try:
            check(await place(plan(served, parameters={"greeting": "Hello."})))
        finally:
            socket_.close()


async def test_the_report_measures_calls_with_the_client_of_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "QUIET_S", 0.2)
    audio, _ = words()
    turn = SpokenTurn("tone-1", "tone", "a tone", audio, *bounds_ms(audio))
    with serving(rules=CallRules(greeting="")) as served:
        measured = await speak(lambda: phoning(served.ws, "twilio"), [turn, turn], each=1)
    for one in measured:
        assert one.latency_ms is not None
        assert one.latency_ms < ANSWERED_MS
        assert not (one.cut_off or one.missed or one.broken_off)
        assert one.underruns == 0


async def test_the_telephone_is_hardly_slower_than_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """The goal is 150 ms; what the stages take is the same on both sides."""
    monkeypatch.setattr(client_module, "QUIET_S", 0.2)
    audio, _ = words()
    turns = [SpokenTurn(f"tone-{n}", "tone", "a tone", audio, *bounds_ms(audio)) for n in range(3)]
    took: dict[str, float] = {}
    with serving(rules=CallRules(greeting="")) as served:
        sides = {"browser": partial(calling, f"ws://{served.where}/v1/realtime")}
        sides |= {name: partial(phoning, served.url(name), name) for name in CARRIERS}
        for name, connected in sides.items():
            measured = await speak(connected, turns, each=1)
            took[name] = statistics.median(one.latency_ms for one in measured if one.latency_ms is not None)
    print({name: round(ms) for name, ms in took.items()})
    for name in CARRIERS:
        assert took[name] - took["browser"] < 150, took


def test_the_command_calls_prints_and_keeps_what_was_heard(tmp_path: Path) -> None:
    import wave

    spoken, heard = tmp_path / "question.wav", tmp_path / "heard.wav"
    with wave.open(str(spoken), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SPEAKING_RATE)
        file.writeframes(to_pcm16(words()[0]))
    with serving() as served:
        arguments = ["call", str(spoken), "--as", "plivo", "--calls", "2", "--url", served.ws, "--out", str(heard)]
        done = CliRunner().invoke(cli, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})
        nobody = CliRunner().invoke(cli, ["call", str(spoken), "--url", "ws://127.0.0.1:9/phone"])
        mixed = CliRunner().invoke(cli, ["call", str(spoken), "--as", "audiosocket", "--url", served.ws])
    assert done.exit_code == 0, done.output
    assert "2 answers, p50" in done.output
    with wave.open(str(heard)) as file:
        assert file.getnframes() > 8000 * 0.6
    assert nobody.exit_code == 1
    assert mixed.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["serve", "--public-url", "phone.example.org"], 2, "--public-url looks like"),
        (["serve", "--public-url", "https://phone.example.org/phone"], 2, "without a path"),
        (["serve", "--telnyx-key", "mine"], 1, "32 bytes in base64"),
        (["call", "/no/such.wav"], 1, "there is no file /no/such.wav"),
    ],
)
def test_wrong_options_are_said_in_a_sentence(arguments: list[str], code: int, said: str) -> None:
    done = CliRunner().invoke(cli, arguments, env={"COLUMNS": "400", "NO_COLOR": "1"})
    assert done.exit_code == code
    assert said in " ".join(done.output.split())


@pytest.mark.parametrize(("trust", "warned"), [(Trust(), True), (Trust(shared=("s",)), False)])
def test_a_server_that_anybody_may_call_says_so_at_the_start(trust: Trust, warned: bool) -> None:
    out = io.StringIO()
    host, port = "127.0.0.1", 8000
    given = Serving(host, port, None, None, False, frozenset(), frozenset(), 1, phone=PhoneSettings(trust=trust))
    with socket.create_server((host, 0)) as taken, socket.create_server((host, 0)) as tcp:
        _greet(given, taken, tcp, Console(file=out, width=400))
        quiet = io.StringIO()
        _greet(given, taken, None, Console(file=quiet, width=400))
    assert ("can be a phone call" in out.getvalue()) == warned
    assert "AudioSocket: 127.0.0.1:" in out.getvalue()
    assert "phone call" not in quiet.getvalue()  # only this machine reaches it


async def test_a_stalled_line_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from server.phone import line as line_module

    monkeypatch.setattr(line_module, "START_S", 0.3)
    with serving() as served:
        async with connect(served.ws) as socket_:
            began = time.monotonic()
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket_.recv(), 5)
            assert time.monotonic() - began < 3
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008

"""Recordings that are sent to harm the server, over HTTP: what they cost, and that nobody else notices."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from server.access.admission import Admission
from server.access.keys import KEYS_FILE, ApiKeys, KeyLimits, KeyStore
from server.budgets import Budget
from server.telephony.routes import TelephonySettings
from tests.fakes import FakeRecognizer, fake_speech_models
from tests.real_time import HANG_S
from tests.recordings import encoded, silent_flac
from tests.server.live_server import connected, serving
from voice.asr import Segment

SDP = b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio %d RTP/AVP 0\r\n"
"""Tells FFmpeg to wait for sound at a UDP port."""

PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nprivate.mp3\n#EXT-X-ENDLIST\n"


def upload(address: str, data: bytes, key: str = "", timeout_s: float = HANG_S) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = f"http://{address}/v1/audio/transcriptions"
    return httpx.post(url, files={"file": ("a.wav", data)}, headers=headers, timeout=timeout_s)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize(
    "data",
    [
        b"ffconcat version 1.0\nfile private.mp3\n",
        b"ffconcat version 1.0\nfile private.m3u8\n",
    ],
)
def test_a_recording_that_names_files_of_the_server_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    (tmp_path / "private.mp3").write_bytes(encoded("mp3", "mp3"))
    (tmp_path / "private.m3u8").write_text(PLAYLIST)
    monkeypatch.chdir(tmp_path)
    with serving() as address:
        answer = upload(address, data)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_audio"


def test_a_recording_that_names_an_address_opens_no_socket() -> None:
    port = free_port()
    with serving() as address, ThreadPoolExecutor(1) as executor:
        started, opened = time.monotonic(), False
        answer = executor.submit(upload, address, SDP % port)
        while not answer.done():
            opened = opened or f":{port:04X}" in Path("/proc/net/udp").read_text()
        assert answer.result().status_code == 400
        assert time.monotonic() - started < 5.0
    assert not opened


async def test_many_bad_recordings_do_not_delay_the_end_of_a_revoked_key(tmp_path: Path) -> None:
    """The records of keys and usage are written with threads that all routes share."""
    keys = KeyStore(tmp_path / KEYS_FILE)
    secret = keys.add("kitchen")
    with serving(admission=Admission(16, ApiKeys((), keys))) as address:
        headers = {"authorization": f"Bearer {secret}"}
        with ThreadPoolExecutor(24) as executor:
            async with connected(address, additional_headers=headers) as client:
                attacks = [executor.submit(upload, address, SDP % free_port(), secret) for _ in range(24)]
                await asyncio.sleep(2.5)  # by then the server has begun to write what was used
                keys.revoke("kitchen")
                with pytest.raises(ConnectionClosed):
                    async with asyncio.timeout(8.0):
                        while True:
                            await client.recv()
            assert not any(attack.result().is_success for attack in attacks)


@pytest.mark.parametrize("framing", ["chunked", "declared"])
@pytest.mark.parametrize(
    "path, max_bytes",
    [("v1/audio/transcriptions", 26 << 20), ("v1/realtime/client_secrets", 4 << 20), ("phone/twilio.xml", 64 << 10)],
)
def test_a_body_is_cut_off_at_the_limit(path: str, max_bytes: int, framing: str) -> None:
    """The client sends on until it is answered, up to 64 MiB."""
    chunked, block, sent = framing == "chunked", bytes(1 << 18), 0
    part = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    length = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % (64 << 20)
    head = b"POST /%s HTTP/1.1\r\nhost: localhost\r\n" % path.encode()
    head += b"content-type: multipart/form-data; boundary=x\r\n"

    def framed(data: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(data), data) if chunked else data

    with serving(telephony=TelephonySettings()) as address:
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), HANG_S) as client:
            client.sendall(head + length + b"\r\n\r\n" + framed(part))
            while sent < 64 << 20 and not select.select([client], [], [], 0)[0]:
                try:
                    client.sendall(framed(block))
                except OSError:
                    break  # it was cut off
                sent += len(block)
            answer = client.recv(1 << 16)
    assert answer.split(b" ")[1] == b"413"
    assert b"connection: close" in answer.lower()
    discarded = held_by_sockets = 8 << 20
    assert sent <= (max_bytes if chunked else 0) + discarded + held_by_sockets


@pytest.mark.parametrize("path", ["v1/audio/transcriptions", "v1/realtime/client_secrets", "phone/twilio.xml"])
def test_a_client_that_sends_its_body_too_slowly_is_cut_off(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    for budget in ("chat_completions.audio.UPLOAD", "request_body.JSON_BODY", "telephony.routes.WEBHOOK"):
        monkeypatch.setattr(f"server.{budget}", Budget(1 << 20, 0.5))
    with serving(telephony=TelephonySettings()) as address:
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), HANG_S) as client:
            client.sendall(
                b"POST /%s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n"
                b"content-type: multipart/form-data; boundary=x\r\n\r\n--x\r\n" % path.encode()
            )
            answer = client.recv(1 << 16)
    assert answer.split(b" ")[1] == b"408" and b"connection: close" in answer.lower()


def test_seconds_of_recordings_count_against_the_limits_of_a_key(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / KEYS_FILE)
    secret = keys.add("kitchen", KeyLimits(minutes_per_day=1.0))
    admission = Admission(16, ApiKeys((), keys))
    with serving(admission=admission) as address:
        assert upload(address, encoded("wav", "pcm_s16le", 40.0), secret).status_code == 200
        assert admission.usage.today("kitchen").seconds == admission.usage.today("kitchen").audio_in_s == 40.0
        for seconds, words in ((30.0, "0.3 minutes"), (3600.0, "0.3 minutes")):
            answer = upload(address, silent_flac(seconds), secret)
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota_exceeded")
            assert words in answer.json()["error"]["message"]
            assert "retry-after" in answer.headers
        assert upload(address, encoded("wav", "pcm_s16le", 20.0), secret).status_code == 200
        assert "has used its 1 minutes" in upload(address, encoded("wav", "pcm_s16le"), secret).text


def test_a_recording_waits_for_its_turn_before_it_is_decoded() -> None:
    """So that many recordings of hours do not lie in memory."""
    going_on, admission = threading.Event(), Admission()

    class Waiting(FakeRecognizer):
        def transcribe(self, *args: Any, **kwargs: Any) -> list[Segment]:
            assert going_on.wait(HANG_S)
            return super().transcribe(*args, **kwargs)

    models = fake_speech_models(Waiting())
    with ThreadPoolExecutor(3) as executor:
        models = replace(models, recognition_executor=executor)
        with serving(admission=admission, speech_models=models) as address:
            answers = [executor.submit(upload, address, encoded("wav", "pcm_s16le")) for _ in range(2)]
            deadline = time.monotonic() + HANG_S
            while not admission.usage.total.seconds:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.5)
            assert admission.usage.total.seconds == 1.0  # what is decoded is counted
            going_on.set()
            assert [answer.result().status_code for answer in answers] == [200, 200]
            assert admission.usage.total.seconds == 2.0


def test_too_many_recordings_at_once_are_refused() -> None:
    admission = Admission()
    with serving(admission=admission) as address:
        host, _, port = address.partition(":")
        head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n"
        head += b"content-type: multipart/form-data; boundary=x\r\n\r\n"
        waiting = [socket.create_connection((host, int(port)), HANG_S) for _ in range(8)]
        try:
            for client in waiting:
                client.sendall(head)
            deadline = time.monotonic() + HANG_S
            while (answer := upload(address, encoded("wav", "pcm_s16le"))).status_code != 503:
                assert time.monotonic() < deadline
            assert answer.json()["error"]["code"] == "too_many_recordings"
            assert admission.refusals["too_many_recordings"] == 1
        finally:
            for client in waiting:
                client.close()
        while upload(address, encoded("wav", "pcm_s16le")).status_code == 503:
            assert time.monotonic() < deadline

"""The self-signed certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx

from server.serving.tls import self_signed
from tests.real_time import HANG_S
from tests.server.live_server import serving


async def test_a_self_signed_certificate_is_accepted_and_reused(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    assert key.stat().st_mode & 0o077 == 0
    assert self_signed(tmp_path) == (certificate, key)
    certificate_bytes = certificate.read_bytes()
    tls_context = ssl.create_default_context(cafile=str(certificate))
    with serving(tls=(certificate, key)) as address:
        async with httpx.AsyncClient(base_url=f"https://{address}", verify=tls_context, timeout=HANG_S) as web:
            assert (await web.get("/healthz")).json()["status"] == "ok"
    self_signed(tmp_path)
    assert certificate.read_bytes() == certificate_bytes

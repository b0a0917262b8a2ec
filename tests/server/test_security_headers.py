"""Security headers."""

from __future__ import annotations

import httpx

from tests.real_time import HANG_S
from tests.server.live_server import serving


async def test_every_response_carries_the_security_headers() -> None:
    with serving() as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:
            for path in ("/", "/app.js", "/healthz", "/missing", "/v1/audio/speech"):
                headers = (await web.get(path)).headers
                policy = headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "script-src 'self';" in policy
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert headers["x-content-type-options"] == "nosniff"
                assert headers["referrer-policy"] == "no-referrer"
                assert "microphone=(self)" in headers["permissions-policy"]

"""What a cluster refuses before it starts anything, and who may read what Ray writes."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from server.serving import cluster
from server.serving.cluster import run_cluster
from server.serving.settings import ServeSettings


@pytest.mark.parametrize("mode", [None, "", "disabled"])
def test_a_cluster_of_several_machines_without_token_authentication_is_refused(
    mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode is None:
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    else:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    settings = ServeSettings(host="0.0.0.0", api_key=("secret",), cluster="10.0.0.7:6379")
    with pytest.raises(ValueError, match="set RAY_AUTH_MODE=token"):
        run_cluster(settings, Console(file=io.StringIO()), lambda: None)


def test_what_ray_writes_is_for_its_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "auth_token"

    def init(*_: object, **__: object) -> None:
        written.write_text("the token")
        raise ConnectionError("no cluster today")

    ray, deployment = ModuleType("ray"), ModuleType("server.serving.ray_deployment")
    ray.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, deployment.__name__, deployment)
    for name in cluster._ENVIRONMENT:
        monkeypatch.setenv(name, "0")
    earlier = os.umask(0o022)
    try:
        with pytest.raises(OSError, match="no cluster today"):
            run_cluster(
                ServeSettings(port=0, cluster="local", data=tmp_path), Console(file=io.StringIO()), lambda: None
            )
    finally:
        os.umask(earlier)
    assert written.stat().st_mode & 0o777 == 0o600

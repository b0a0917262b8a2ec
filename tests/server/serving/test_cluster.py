"""What a cluster refuses before it starts anything."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

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

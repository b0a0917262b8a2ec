"""What a cluster refuses before it starts anything."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from server.serving.cluster import ClusterSettings, run_cluster
from server.serving.runtime import ModelOptions
from server.serving.service import ServeSettings


@pytest.mark.parametrize("mode", [None, "", "disabled"])
def test_a_cluster_of_several_machines_without_token_authentication_is_refused(
    mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode is None:
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    else:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    settings = ServeSettings("0.0.0.0", 8000, None, None, False, frozenset({"secret"}), frozenset(), 1)
    with pytest.raises(ValueError, match="set RAY_AUTH_MODE=token"):
        run_cluster(
            ModelOptions("tiny"), settings, ClusterSettings("10.0.0.7:6379"), Console(file=io.StringIO()), lambda: None
        )

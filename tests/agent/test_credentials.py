"""Secrets from files and from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.credentials import credential, credential_file


def test_a_secret_comes_from_the_environment_or_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    (tmp_path / "TOKEN").write_text("from the file\n")
    assert credential("TOKEN") is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert credential("TOKEN") == "from the file"
    monkeypatch.setenv("TOKEN", "from the environment")
    assert credential("TOKEN") == "from the environment"
    assert credential("OTHER") is None
    (tmp_path / "BINARY").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="BINARY is not UTF-8 text"):
        credential_file("BINARY")

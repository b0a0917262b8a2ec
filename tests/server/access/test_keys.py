"""API keys: what is stored, who is found, revocation, and what happens when the file cannot be read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from server.access.keys import KEY_PREFIX, ApiKey, ApiKeys, KeyLimits, KeyStore


def test_a_key_is_found_until_it_is_revoked(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    secret = store.add("alice", KeyLimits(2, 30.0, 1000), admin=True)
    keys = ApiKeys(store=store)
    found = keys.find(["wrong", secret])
    assert found is not None
    assert (found.name, found.limits, found.admin) == ("alice", KeyLimits(2, 30.0, 1000), True)
    assert keys.current(found) == found
    KeyStore(tmp_path / "keys.sqlite").revoke("alice")  # another process
    assert keys.find([secret]) is None
    assert keys.current(found) is None
    assert keys.required  # a server whose keys are all revoked is not open


def test_only_the_hash_of_a_key_is_on_disk_and_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "private" / "keys.sqlite"
    secret = KeyStore(path).add("alice")
    assert secret.startswith(KEY_PREFIX)
    contents = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"alice" in contents
    assert secret.encode() not in contents
    assert secret.removeprefix(KEY_PREFIX).encode() not in contents
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_name_belongs_to_one_key_even_after_it_was_revoked(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    store.add("alice")
    with pytest.raises(ValueError, match="choose a new name"):
        store.add("alice")
    store.revoke("alice")
    with pytest.raises(ValueError, match="what belongs to it must not pass to another"):
        store.add("alice")  # whose client secrets and notes she would get
    with pytest.raises(ValueError, match="no active key called 'bob'"):
        store.revoke("bob")
    with pytest.raises(ValueError, match="is not a name"):
        store.add("a b")


def test_keys_of_the_command_line_work_next_to_a_store(tmp_path: Path) -> None:
    keys = ApiKeys(["chosen"], KeyStore(tmp_path / "keys.sqlite"), "of this start")
    assert keys.required
    found = keys.find(["chosen"])
    assert found is not None
    assert found.name.startswith("option-") and "chosen" not in found.name
    assert not found.admin
    assert keys.current(ApiKey("start")) == ApiKey("start", admin=True)  # a call's ticket has the name alone
    assert keys.active_names() == {found.name, "start"}
    assert keys.find([]) is None
    assert keys.find(["\udcff"]) is None  # not UTF-8


def test_without_any_key_none_is_required(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    assert not ApiKeys(store=store).required
    store.add("alice")
    assert ApiKeys(store=store).required


def test_nobody_gets_in_while_the_file_cannot_be_read(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    secret = store.add("alice")
    store.close()
    keys = ApiKeys(store=store)
    assert keys.required
    assert keys.find([secret]) is None


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "keys.sqlite").write_text("not a database" * 100)
    with pytest.raises(OSError, match="cannot use the file"):
        KeyStore(tmp_path / "keys.sqlite")

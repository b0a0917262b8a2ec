"""Files in the cache folder with what this machine has computed and can compute again. They are bounded in number and
size, and a damaged or foreign file counts as none."""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from model.hub.store import cache_folder, write_atomically

_log = logging.getLogger("rejoinder.models")

_DIGEST_BYTES = 32


@dataclass(frozen=True)
class ComputedFiles:
    """The files of one kind.

    Args:
        kind: what they are; the name of their folder.
        max_files, max_bytes: of all of them. Those that were used least recently are deleted first.
    """

    kind: str
    max_files: int
    max_bytes: int

    def read(self, *key: str) -> bytes | None:
        """What was computed for a key, which names everything that it depends on; None if it must be computed."""
        path = self._path(key)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        content = stored[_DIGEST_BYTES:]
        if stored[:_DIGEST_BYTES] != _digest(key, content):
            _log.warning("%s is damaged and will be written again", path)
            return None
        with suppress(OSError):  # a read-only folder
            os.utime(path)
        return content

    def write(self, content: bytes, *key: str) -> None:
        """Keep what was computed for a key. A full or read-only disk is logged: then it is computed at each start."""
        if len(content) > self.max_bytes:
            return
        path = self._path(key)

        def write(partial: Path) -> None:
            partial.touch(0o600)
            partial.write_bytes(_digest(key, content) + content)

        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, write)
            self._delete_oldest()
        except OSError as error:
            _log.warning("%s could not be kept (%s); the next start will take longer", path, error)

    def _path(self, key: tuple[str, ...]) -> Path:
        return cache_folder() / self.kind / _digest(key, b"").hex()[:24]

    def _delete_oldest(self) -> None:
        files = list[tuple[Path, os.stat_result]]()
        for path in (cache_folder() / self.kind).iterdir():
            with suppress(FileNotFoundError):  # another process has just deleted it
                files.append((path, path.stat()))
        room = self.max_bytes + self.max_files * _DIGEST_BYTES
        for number, (path, stat) in enumerate(sorted(files, key=lambda one: one[1].st_mtime_ns, reverse=True)):
            room -= stat.st_size
            if number >= self.max_files or room < 0:
                path.unlink(missing_ok=True)


def _digest(key: tuple[str, ...], content: bytes) -> bytes:
    digest = hashlib.sha256("\0".join((*key, "")).encode())
    digest.update(content)
    return digest.digest()

"""Fetches a file from the Hugging Face hub: resumed where an earlier attempt stopped, its space and content checked.

huggingface-hub sends the requests. Recent versions of it (from 1.19) delete an interrupted download, and no version
compares checksums. Which files are fetched is decided in `store.py`, for the catalog, and in `download.py`.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARTIAL = ".rejoinder.incomplete"
"""Ends the name of a file that is being downloaded."""

_SPARE_BYTES = 256 << 20
"""Disk space left free in addition to a download."""

_CHUNK_BYTES = 4 << 20

_SHA256_DIGITS = 64

ProgressCallback = Callable[[str, int, int], None]
"""Called while a file is written or read: (file name, bytes done, bytes in total)."""


class ModelUnavailable(Exception):
    """A model cannot be obtained. The message says why, and what to do."""


class HubUnreachable(ModelUnavailable):
    """The hub does not answer, or an interruption ended a download."""


@dataclass(frozen=True)
class Transfer:
    """The download of one model.

    Attributes:
        name: of the model, as the user wrote it.
        repository: `org/repo`.
        revision: a branch, a tag or a commit.
        folder: that its files are written to, or a folder above.
        variable: the environment variable that chooses it.
    """

    name: str
    repository: str
    revision: str
    folder: Path
    variable: str

    def fetch(self, path: str, target: Path, size: int, digest: str, report: ProgressCallback) -> None:
        """Download one file, from where an earlier attempt stopped. It gets its name when it is complete. The caller
        holds a lock.

        Args:
            path: in the repository.
            size, digest: see `find_problem`.

        Raises:
            ModelUnavailable: it cannot be downloaded, the disk is full, or its content is not what was expected.
        """
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers, disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars("huggingface_hub.http_get")  # `report` shows the progress
        name, partial = path.rpartition("/")[2], target.with_name(f"{target.name}{PARTIAL}")
        self.check_space(size - max(0, file_size(partial)))
        with self.errors(), _ReportingFile(partial, name, size, report) as out:
            if out.tell() > size:
                out.truncate(0)
                out.seek(0)
            if out.tell() < size:
                http_get(
                    hf_hub_url(self.repository, path, revision=self.revision),
                    out,
                    resume_size=out.tell(),
                    headers={**build_hf_headers(library_name="rejoinder"), "Accept-Encoding": "identity"},
                    displayed_filename=name,
                )
            os.fsync(out.fileno())
        if problem := find_problem(partial, size, digest, report, name):
            partial.unlink()
            raise ModelUnavailable(f"the download of {name} was damaged and has been deleted ({problem})")
        os.replace(partial, target)

    def check_space(self, needed: int) -> None:
        """Raises ModelUnavailable if the disk has no room for so many bytes."""
        free = shutil.disk_usage(self.folder).free
        if needed > 0 and free < needed + _SPARE_BYTES:
            raise ModelUnavailable(self._disk_full(f"{needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} free"))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what the hub client raises into one sentence."""
        from huggingface_hub import constants, errors

        page = f"{constants.ENDPOINT}/{self.repository}"
        try:
            yield
        except ModelUnavailable:
            raise
        except errors.GatedRepoError:
            raise ModelUnavailable(
                f"{self.repository} is gated: accept its terms at {page}, and set HF_TOKEN or run `hf auth login`"
            ) from None
        except errors.RepositoryNotFoundError:
            raise ModelUnavailable(
                f"the hub has no model {self.repository}, or it is private, and no file or folder is called so: "
                f"check {page}; a private model needs HF_TOKEN or `hf auth login`"
            ) from None
        except errors.RevisionNotFoundError:
            raise ModelUnavailable(
                f"{self.repository} has no revision {self.revision}: choose one of {page}/commits"
            ) from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403):
                raise ModelUnavailable(
                    f"the hub refused access to {self.repository} (status {status}): check HF_TOKEN, or run "
                    "`hf auth login`"
                ) from None
            raise HubUnreachable(
                f"the hub at {constants.ENDPOINT} answered with status {status}: try again later; "
                "what was downloaded is kept and continued"
            ) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ModelUnavailable(self._disk_full(str(error))) from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise ModelUnavailable(
                    f"the folder {self.folder} cannot be written ({error}): set {self.variable} to another one"
                ) from error
            raise self._unreachable(error) from error
        except ValueError as error:
            raise ModelUnavailable(f"{self.name} cannot be downloaded: {error}") from error
        except Exception as error:  # connection errors of the HTTP library that huggingface-hub uses
            raise self._unreachable(error) from error

    def _disk_full(self, detail: str) -> str:
        return (
            f"the disk that holds {self.folder} is full, so {self.name} cannot be downloaded ({detail}): free some "
            f"space, or set {self.variable} to a folder on another disk"
        )

    def _unreachable(self, error: Exception) -> HubUnreachable:
        from huggingface_hub import constants

        cause = error.__cause__ or error
        return HubUnreachable(
            f"{self.name} cannot be downloaded: the connection to the hub at {constants.ENDPOINT} failed "
            f"({type(cause).__name__}: {cause}); check the network and run the command again, what was downloaded is "
            "kept and continued"
        )


def find_problem(path: Path, size: int, digest: str, report: ProgressCallback, name: str = "") -> str | None:
    """What is wrong with the content of a file, or None.

    Args:
        size: in bytes.
        digest: sha256, or the git blob id (sha1); if it is empty, the file is only measured.
        name: shown while it is read, if its own is not telling.
    """
    found = file_size(path)
    if found != size:
        return f"{path} is {found} bytes and should be {size}"
    if not digest:
        return None
    git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    computed, done = hashlib.sha256() if len(digest) == _SHA256_DIGITS else git, 0
    with path.open("rb") as source:
        while block := source.read(_CHUNK_BYTES):
            computed.update(block)
            done += len(block)
            report(f"checking {name or path.name}", done, size)
    if computed.hexdigest() == digest:
        return None
    return f"{path} has the wrong checksum: found {computed.hexdigest()}, expected {digest}"


def file_size(path: Path) -> int:
    """Bytes of a file; -1 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


class _ReportingFile(io.FileIO):
    """A file that is appended to, reports its size, and grows no larger than expected."""

    def __init__(self, path: Path, name: str, size: int, report: ProgressCallback) -> None:
        super().__init__(path, "ab")
        self._name, self._size, self._report = name, size, report

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        if self.tell() > self._size:
            raise ValueError(f"the hub sends more than the {self._size:,} bytes of {self._name}")
        self._report(self._name, self.tell(), self._size)
        return written

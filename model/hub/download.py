"""Models from the Hugging Face hub: resolved to a commit once, downloaded into the hub's own cache, used offline.

huggingface-hub finds and links the files. Large ones are downloaded here: recent versions of the library (from 1.19)
delete an interrupted download, and no version compares checksums.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock

from model.hub.reference import HubReference
from model.hub.selection import HubFile, is_recognizer, select_files
from model.hub.store import ModelUnavailable, ProgressCallback, cache_folder, file_size, write_atomically

_SPARE_BYTES = 256 << 20
"""Disk space left free in addition to a download."""

_CHUNK_BYTES = 4 << 20

_METADATA_TIMEOUT_S = 10.0

_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

ConfigCheck = Callable[[dict[str, Any]], None]
"""Given a model's `config.json` before its weights are downloaded, raises an error if it cannot be run. A GGUF model is
described by its `model_type` alone."""


class HubUnreachable(ModelUnavailable):
    """The hub does not answer, or an interruption ended a download."""


@dataclass(frozen=True)
class HubModel:
    """A reference that was resolved to files of one commit, as recorded on disk.

    Attributes:
        name: the reference as the user wrote it.
        licence: as its model card states it; empty if unknown.
        main_file: the GGUF file to load; empty if the loader takes the folder.
    """

    name: str
    repository: str
    commit: str
    licence: str
    main_file: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(file.size for file in self.files)

    @property
    def is_recognizer(self) -> bool:
        """Whether it is a Whisper model of CTranslate2."""
        return not self.main_file and is_recognizer(file.path for file in self.files)


class HubModels:
    """The hub models on this machine.

    Args:
        check_config: rejects models that cannot be run, before their weights are downloaded.
    """

    def __init__(self, check_config: ConfigCheck = lambda config: None) -> None:
        from huggingface_hub import constants  # only needed for hub models

        self._records = cache_folder() / "hub"
        self._cache = Path(constants.HF_HUB_CACHE).expanduser()
        self._endpoint = constants.ENDPOINT
        self._online = not constants.HF_HUB_OFFLINE
        self._check_config = check_config

    def locate(self, reference: HubReference, report: ProgressCallback) -> Path:
        """Return the file or folder to load, downloading what is missing. Needs no network once it is complete.

        Raises:
            ModelUnavailable: the model does not exist, cannot be read, or cannot be downloaded.
        """
        model = self._recorded(reference)
        if model is None or not self.is_complete(model):
            model = self._fetch(reference, model, report)
        return self.path(model)

    def pull(self, reference: HubReference, report: ProgressCallback) -> HubModel:
        """Resolve the reference again, download what is missing or damaged, and record the new commit."""
        if not self._online:
            raise ModelUnavailable(f"{reference} cannot be pulled while HF_HUB_OFFLINE is set")
        model = self._resolve(reference)
        for file in model.files:
            path = self._file(model, file)
            if path.exists() and _find_problem(path, file, report):
                _blob(path).unlink()
        return self._download(model, reference, report, newest=True)

    def remove(self, model: HubModel) -> int:
        """Delete a model that was recorded: its files, but those that another model or another commit has, and what an
        interrupted download has left. Returns the bytes that were freed."""
        folder, freed = self._repository_folder(model.repository), 0
        others = [one for one in self.recorded() if one.commit == model.commit and one.name != model.name]
        kept = {file.path for one in others if one.repository == model.repository for file in one.files}
        for file in (file for file in model.files if file.path not in kept):
            path = self._file(model, file)
            blob = path.resolve()
            path.unlink(missing_ok=True)
            linked = {one.resolve() for one in folder.glob("snapshots/*/**/*") if one.is_symlink()}
            for unused in {blob, folder / "blobs" / f"{file.digest}.rejoinder.incomplete"} - linked:
                freed += max(0, file_size(unused))
                unused.unlink(missing_ok=True)
        self._recorded_file(model.name).unlink(missing_ok=True)
        return freed

    def recorded(self) -> list[HubModel]:
        """Every model that was downloaded or whose download has begun."""
        models = (_read_record(path) for path in sorted(self._records.glob("*.json")))
        return [model for model in models if model is not None]

    def is_complete(self, model: HubModel) -> bool:
        """Whether every file is there with the right size."""
        return all(file_size(self._file(model, file)) == file.size for file in model.files)

    def path(self, model: HubModel) -> Path:
        """The file or folder to load."""
        return self._snapshot(model.repository, model.commit) / model.main_file

    def check(self, model: HubModel, report: ProgressCallback) -> list[tuple[str, str]]:
        """Read every file completely. Returns the path of each and `ok`, `missing`, or what is wrong with it."""
        checks = []
        for file in model.files:
            path = self._file(model, file)
            state = (_find_problem(path, file, report) or "ok") if path.exists() else "missing"
            checks.append((file.path, state))
        return checks

    def _recorded(self, reference: HubReference) -> HubModel | None:
        return _read_record(self._recorded_file(str(reference)))

    def _recorded_file(self, name: str) -> Path:
        return self._records / f"{quote(name, safe='')}.json"

    def _record(self, reference: HubReference, model: HubModel) -> None:
        self._records.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(model), indent=1)
        path = self._recorded_file(str(reference))
        write_atomically(path, lambda partial: partial.write_text(text, encoding="utf-8"))

    def _repository_folder(self, repository: str) -> Path:
        return self._cache / f"models--{repository.replace('/', '--')}"

    def _snapshot(self, repository: str, commit: str) -> Path:
        return self._repository_folder(repository) / "snapshots" / commit

    def _file(self, model: HubModel, file: HubFile) -> Path:
        return self._snapshot(model.repository, model.commit) / file.path

    def _fetch(self, reference: HubReference, model: HubModel | None, report: ProgressCallback) -> HubModel:
        """Complete a model: the recorded commit, or the one that the reference's revision stands for now."""
        problem = ModelUnavailable(
            f"{reference} is not on this machine{'' if model is None else ' completely'} and HF_HUB_OFFLINE is set: "
            f"unset it, or run `rejoinder models pull {reference}` where {self._endpoint} can be reached"
        )
        if self._online:
            newest = model is None
            try:
                model = model or self._resolve(reference)
                return self._download(model, reference, report, newest=newest)
            except HubUnreachable as error:
                problem = error
        if model is None and (cached := self._cached_by_others(reference)) is not None:
            self._record(reference, cached)
            return cached
        raise problem

    def _resolve(self, reference: HubReference) -> HubModel:
        """Ask the hub for the commit and its files, and choose among them."""
        from huggingface_hub import HfApi

        with self._hub_errors(reference):
            info = HfApi(library_name="rejoinder").model_info(
                reference.repository, revision=reference.revision, files_metadata=True, timeout=_METADATA_TIMEOUT_S
            )
            files = [
                HubFile(file.rfilename, file.size or 0, file.lfs.sha256 if file.lfs else file.blob_id or "")
                for file in info.siblings or ()
            ]
            commit = str(info.sha)
            for name in (commit, *(file.digest for file in files)):
                if not _DIGEST.fullmatch(name):  # they become file names
                    raise ValueError(f"the hub gave {name!r} where a commit or a checksum is expected")
            files = [file for file in files if ".." not in file.path and not file.path.startswith("/")]
        selection = select_files(files, reference.selection, reference.repository)
        if selection.main_file and (info.gguf or {}).get("architecture"):
            self._check_config({"model_type": info.gguf["architecture"]})  # type: ignore[index]
        licence = str((info.card_data and info.card_data.get("license")) or "")
        return HubModel(str(reference), reference.repository, commit, licence, selection.main_file, selection.files)

    def _cached_by_others(self, reference: HubReference) -> HubModel | None:
        """The model as another program (`hf download`, transformers) left it in the hub's cache, if it is complete."""
        ref = self._repository_folder(reference.repository) / "refs" / reference.revision
        commit = ref.read_text().strip() if ref.is_file() else reference.revision
        snapshot = self._snapshot(reference.repository, commit)
        paths = [path for path in sorted(snapshot.rglob("*")) if path.is_file()]
        files = [
            HubFile(
                path.relative_to(snapshot).as_posix(), file_size(path), _blob(path).name if path.is_symlink() else ""
            )
            for path in paths
        ]
        try:
            selection = select_files(files, reference.selection, reference.repository)
        except ModelUnavailable:
            return None
        index = snapshot / "model.safetensors.index.json"
        if not selection.main_file and index in paths:
            shards = set(json.loads(index.read_text())["weight_map"].values())
            if not shards <= {file.path for file in selection.files}:
                return None
        return HubModel(str(reference), reference.repository, commit, "", selection.main_file, selection.files)

    def _download(
        self, model: HubModel, reference: HubReference, report: ProgressCallback, *, newest: bool
    ) -> HubModel:
        """Download missing files, small ones first, so that `config.json` is checked before the weights.

        Args:
            newest: whether the model's commit is what the revision stands for now.
        """
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars("huggingface_hub.http_get")  # `report` shows the progress
        missing = [file for file in model.files if file_size(self._file(model, file)) != file.size]
        self._check_space(reference, model, missing)
        for file in sorted(missing, key=lambda file: file.is_large):
            if file.is_large:
                self._check_folder(model)
                if self._recorded(reference) is None:  # so that an interrupted download continues at the same commit
                    self._record(reference, model)
            with self._hub_errors(reference):
                if file.is_large:
                    self._download_blob(model, file, report)
                hf_hub_download(model.repository, file.path, revision=model.commit, library_name="rejoinder")
        self._check_folder(model)
        if newest and reference.revision != model.commit:  # `hf cache prune` deletes commits to which no ref points
            ref = self._repository_folder(model.repository) / "refs" / reference.revision
            ref.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(ref, lambda partial: partial.write_text(model.commit, encoding="utf-8"))
        self._record(reference, model)
        return model

    def _check_folder(self, model: HubModel) -> None:
        config = self._snapshot(model.repository, model.commit) / "config.json"
        if not model.main_file and config.exists():
            self._check_config(json.loads(config.read_text(encoding="utf-8")))

    def _download_blob(self, model: HubModel, file: HubFile, report: ProgressCallback) -> None:
        """Download a large file into the cache's blobs, from where an earlier attempt stopped.

        Raises:
            ModelUnavailable: its checksum is wrong.
        """
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        blobs = self._repository_folder(model.repository) / "blobs"
        blob, partial = blobs / file.digest, blobs / f"{file.digest}.rejoinder.incomplete"
        lock = self._cache / ".locks" / self._repository_folder(model.repository).name / f"{file.digest}.lock"
        for folder in (blobs, lock.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with FileLock(lock):  # the one that huggingface-hub uses
            if file_size(blob) == file.size:
                return
            with _ReportingFile(partial, file, report) as out:
                if out.tell() > file.size:
                    out.truncate(0)
                    out.seek(0)
                if out.tell() < file.size:
                    http_get(
                        hf_hub_url(model.repository, file.path, revision=model.commit),
                        out,
                        resume_size=out.tell(),
                        headers={**build_hf_headers(library_name="rejoinder"), "Accept-Encoding": "identity"},
                        expected_size=file.size,
                        displayed_filename=file.path,
                    )
                os.fsync(out.fileno())
            if problem := _find_problem(partial, file, report):
                partial.unlink()
                raise ModelUnavailable(f"the download of {file.path} was damaged and has been deleted ({problem})")
            os.replace(partial, blob)

    def _check_space(self, reference: HubReference, model: HubModel, missing: list[HubFile]) -> None:
        if not missing:
            return
        self._cache.mkdir(parents=True, exist_ok=True)
        blobs = self._repository_folder(model.repository) / "blobs"
        needed = sum(
            file.size - max(0, file_size(blobs / f"{file.digest}.rejoinder.incomplete"))
            for file in missing
            if file_size(blobs / file.digest) != file.size
        )
        free = shutil.disk_usage(self._cache).free
        if needed and free < needed + _SPARE_BYTES:
            raise ModelUnavailable(self._disk_full(reference, f"{needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} free"))

    def _disk_full(self, reference: HubReference, detail: str) -> str:
        return (
            f"the disk that holds {self._cache} is full, so {reference} cannot be downloaded ({detail}): free some "
            "space, or set HF_HOME to a folder on another disk"
        )

    @contextmanager
    def _hub_errors(self, reference: HubReference) -> Iterator[None]:
        """Turn what the hub client raises into one sentence."""
        from huggingface_hub import errors

        page = f"{self._endpoint}/{reference.repository}"
        try:
            yield
        except ModelUnavailable:
            raise
        except errors.GatedRepoError:
            raise ModelUnavailable(
                f"{reference.repository} is gated: accept its terms at {page}, and set HF_TOKEN or run `hf auth login`"
            ) from None
        except errors.RepositoryNotFoundError:
            raise ModelUnavailable(
                f"the hub has no model {reference.repository}, or it is private, and no file or folder is called so: "
                f"check {page}; a private model needs HF_TOKEN or `hf auth login`"
            ) from None
        except errors.RevisionNotFoundError:
            raise ModelUnavailable(
                f"{reference.repository} has no revision {reference.revision}: choose one of {page}/commits"
            ) from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403):
                raise ModelUnavailable(
                    f"the hub refused access to {reference.repository} (status {status}): check HF_TOKEN, or run "
                    "`hf auth login`"
                ) from None
            raise HubUnreachable(
                f"the hub at {self._endpoint} answered with status {status}: try again later; "
                "what was downloaded is kept and continued"
            ) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ModelUnavailable(self._disk_full(reference, str(error))) from error
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise ModelUnavailable(
                    f"the Hugging Face cache {self._cache} cannot be written ({error}): set HF_HOME to another folder"
                ) from error
            raise self._unreachable(reference, error) from error
        except ValueError as error:
            raise ModelUnavailable(f"{reference} cannot be downloaded: {error}") from error
        except Exception as error:  # connection errors of the HTTP library that huggingface-hub uses
            raise self._unreachable(reference, error) from error

    def _unreachable(self, reference: HubReference, error: Exception) -> HubUnreachable:
        cause = error.__cause__ or error
        return HubUnreachable(
            f"{reference} cannot be downloaded: the connection to the hub at {self._endpoint} failed "
            f"({type(cause).__name__}: {cause}); check the network and run the command again, what was downloaded is "
            "kept and continued"
        )


class _ReportingFile(io.FileIO):
    """A file that is appended to and reports its size."""

    def __init__(self, path: Path, file: HubFile, report: ProgressCallback) -> None:
        super().__init__(path, "ab")
        self._hub_file, self._report = file, report

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self._report(self._hub_file.path, self.tell(), self._hub_file.size)
        return written


def _find_problem(path: Path, file: HubFile, report: ProgressCallback) -> str | None:
    """What is wrong with the content of a file, or None. A file of unknown checksum is only measured."""
    size = file_size(path)
    if size != file.size:
        return f"{path} is {size} bytes and should be {file.size}"
    if not file.digest:
        return None
    git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    digest, done = hashlib.sha256() if file.is_large else git, 0
    with path.open("rb") as source:
        while block := source.read(_CHUNK_BYTES):
            digest.update(block)
            done += len(block)
            report(f"checking {file.path}", done, size)
    if digest.hexdigest() == file.digest:
        return None
    return f"{path} has the wrong checksum: found {digest.hexdigest()}, and the hub has {file.digest}"


def _blob(path: Path) -> Path:
    """The blob to which a file of a snapshot links; the file itself where the file system has no links."""
    return path.parent / os.readlink(path) if path.is_symlink() else path


def _read_record(path: Path) -> HubModel | None:
    try:
        record = json.loads(path.read_text())
        return HubModel(**{**record, "files": tuple(HubFile(**file) for file in record["files"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent, or of another version: it is resolved again

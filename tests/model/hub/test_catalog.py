"""Every catalog entry is complete."""

from __future__ import annotations

import hashlib
import lzma
from pathlib import Path

import pytest

from model.hub import catalog


def test_the_catalog_gives_licence_authors_and_checksums_of_every_model() -> None:
    assert len({model.name for model in catalog.MODELS}) == len(catalog.MODELS)
    for model in catalog.MODELS:
        assert model.licence and model.authors and model.pip_extra
        for file in model.files:
            assert len(file.sha256) == 64 and file.size > 0 and file.parts
            assert bool(file.hub_path) == bool(model.hub_repository)
        assert {f"{variant}.bin" for variant in model.variants} <= {file.name for file in model.files}


def test_a_variant_names_a_file_of_its_model() -> None:
    assert catalog.find_model("kokoro:bf_emma") == (catalog.KOKORO, "bf_emma.bin")
    assert catalog.find_model("kokoro", "voice") == (catalog.KOKORO, "af_heart.bin")


def test_an_unknown_voice_is_answered_with_the_names_of_all_voices() -> None:
    for name in ("kokoro:af_hart", "af_heart", "smollm2-135m"):
        with pytest.raises(LookupError) as error:
            catalog.find_model(name, "voice")
        voices = str(error.value).partition("known voices are ")[2]
        assert voices.startswith("en_US-joe-medium, kokoro:af_heart, ") and "kokoro:bm_fable" in voices
        assert "qwen" not in voices


def test_the_bundled_voices_are_those_of_the_catalog() -> None:
    folder = Path(__file__).parents[3] / "voice" / "kokoro_voices"
    listed = {file.name: file.sha256 for file in catalog.KOKORO.files if file.name.endswith(".bin")}
    bundled = {path.stem: lzma.decompress(path.read_bytes()) for path in folder.glob("*.bin.xz")}
    assert {name: hashlib.sha256(styles).hexdigest() for name, styles in bundled.items()} == listed

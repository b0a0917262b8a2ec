"""Kokoro voices: which files are accepted, and how long texts are cut. The model itself speaks in tests/e2e."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import voice.kokoro_voices
from voice.audio.codec import BadAudio
from voice.kokoro_phonemes import SPACE
from voice.kokoro_voice import KokoroSynthesizer, _read_styles, _split

HEART = lzma.decompress((Path(voice.kokoro_voices.__file__).parent / "af_heart.bin.xz").read_bytes())


@given(st.lists(st.sampled_from([SPACE, 50, 51]), max_size=2_000))
def test_inputs_fit_the_model_and_lose_nothing(ids: list[int]) -> None:
    chunks = _split(ids)
    assert [symbol for chunk in chunks for symbol in chunk] == ids
    assert all(0 < len(chunk) <= 510 for chunk in chunks)


def test_a_long_text_is_cut_between_words() -> None:
    chunks = _split([50] * 400 + [SPACE] + [51] * 400)
    assert [len(chunk) for chunk in chunks] == [400, 401]


def test_a_voice_without_the_model_names_the_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "af_heart.bin"
    path.write_bytes(HEART)
    with pytest.raises(BadAudio, match=r"lacks .*kokoro-v1\.0\.int8\.onnx: a Kokoro voice is a \.bin file with"):
        KokoroSynthesizer(path)


def test_a_voice_may_have_16_or_32_bits(tmp_path: Path) -> None:
    bundled = tmp_path / "bundled.bin"
    bundled.write_bytes(HEART)
    np.frombuffer(HEART, "<f2").astype("<f4").tofile(tmp_path / "published.bin")
    styles = _read_styles(bundled)
    assert styles.shape == (510, 1, 256) and styles.dtype == np.float32 and styles.any()
    assert (_read_styles(tmp_path / "published.bin") == styles).all()


def test_a_file_of_another_kind_or_language_is_rejected_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "af_other.bin").write_bytes(b"words")
    with pytest.raises(BadAudio, match="is not a Kokoro voice, which is 522240 bytes long, or 261120 in 16 bits"):
        KokoroSynthesizer(tmp_path / "af_other.bin")
    with pytest.raises(BadAudio, match="jf_alpha does not speak English"):
        KokoroSynthesizer(tmp_path / "jf_alpha.bin")

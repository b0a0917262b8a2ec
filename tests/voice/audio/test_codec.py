"""PCM, G.711 and silence trimming."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.voice.audio.signals import sine
from voice.audio.codec import BadAudio, Encoding, decode, encode, from_pcm16, to_pcm16, without_silence


@given(st.binary(max_size=200).filter(lambda data: len(data) % 2 == 0))
def test_pcm_survives_decoding_and_encoding(data: bytes) -> None:
    assert to_pcm16(from_pcm16(data)) == data


def test_an_odd_number_of_bytes_is_rejected() -> None:
    with pytest.raises(BadAudio, match="3 bytes are not 16-bit samples"):
        from_pcm16(b"abc")


def test_samples_beyond_full_scale_are_clipped_not_wrapped() -> None:
    assert from_pcm16(to_pcm16(np.array([2.0, -2.0], np.float32))).tolist() == pytest.approx([1.0, -1.0], abs=1e-4)


EVERY_SAMPLE = np.arange(-32768, 32768, dtype="<i2").tobytes()


EVERY_CODE = bytes(range(256))


@pytest.mark.filterwarnings("ignore:'audioop' is deprecated")
@pytest.mark.parametrize(("encoding", "audioop_name"), [("pcmu", "ulaw"), ("pcma", "alaw")])
def test_g711_agrees_with_audioop_on_every_sample_and_every_code(encoding: Encoding, audioop_name: str) -> None:
    audioop = pytest.importorskip("audioop", reason="Python 3.13 has no audioop")
    assert encode(from_pcm16(EVERY_SAMPLE), encoding) == getattr(audioop, f"lin2{audioop_name}")(EVERY_SAMPLE, 2)
    assert to_pcm16(decode(EVERY_CODE, encoding)) == getattr(audioop, f"{audioop_name}2lin")(EVERY_CODE, 2)


@pytest.mark.parametrize(
    ("encoding", "codes", "linear"),
    [("pcmu", b"\xff\x80\x00\xe7", [0, 32124, -32124, 260]), ("pcma", b"\xd5\xaa\x2a\x55", [8, 32256, -32256, -8])],
)
def test_g711_matches_the_tables_of_the_standard(encoding: Encoding, codes: bytes, linear: list[int]) -> None:
    assert np.frombuffer(to_pcm16(decode(codes, encoding)), "<i2").tolist() == linear
    assert encode(decode(codes, encoding), encoding) == codes


def test_silence_is_trimmed_to_the_given_lengths() -> None:
    samples = np.concatenate([np.zeros(4800), sine(24_000, 0.5), np.zeros(4800)]).astype(np.float32)
    trimmed = samples[without_silence(samples, 24_000, lead_ms=10, tail_ms=40)]
    assert np.flatnonzero(np.abs(trimmed) > 0.01)[0] == pytest.approx(240, abs=5)
    assert len(trimmed) == pytest.approx(240 + 12_000 + 960, abs=10)
    assert without_silence(np.zeros(999, np.float32), 24_000, lead_ms=10, tail_ms=10) == slice(0, 0)

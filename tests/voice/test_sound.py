"""PCM, resampling, the input buffer and the speech detector."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice.audio import (
    HEARING_RATE,
    INPUT_RATES,
    BadAudio,
    Encoding,
    Resampler,
    Samples,
    decode,
    encode,
    from_pcm16,
    resample,
    to_pcm16,
    trim,
)
from voice.listening import InputBuffer
from voice.vad import WINDOW, Silero, SpeechDetector, bundled_silero


def sine(rate: int, seconds: float, hz: float = 440.0) -> Samples:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


@given(st.binary(max_size=200).filter(lambda data: len(data) % 2 == 0))
def test_pcm_survives_the_way_in_and_out(data: bytes) -> None:
    assert to_pcm16(from_pcm16(data)) == data


def test_an_odd_number_of_bytes_is_refused() -> None:
    with pytest.raises(BadAudio, match="3 bytes are not 16-bit samples"):
        from_pcm16(b"abc")


def test_too_loud_is_clipped_not_wrapped() -> None:
    assert from_pcm16(to_pcm16(np.array([2.0, -2.0], np.float32))).tolist() == pytest.approx([1.0, -1.0], abs=1e-4)


EVERY_SAMPLE = np.arange(-32768, 32768, dtype="<i2").tobytes()
EVERY_CODE = bytes(range(256))


@pytest.mark.filterwarnings("ignore:'audioop' is deprecated")
@pytest.mark.parametrize(("encoding", "theirs"), [("pcmu", "ulaw"), ("pcma", "alaw")])
def test_g711_agrees_with_audioop_on_every_sample_and_every_code(encoding: Encoding, theirs: str) -> None:
    audioop = pytest.importorskip("audioop", reason="Python 3.13 has no audioop")
    assert encode(from_pcm16(EVERY_SAMPLE), encoding) == getattr(audioop, f"lin2{theirs}")(EVERY_SAMPLE, 2)
    assert to_pcm16(decode(EVERY_CODE, encoding)) == getattr(audioop, f"{theirs}2lin")(EVERY_CODE, 2)


@pytest.mark.parametrize(
    ("encoding", "codes", "linear"),
    [("pcmu", b"\xff\x80\x00\xe7", [0, 32124, -32124, 260]), ("pcma", b"\xd5\xaa\x2a\x55", [8, 32256, -32256, -8])],
)
def test_g711_has_the_values_of_its_tables(encoding: Encoding, codes: bytes, linear: list[int]) -> None:
    assert np.frombuffer(to_pcm16(decode(codes, encoding)), "<i2").tolist() == linear
    assert encode(decode(codes, encoding), encoding) == codes


def test_the_telephones_sound_is_doubled_without_waiting() -> None:
    wave, stream = sine(8_000, 1.0, 3000.0), Resampler(8_000, HEARING_RATE)
    first = stream.push(wave[:160])
    assert len(first) >= 2 * (160 - 16)
    joined = np.concatenate((first, stream.push(wave[160:]), stream.push(wave[:0], last=True)))
    assert np.abs(joined - sine(HEARING_RATE, 1.0, 3000.0))[64:-64].max() < 0.001


@pytest.mark.parametrize("source", INPUT_RATES)
@pytest.mark.parametrize("sizes", [[160], [1, 7, 333], [4096]])
def test_resampling_in_blocks_leaves_no_seams(source: int, sizes: list[int]) -> None:
    wave = sine(source, 1.0)
    stream, out, at, n = Resampler(source, HEARING_RATE), [], 0, 0
    while at < len(wave):
        size = sizes[n % len(sizes)]
        out.append(stream.push(wave[at : at + size]))
        at, n = at + size, n + 1
    out.append(stream.push(np.zeros(0, np.float32), last=True))
    joined = np.concatenate(out)
    expected = sine(HEARING_RATE, 1.0)
    assert abs(len(joined) - len(expected)) <= 2
    middle = slice(800, 15_000)
    assert np.abs(joined[middle] - expected[middle]).max() < 0.01


def test_silence_around_sound_is_trimmed_to_what_was_asked() -> None:
    sound = np.concatenate([np.zeros(4800), sine(24_000, 0.5), np.zeros(4800)]).astype(np.float32)
    cut = trim(sound, 24_000, lead_ms=10, tail_ms=40)
    assert np.flatnonzero(np.abs(cut) > 0.01)[0] == pytest.approx(240, abs=5)
    assert len(cut) == pytest.approx(240 + 12_000 + 960, abs=10)
    assert len(trim(np.zeros(999, np.float32), 24_000, lead_ms=10, tail_ms=10)) == 0


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=20), st.integers(0, 2000))
def test_the_input_buffer_gives_back_what_came_in_since_any_moment(sizes: list[int], since_ms: int) -> None:
    buffer, everything = InputBuffer(), np.zeros(0, np.float32)
    for n, size in enumerate(sizes):
        block = np.arange(len(everything), len(everything) + size).astype(np.float32)
        buffer.add(block, float(n))
        everything = np.concatenate((everything, block))
    assert buffer.end_ms == len(everything) // 16
    wanted = everything[since_ms * 16 :]
    assert np.array_equal(buffer.since(since_ms), wanted)
    buffer.forget_before(min(since_ms, buffer.end_ms))
    assert np.array_equal(buffer.since(0), everything[min(since_ms, buffer.end_ms) * 16 :])
    buffer.keep_last(100)
    assert buffer.held_ms <= 200 or buffer.held_ms == buffer.end_ms
    left = buffer.since(0)
    assert np.array_equal(left, everything[len(everything) - len(left) :])


def test_a_sample_is_dated_by_the_arrival_of_its_block() -> None:
    buffer = InputBuffer()
    for n in range(10):
        buffer.add(np.zeros(320, np.float32), 100 + 0.02 * (n + 1))
    assert buffer.time_of(100) == pytest.approx(100.1)
    assert buffer.time_of(90) == pytest.approx(100.09)
    buffer.clear()
    assert (buffer.held_ms, buffer.end_ms) == (0, 200)
    assert buffer.time_of(190) == pytest.approx(100.19)


@pytest.fixture(scope="module")
def silero() -> Silero:
    return Silero(bundled_silero())


@pytest.mark.parametrize("name", ["silence", "white noise", "hum", "clicks"])
def test_what_is_no_speech_is_not_taken_for_it(silero: Silero, name: str) -> None:
    rng, count = np.random.default_rng(3), 4 * HEARING_RATE
    sounds = {
        "silence": np.zeros(count),
        "white noise": 0.05 * rng.standard_normal(count),
        "hum": 0.2 * np.sin(2 * np.pi * 50 * np.arange(count) / HEARING_RATE),
        "clicks": 0.8 * (rng.random(count) < 0.0002),
    }
    frames = SpeechDetector(silero).push(sounds[name].astype(np.float32))
    assert sum(frame.probability > 0.5 for frame in frames) <= 2


def test_windows_are_judged_alike_whatever_the_size_of_the_blocks(silero: Silero) -> None:
    sound = resample((np.random.default_rng(0).standard_normal(16_000) * 0.1).astype(np.float32), 8000, 16_000)
    whole = SpeechDetector(silero).push(sound)
    pieces, detector = [], SpeechDetector(silero)
    for start in range(0, len(sound), 37):
        pieces += detector.push(sound[start : start + 37])
    assert pieces == whole
    assert [(f.start_ms, f.end_ms) for f in whole[:2]] == [(0, 32), (32, 64)]
    assert len(whole) == len(sound) // WINDOW


def test_a_shut_gate_spares_the_network(silero: Silero, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    run = silero.run

    def counted(windows: Samples, state: object) -> object:
        nonlocal asked
        asked += 1
        return run(windows, state)  # type: ignore[arg-type]

    monkeypatch.setattr(silero, "run", counted)
    SpeechDetector(silero).push(np.zeros(10 * HEARING_RATE, np.float32))
    assert asked == 0

"""The way of sound through a call: pieces, pace, marks and order, on a clock that the test holds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.phone.ordering import MOST_HELD, Ordering
from server.phone.playout import MARK_MS, Cut, Playout
from voice.audio import HEARING_RATE, SPEAKING_RATE, Encoding, Resampler, Samples, decode, encode
from voice.lowband import LowBand

FRAME = 160


def playout(marks: bool = True, ahead_ms: int = 300) -> Playout:
    return Playout(8, 0xFF, piece_ms=20, ahead_ms=ahead_ms, marks=marks)


def sine(rate: int, seconds: float, hz: float = 440.0) -> Samples:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def test_pieces_are_sent_a_bounded_time_ahead_and_all_of_them_arrive() -> None:
    out = playout()
    out.add("a", bytes(range(200)) * 80)  # 2 s
    out.end()
    sent = b""
    for n in range(200):
        now = 10 + n * 0.01
        sent += b"".join(piece.data for piece in out.due(now))
        assert len(sent) / 8000 <= now - 10 + 0.3 + 1e-6
    assert sent == bytes(range(200)) * 80


def test_a_call_of_thirty_minutes_does_not_drift() -> None:
    out, sent, now, wobble = playout(), 0, 0.0, random.Random(1)
    next_block = 0.0
    while now < 1800:
        while next_block <= now + 1.0:
            out.add("a", bytes(800))
            next_block += 0.1
        sent += sum(len(piece.data) for piece in out.due(now))
        ahead_ms = sent / 8 - 1000 * now
        assert 300 - 20 - 33 <= ahead_ms <= 300 + 1e-3, now
        now += 0.02 + wobble.uniform(-0.005, 0.012)


def test_after_a_stall_the_pace_is_taken_up_again_without_hurry() -> None:
    out = playout()
    out.add("a", bytes(80_000))
    assert sum(1 for _ in out.due(0.0)) == 15
    assert sum(1 for _ in out.due(5.0)) == 15  # the caller heard silence meanwhile; more at once would only pile up


def test_the_last_piece_of_an_item_is_filled_up_with_silence_and_waits_for_its_end() -> None:
    out = playout()
    out.add("a", b"\x01" * 200)
    assert [piece.data for piece in out.due(0.0)] == [b"\x01" * 160]
    out.end()
    assert [piece.data for piece in out.due(0.0)] == [b"\x01" * 40 + b"\xff" * 120]


def test_history_is_cut_at_the_last_mark_that_was_played() -> None:
    out = playout()
    out.add("a", bytes(8 * 2000))
    marks = [piece.mark for piece in out.due(0.0) if piece.mark]
    assert len(marks) == 300 // MARK_MS
    out.played(marks[0])
    out.played(marks[1])
    assert out.clear(0.25) == [Cut("a", 2 * MARK_MS)]


def test_marks_that_a_clear_returns_do_not_count() -> None:
    out = playout()
    out.add("a", bytes(8 * 2000))
    first = [piece.mark for piece in out.due(0.0) if piece.mark]
    out.played(first[0])
    out.clear(0.15)
    out.add("b", bytes(8 * 2000))
    list(out.due(0.2))
    for mark in first:
        out.played(mark)
    assert out.clear(0.2) == [Cut("b", 0)]


def test_an_item_heard_to_its_end_is_not_cut_and_one_that_waits_was_not_heard() -> None:
    out = playout()
    out.add("a", bytes(8 * 100))
    out.add("b", bytes(8 * 100))
    out.end()
    marks = [piece.mark for piece in out.due(0.0) if piece.mark]
    out.played(marks[0])
    assert out.finished("a", 1.0)
    out.add("c", bytes(8 * 1000))
    assert out.clear(0.1) == [Cut("b", 0), Cut("c", 0)]
    assert not out.busy(0.1)


def test_where_no_marks_are_returned_the_clock_is_believed() -> None:
    out = playout(marks=False, ahead_ms=60)
    out.add("a", bytes(8 * 2000))
    for n in range(50):
        assert all(piece.mark is None for piece in out.due(n * 0.02))
    (cut,) = out.clear(1.0)
    assert cut.heard_ms == pytest.approx(1000, abs=25)


def test_a_full_carrier_is_sent_nothing() -> None:
    out = playout()
    out.add("a", bytes(8 * 2000))
    out.hold(True)
    assert list(out.due(0.0)) == []
    out.hold(False)
    assert len(list(out.due(0.0))) == 15


@given(st.lists(st.tuples(st.sampled_from("adecp"), st.integers(0, 500)), max_size=60))
@settings(deadline=None)
def test_nothing_is_ever_heard_that_was_not_sent(steps: list[tuple[str, int]]) -> None:
    out, now, item, marks = playout(), 0.0, 0, []
    added: dict[str, int] = {}
    for kind, n in steps:
        if kind == "a":
            out.add(f"i{item}", bytes(n))
            added[f"i{item}"] = added.get(f"i{item}", 0) + n
        elif kind == "e":
            out.end()
            item += 1
        elif kind == "p" and marks:
            out.played(marks.pop(n % len(marks)))
        elif kind == "c":
            for cut in out.clear(now):
                assert 0 <= cut.heard_ms <= added[cut.item_id] / 8
            item += 1
        now += n / 1000
        marks += [piece.mark for piece in out.due(now) if piece.mark]


@pytest.mark.parametrize(("encoding", "most"), [("pcmu", 0.017), ("pcma", 0.017), ("pcm", 0.002)])
def test_a_sine_goes_out_without_clicks(encoding: Encoding, most: float) -> None:
    """In blocks of 100 ms as answers come, resampled, encoded, cut into frames and joined by the carrier."""
    wave, stream, out = sine(SPEAKING_RATE, 3.0), Resampler(SPEAKING_RATE, 8_000), bytearray()
    width = 2 if encoding == "pcm" else 1
    play = Playout(8 * width, 0, piece_ms=20, ahead_ms=300, marks=True)
    for start in range(0, len(wave), 2400):
        play.add("a", encode(stream.push(wave[start : start + 2400]), encoding))
    play.add("a", encode(stream.push(wave[:0], last=True), encoding))
    play.end()
    for n in range(200):
        for piece in play.due(n * 0.02):
            out += piece.data
    heard = decode(bytes(out), encoding)[: 3 * 8000]
    error = np.abs(heard - sine(8_000, 3.0))[200:-200]
    assert error.max() < most
    assert np.abs(np.diff(heard[200:-200])).max() < 2 * np.pi * 440 / 8000 * 0.5 + 2 * most


@pytest.mark.parametrize("encoding", ["pcmu", "pcma"])
def test_a_sine_comes_in_without_clicks(encoding: Encoding) -> None:
    """In frames of 20 ms that overtake each other, put in order, decoded and doubled for the voice detector."""
    wave = encode(sine(8_000, 2.0), encoding)
    frames = [(n, wave[n * FRAME : (n + 1) * FRAME]) for n in range(100)]
    for n in range(5, 95, 7):
        frames[n], frames[n + 1] = frames[n + 1], frames[n]
    ordering, stream = Ordering(0xFF), Resampler(8_000, HEARING_RATE)
    heard = np.concatenate([stream.push(decode(ordering.push(data, n), encoding)) for n, data in frames])
    error = np.abs(heard - sine(HEARING_RATE, 2.0)[: len(heard)])[64:]
    assert len(heard) >= 2 * HEARING_RATE - 64
    assert error.max() < 0.02


def test_the_fundamental_that_the_telephone_cuts_off_is_put_back_without_seams() -> None:
    t = np.arange(2 * HEARING_RATE) / HEARING_RATE
    voice = sum(np.sin(2 * np.pi * 120 * n * t) / n for n in range(3, 20)).astype(np.float32) / 4  # type: ignore[union-attr]
    whole = LowBand().push(voice)
    stream, start, pieces = LowBand(), 0, []
    for size in (320, 1, 0, 5000, 319, len(voice)):
        pieces.append(stream.push(voice[start : start + size]))
        start += size
    np.testing.assert_allclose(np.concatenate(pieces), whole, atol=1e-5)
    before, after = (np.abs(np.fft.rfft(sound[HEARING_RATE:])) for sound in (voice, whole))
    assert after[120] > 0.3 * after.max() > 100 * before[120]
    assert np.abs(after - before)[600:].max() < 0.1 * before.max()  # and what was there is left alone


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_silence_and_a_steady_level_have_no_low_band(level: float) -> None:
    steady = np.full(HEARING_RATE, level, np.float32)
    np.testing.assert_allclose(LowBand().push(steady)[1000:], steady[1000:], atol=1e-5)


def test_lost_frames_become_silence_of_their_length() -> None:
    ordering = Ordering(0xFF)
    heard = b"".join(ordering.push(bytes([n]) * FRAME, n) for n in range(20) if n not in (5, 6))
    assert heard == b"".join((b"\xff" if n in (5, 6) else bytes([n])) * FRAME for n in range(20))
    assert ordering.lost == 2


def test_a_frame_that_comes_too_late_is_left_out() -> None:
    ordering = Ordering(0xFF)
    heard = b"".join(ordering.push(bytes([n]) * FRAME, n) for n in (1, 2, 4, 5, 6, 7, 3, 8))
    assert len(heard) == 8 * FRAME
    assert heard[2 * FRAME : 3 * FRAME] == b"\xff" * FRAME


@given(st.lists(st.integers(-(2**40), 2**40) | st.none(), max_size=80))
def test_no_numbering_makes_the_sound_endless(numbers: list[int | None]) -> None:
    ordering, total = Ordering(0), 0
    for number in numbers:
        total += len(ordering.push(b"x" * 10, number))
    assert total <= 10 * (len(numbers) + 51 * len(numbers))
    assert len(ordering._held) <= MOST_HELD + 1

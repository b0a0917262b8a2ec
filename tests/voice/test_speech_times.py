"""When words are spoken: what is written, what is read aloud and what is pronounced have different numbers of words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice.audio.codec import OUTPUT_RATE
from voice.chunks import Chunk, unheard_chunks
from voice.history import Item, Span
from voice.pronunciation import Phoneme
from voice.speech_times import Speech, SpeechTimes, SpokenWord, first_words, speech_times
from voice.visemes import Viseme


def times(written: str, spoken: str, pronounced: str) -> dict[str, tuple[float, float]]:
    """The words that are heard, where every symbol lasts 10 ms."""
    phonemes = [Phoneme(symbol, 10.0 * n, 10.0 * (n + 1)) for n, symbol in enumerate(pronounced)]
    words = speech_times(written, spoken, phonemes).words
    assert [word.text for word in words] == written.split()
    return {word.text: (word.start_ms, word.end_ms) for word in words if word.is_heard}


def test_words_that_are_pronounced_one_by_one_have_the_times_of_their_phonemes() -> None:
    found = times("Hello, my friend!", "Hello, my friend!", "^həlˈoʊ, maɪ fɹˈɛnd!$")
    assert found == {"Hello,": (10, 70), "my": (90, 120), "friend!": (130, 190)}


def test_small_words_that_are_pronounced_as_one_share_its_time() -> None:
    found = times("one of the best", "one of the best", "wˈʌn ʌvðə bˈɛst")
    assert found["one"] == (0, 40) and found["best"] == (100, 150)
    assert found["of"] == (50, pytest.approx(66)) and found["the"] == (pytest.approx(66), 90)


def test_a_number_lasts_as_long_as_the_words_that_it_is_read_with() -> None:
    found = times("It costs $25 today.", "It costs twenty-five dollars today.", "ɪt kˈɔsts twˈɛntifˈaɪv dˈɑlɚz tədˈeɪ.")
    assert found["costs"] == (30, 90)
    assert found["$25"] == (100, 290) and found["today."] == (300, 360)


def test_what_is_not_pronounced_takes_no_time() -> None:
    found = times("Well — **stop** it", "Well, stop it", "wˈɛl, stˈɑp ɪt")
    assert list(found) == ["Well", "**stop**", "it"]
    assert found["**stop**"] == (60, 110)


def test_phonemes_in_place_of_a_word_belong_to_it() -> None:
    found = times("Ask Siobhan now", "Ask [[ʃəˈvɔn]] now", "æsk ʃəˈvɔn nˈaʊ")
    assert found["Siobhan"] == (40, 100)


def test_without_phonemes_there_are_no_times() -> None:
    assert speech_times("Hello", "Hello", []) == SpeechTimes()


WORDS = st.lists(st.sampled_from(["the", "a", "238,857", "—", "miles", "Dr.", "`x`", "to"]), max_size=24).map(" ".join)


@given(WORDS, WORDS, st.lists(st.sampled_from(["ðə", "tˈuː", "mˈaɪlz", ","]), max_size=30).map(" ".join))
def test_words_are_in_order_whatever_is_pronounced(written: str, spoken: str, pronounced: str) -> None:
    phonemes = [Phoneme(symbol, 10.0 * n, 10.0 * (n + 1)) for n, symbol in enumerate(pronounced)]
    words = speech_times(written, spoken, phonemes).words
    assert len(words) == (len(written.split()) if phonemes else 0)
    bounds = [bound for word in words for bound in (word.start_ms, word.end_ms)]
    assert bounds == sorted(bounds)
    assert all(0 <= bound <= 10 * len(pronounced) for bound in bounds)


@pytest.mark.parametrize(
    ("count", "expected"), [(0, ""), (1, " The"), (2, " The  moon"), (3, " The  moon is. "), (9, " The  moon is. ")]
)
def test_the_first_words_of_a_text_keep_its_spaces(count: int, expected: str) -> None:
    assert first_words(" The  moon is. ", count) == expected


def test_only_words_that_were_spoken_before_an_interruption_were_heard() -> None:
    span = Span(" The capital is Paris.", 1000, 2500, (200, 900, 1000, 1400))
    assert [span.text_heard_by(ms) for ms in (1100, 1200, 1950, 2390, 2450)] == [
        "", " The", " The capital", " The capital is", " The capital is Paris.",
    ]  # fmt: skip


def test_the_times_of_an_interrupted_response_go_on_with_the_rest_of_its_audio() -> None:
    words = tuple(
        SpokenWord(word, 500.0 * n, 500.0 * (n + 1)) for n, word in enumerate(("One", "two", "three", "four"))
    )
    shapes = (Viseme("aa", 2, 0, 1000), Viseme("PP", 21, 1000, 2000))
    chunk = Chunk("One two three four", Speech(np.ones(2 * OUTPUT_RATE, np.float32), SpeechTimes(words, shapes)))
    item = Item(
        "a", "assistant", chunk.text, spans=[Span(chunk.text, 0, 2000, (500, 1000, 1500, 2000))], heard_ms=1250.0
    )
    (rest,) = unheard_chunks([chunk], item)
    assert rest.text == " three four" and rest.ms == pytest.approx(950)
    assert rest.speech.times.words == (SpokenWord("three", 0, 450), SpokenWord("four", 450, 950))
    assert rest.speech.times.visemes == (Viseme("PP", 21, 0, 950),)

"""English text in Kokoro's notation."""

from __future__ import annotations

import pytest

from voice.kokoro_phonemes import Accent, phoneme_ids, phonemes


def test_diphthongs_are_one_symbol_and_punctuation_stays() -> None:
    assert phonemes("Why go now, boy? Stay!", "en-us") == "wˌI ɡˌO nˈW, bˈY? stˈA!"


def test_americans_and_britons_pronounce_differently() -> None:
    assert phonemes("Better water.", "en-us") == "bˈɛTəɹ wˈɔTəɹ."
    assert phonemes("Better water.", "en-gb") == "bˈɛtə wˈɔːtə."


@pytest.mark.parametrize("accent", ["en-us", "en-gb"])
def test_every_phoneme_of_english_is_known(accent: Accent) -> None:
    text = (
        "The nurse near the church judged thirty-five measures of pure butter, and a written letter about the loch "
        "(in the garden); “how odd” — naive boys hear their bottles, buttons and poor cures: vision, singing, yes!"
    )
    assert len(phoneme_ids(text, accent)) == len(phonemes(text, accent))


def test_numbers_and_symbols_are_spoken_and_nothing_is_nothing() -> None:
    assert phonemes("3 km", "en-gb").startswith("θɹˈiː k")
    assert phoneme_ids("", "en-us") == []

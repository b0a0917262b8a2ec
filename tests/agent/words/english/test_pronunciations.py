"""How a text says that names are pronounced."""

from __future__ import annotations

import time

import pytest

from agent.words.english import pronunciations


@pytest.mark.parametrize(
    ("text", "said_before", "expected"),
    [
        ("Siobhan (pronounced shi-VAWN) lives in Cork.", "", {"Siobhan": "shi-vawn"}),
        ("Siobhan (/ʃɪˈvɔːn/ shi-VAWN) is Irish.", "", {"Siobhan": "/ʃɪˈvɔːn/"}),
        ("Łódź is pronounced [wut͡ɕ].", "", {"Łódź": "/wut͡ɕ/"}),
        ("Our firm Acme Naiad (pronounced “NYE-ad”) sells tea.", "", {"Naiad": "nye-ad"}),
        ("Ask Niamh, pronounced neev, or Caoimhe: pronounced kee-va.", "", {"Niamh": "neev", "Caoimhe": "kee-va"}),
        ("Nguyen is pronounced like win, not nooyen.", "", {"Nguyen": "win"}),
        ("The word gif is pronounced jif.", "", {"gif": "jif"}),
        ("You pronounce Siobhan Reilly like shivon rye-lee.", "", {"Siobhan Reilly": "shivon rye-lee"}),
        ("No, it’s pronounced Shivon.", "Siobhan’s cat lives in Cork.", {"Siobhan": "shivon"}),
        ("It's pronounced like win.", "Mr. Nguyen lives there.", {"Nguyen": "win"}),
        ("It's pronounced like win.", "Mr. Nguyen lives in Hanoi.", {}),
        ("My name is Siobhan. It's pronounced Shivon.", "Welcome to Acme.", {"Siobhan": "shivon"}),
        ("My name is pronounced Shivon.", "Hello, Siobhan.", {"Siobhan": "shivon"}),
        ("No, it's not Sheevon, it's pronounced Shivon.", "Ask Siobhan.", {"Sheevon": "shivon"}),
        ("If somebody asks for Siobhan (pronounced shi-VAWN), say yes.", "", {"Siobhan": "shi-vawn"}),
        ("We don't know. Siobhan is pronounced shi-vawn.", "", {"Siobhan": "shi-vawn"}),
        ("You pronounce it Wooster.", "Worcester is a city in England.", {"Worcester": "wooster"}),
    ],
)
def test_a_text_says_how_names_are_pronounced(text: str, said_before: str, expected: dict[str, str]) -> None:
    assert pronunciations(text, said_before) == expected


@pytest.mark.parametrize(
    "text",
    [
        "How do you pronounce Siobhan?", "Is Siobhan pronounced shivon?", "It is pronounced differently in French.",
        "Don't pronounce it win.", "It isn't pronounced win.", "Can you pronounce it like a local?",
        "The judge pronounced John guilty.", "Anna pronounced Siobhan wrongly.", "She pronounced it Shivon at school.",
        "Smith was pronounced guilty.", "Inflation was pronounced last year.", "Her surname is pronounced Chumley.",
        "Tell me how to pronounce it please.", "Please pronounce it slowly.", "Most people mispronounce it Shiban.",
        "Anna and Tom were pronounced husband and wife.", "Config (/etc/hosts)", "The letter is pronounced f.",
        "His accent is very pronounced.", "The doctor pronounced him dead.", "The k is not pronounced.",
        "You pronounced it wrong.", "It's pronounced Siobhan.", "See Siobhan (or Sean).", "pronounced", "(/",
        "Siobhan (/ʃ", "I don't think Nguyen is pronounced like new-yen.", "Nobody says Nguyen is pronounced like win.",
        "I'm not sure whether Nguyen is pronounced like win.", "He thinks that Nguyen is pronounced like new-yen.",
        "It might be pronounced Shivon.", "Siobhan used to be pronounced like sheevon.", "Config (/etc/)",
        "I heard that Siobhan is pronounced shi-vawn.", "Never pronounce Siobhan like shivon.", "Folder (/données/)",
        "Paris is pronounced as usual.", "Siobhan is pronounced as always.", "Paris is pronounced as it is written.",
    ],
)  # fmt: skip
def test_other_texts_say_nothing_of_it(text: str) -> None:
    assert pronunciations(text, "Siobhan is from Cork.") == {}


@pytest.mark.parametrize("part", ["(/", "pronounced ", "A pronounce it B ", "Anna (/a/) ", "A" * 50, "(", "/"])
def test_hostile_texts_take_no_time(part: str) -> None:
    text = part * (1_000_000 // len(part))
    started = time.process_time()
    assert len(pronunciations(text, text)) <= 100
    assert time.process_time() - started < 0.5


def test_others_than_the_user_and_the_operator_only_respell() -> None:
    text = "Alice (pronounced like Bob), Niamh (/niːv/), Siobhan (pronounced shi-VAWN)"
    assert pronunciations(text) == {"Alice": "bob", "Niamh": "/niːv/", "Siobhan": "shi-vawn"}
    assert pronunciations(text, trusted=False) == {"Siobhan": "shi-vawn"}


@pytest.mark.parametrize("text", ["That is unsafe, pronounced safe.", "fifteen is pronounced fifty"])
def test_others_respell_names_only(text: str) -> None:
    """Or a web page would decide what the voice says for an ordinary word."""
    assert pronunciations(text) and not pronunciations(text, trusted=False)

"""What a voice gets of a text: no markup, no code, nothing that it cannot say, and numbers as people say them."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice.clauses import Clause, ClauseSplitter
from voice.spoken_text import speakable


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("**Paris** is *nice*", "Paris is nice"),
        ("The tip is 15% of $60 = $9.", "The tip is fifteen percent of sixty dollars equals nine dollars."),
        ("It is $5^2 = 25$ here.", "It is five squared equals twenty-five here."),
        ("C, C++, and C#.", "C, C plus plus, and C sharp."),
        ("x =3", "x equals three"),
        ("# Answer\n- one\n- two", "Answer one two"),
        ("see [the docs](http://x.y/z)", "see the docs"),
        ("`code` & 5% more 🙂!", "code and five percent more!"),
        ("1. Whisk it.", "First, Whisk it."),
        ("12) Serve.", "Twelfth, Serve."),
        ("***", ""),
        ("=====", "equals"),
        ("It is 20 °C.", "It is twenty degrees Celsius."),
        ("| Tea | 3 min |", "Tea, three minutes"),
        ("|---|:--|", ""),
        ("> [!NOTE]\n> Mind the step.", "Mind the step."),
        (r"So \( \frac{1}{2} \times 4 = 2 \).", "So one over two times four equals two."),
        (r"So it is \( \boxed{\frac{1}{2}} \).", "So it is one over two."),
        ("It's $E = mc^2$, he said.", "It's E equals mc squared, he said."),
        ("That's great :-) really <3", "That's great really"),
        ("(at age 8)", "(at age eight)"),
        ("Done.<|im_end|>", "Done."),
        ("<b>Bold</b><br>words", "Bold words"),
        ("The 里斯bon tram is number 28.", "The bon tram is number twenty-eight."),
        ("Crème brûlée, señor?", "Crème brûlée, señor?"),
        ("Привет means hello.", "means hello."),
        ("A fact.[1]", "A fact."),
        ("Use $x$ @home, not 3 / x.", "Use x at home, not three divided by x."),
        ("Https://b.org/x is it.", "b dot org slash x is it."),
    ],
)
def test_markup_and_what_has_no_sound_is_not_spoken(text: str, spoken: str) -> None:
    assert speakable(text) == spoken


def test_for_a_voice_of_another_language_numbers_stay_as_they_are_written() -> None:
    assert speakable("**Um 18:30** kostet es 3,50 €.", english=False) == "Um 18:30 kostet es 3,50."


def spoken_clauses(text: str, size: int = 3) -> list[str]:
    splitter, clauses = ClauseSplitter(), list[Clause]()
    for start in range(0, len(text), size):
        clauses += splitter.push(text[start : start + size])
    clauses += splitter.flush()
    assert "".join(clause.text for clause in clauses) == text
    return [spoken for clause in clauses if (spoken := clause.spoken())]


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_code_is_not_spoken_however_it_is_divided(fence: str) -> None:
    text = f"Try this:\n{fence}python\nfor x in range(3):\n    print(x)\n{fence}\nThat prints three numbers."
    assert " ".join(spoken_clauses(text)) == "Try this: That prints three numbers."


def test_a_numbered_list_becomes_sentences() -> None:
    text = "Three ideas:\n1. Bake bread.\n2. Read a book.\n3. Go for a walk."
    assert spoken_clauses(text) == [
        "Three ideas:", "First, Bake bread.", "Second, Read a book.", "Third, Go for a walk.",
    ]  # fmt: skip
    assert spoken_clauses("The answer to that is then 5. It is odd.")[-2:] == ["five.", "It is odd."]
    assert spoken_clauses("1. Bake bread. 2. Read a book.") == ["First, Bake bread.", "Second, Read a book."]


def test_a_mark_within_a_line_begins_no_code() -> None:
    assert " ".join(spoken_clauses("So cute~~~ I love it, and I mean it. Really.")).endswith("I mean it. Really.")


def test_a_clause_does_not_end_within_a_link_or_code() -> None:
    spoken = spoken_clauses(
        "Have a look at [the very long name of a page](https://example.com/a_b) or `git reset --hard`."
    )
    assert not any(mark in " ".join(spoken) for mark in "[](`/")


@given(st.text(max_size=120) | st.text("⁰¹²³⁺⁻₂ xN8/$.5-–am:X", max_size=40), st.booleans())
def test_any_text_can_be_spoken(text: str, english: bool) -> None:
    spoken = speakable(text, english=english)
    assert not re.search(r"[<>{}\\|`*#~\U0001f300-\U0001faff]", spoken)
    assert spoken == spoken.strip()


@pytest.mark.parametrize(
    "part", ["1", "1,", "1-", "1/", "a.", "$1 ", "(", "[a](", "**", "I", "1:1", "\\frac{", "|", " -", "<a "]
)
def test_long_repetitions_take_no_longer_than_they_have_to(part: str) -> None:
    start = time.thread_time()
    speakable(part * (280 // len(part)))
    assert time.thread_time() - start < 0.1

"""Written English as people read it aloud."""

from __future__ import annotations

import pytest

from agent.words.english.number_words import cardinal, ordinal, year
from agent.words.english.reading import read_aloud


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        # Numbers.
        ("Add 1,234 and 56.", "Add one thousand two hundred thirty-four and fifty-six."),
        ("Pi is 3.14.", "Pi is three point one four."),
        ("It fell by .75 points.", "It fell by zero point seven five points."),
        ("Agent 007", "Agent zero zero seven"),
        ("It's -5 outside.", "It's minus five outside."),
        ("the 22nd and the 101st", "the twenty-second and the one hundred first"),
        ("10–15 people, 3-4 days", "ten to fifteen people, three to four days"),
        ("a ratio of 2:1", "a ratio of two to one"),
        # Fractions.
        ("½ a lemon and 1 1/2 cups", "one half a lemon and one and a half cups"),
        ("3/4 of it, 1/1000 of a second", "three quarters of it, one thousandth of a second"),
        ("open 24/7", "open twenty-four seven"),
        # Money.
        ("$3.50, €20, 99¢", "three dollars and fifty cents, twenty euros, ninety-nine cents"),
        ("5.50 dollars, 0.99 euros, 1.25 million dollars",
         "five dollars and fifty cents, ninety-nine cents, one point two five million dollars"),
        ("£1.2 million or ¥500", "one point two million pounds or five hundred yen"),
        ("$1", "one dollar"),
        ("$5-10 an hour", "five to ten dollars an hour"),
        # Dates and times.
        ("on 2024-03-05", "on March fifth, twenty twenty-four"),
        ("July 4, 1776", "July fourth, seventeen seventy-six"),
        ("3/14/2015", "March fourteenth, twenty fifteen"),
        ("on 5 May 1990", "on the fifth of May nineteen ninety"),
        ("the 1990s and the '80s", "the nineteen nineties and the eighties"),
        ("in 1066, 1905, 1900 and 2007", "in ten sixty-six, nineteen oh five, nineteen hundred and two thousand seven"),
        ("at 3:05 pm or 9 a.m.", "at three oh five p.m. or nine a.m."),
        ("at 18:30 and 12:00", "at eighteen thirty and twelve o'clock"),
        ("2h 30m", "two hours thirty minutes"),
        ("Mon-Fri, Tue 7:15pm", "Monday to Friday, Tuesday seven fifteen p.m."),
        # Units.
        ("5 m/s", "five meters per second"),
        ("speed in m/s, not km/h", "speed in meters per second, not kilometers per hour"),
        ("a/b", "a over b"),
        ("5 km at 10 km/h", "five kilometers at ten kilometers per hour"),
        ("1 kg, 20 °C, 50 m²", "one kilogram, twenty degrees Celsius, fifty square meters"),
        ("5'10\" tall", "five foot ten tall"),
        ("won 5-4 in her favour", "won five to four in her favour"),
        ("30 x 20 cm", "thirty by twenty centimeters"),
        ("$15/hour", "fifteen dollars per hour"),
        # Names.
        ("Dr. Lee of Baker St.", "Doctor Lee of Baker Street"),
        ("St. Peter vs. e.g. Mr. and Mrs. Smith", "Saint Peter versus for example, Mister and Missus Smith"),
        ("Henry VIII, World War II, Chapter IV", "Henry the eighth, World War two, Chapter four"),
        ("H2O and CO₂", "H two O and C O two"),
        ("x² + 1 = 5", "x squared plus one equals five"),
        ("It cost $999.", "It cost nine hundred ninety-nine dollars."),
        ("(a + b) / 2^n", "(a plus b) divided by two to the power of n"),
        ("Na⁺, Cl⁻ and SO₄²⁻", "Na plus, Cl minus and S O four two minus"),
        ("Malcolm X, World War I began", "Malcolm X, World War one began"),
        ("a $20 bill, a $100 million deal", "a twenty dollar bill, a one hundred million dollar deal"),
        ("May 5-7, May 10 people come", "May fifth to seventh, May ten people come"),
        ("It takes 3 - 5 days, 9 am–5 pm", "It takes three to five days, nine a.m. to five p.m."),
        ("a 4K TV", "a four K TV"),
        # Addresses.
        ("mail name@example.com", "mail name at example dot com"),
        ("https://www.example.org/help?id=3", "example dot org slash help"),
        ("open report.pdf or main.py", "open report dot p d f or main dot p y"),
        ("version v2.1, Python 3.11.2", "version version two point one, Python three point eleven point two"),
        ("call 911 or 555-0123", "call nine one one or five five five zero one two three"),
        # What stays as it is.
        ("I said so, and it's fine. Is it?", "I said so, and it's fine. Is it?"),
        ("NASA, HTML and the U.S.", "NASA, HTML and the U.S."),
        ("The book I read in class I liked, and/or John I am.", "The book I read in class I liked, and or John I am."),
    ],
)  # fmt: skip
def test_a_text_is_read_as_people_read_it(text: str, spoken: str) -> None:
    assert read_aloud(text) == spoken


def test_numbers_have_names() -> None:
    assert [cardinal(n) for n in (0, 13, 40, 105, 1_000_001)] == [
        "zero", "thirteen", "forty", "one hundred five", "one million one",
    ]  # fmt: skip
    assert cardinal(-2) == "minus two" and cardinal(10**18).startswith("one zero zero")
    assert [ordinal(n) for n in (1, 12, 20, 31)] == ["first", "twelfth", "twentieth", "thirty-first"]
    assert [year(n) for n in (1999, 2000, 2010, 476)] == [
        "nineteen ninety-nine", "two thousand", "twenty ten", "four hundred seventy-six",
    ]  # fmt: skip

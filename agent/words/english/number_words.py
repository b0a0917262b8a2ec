"""Numbers in words: quantities, ordinals, years, and digits one by one."""

from __future__ import annotations

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SCALES = ("", "thousand", "million", "billion", "trillion", "quadrillion")
_MAX_DIGITS = 3 * len(_SCALES)
_IRREGULAR = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
_PLURALS = {
    "foot": "feet", "inch": "inches", "penny": "pence", "paisa": "paise", "yen": "yen", "won": "won", "hertz": "hertz",
    "kilohertz": "kilohertz", "megahertz": "megahertz", "gigahertz": "gigahertz", "horsepower": "horsepower",
    "stone": "stone", "kelvin": "kelvin", "P S I": "P S I", "R P M": "R P M", "century": "centuries",
}  # fmt: skip
_SINGULARS = {
    "children": "child", "people": "person", "men": "man", "women": "woman", "feet": "foot", "teeth": "tooth",
    "mice": "mouse", "geese": "goose", "knives": "knife", "loaves": "loaf", "leaves": "leaf", "pence": "penny",
    "halves": "half", "cookies": "cookie", "movies": "movie", "calories": "calorie", "kilocalories": "kilocalorie",
    "buses": "bus", "lunches": "lunch", "peaches": "peach", "coaches": "coach", "inches": "inch", "benches": "bench",
    "species": "species", "series": "series", "lens": "lens", "lenses": "lens", "gas": "gas",
    "gases": "gas", "heroes": "hero", "echoes": "echo",
}  # fmt: skip


def cardinal(number: int) -> str:
    """A whole number in words, such as "two hundred five"; digit by digit where it has too many for a name."""
    if number < 0:
        return f"minus {cardinal(-number)}"
    if number >= 10**_MAX_DIGITS:
        return digits(str(number))
    if number < 20:
        return SMALL[number]
    if number < 100:
        return TENS[number // 10 - 2] + (f"-{SMALL[number % 10]}" if number % 10 else "")
    if number < 1000:
        return f"{SMALL[number // 100]} hundred" + (f" {cardinal(number % 100)}" if number % 100 else "")
    power = (len(str(number)) - 1) // 3
    above, below = divmod(number, 1000**power)
    return f"{cardinal(above)} {_SCALES[power]}" + (f" {cardinal(below)}" if below else "")


def ordinal(number: int) -> str:
    """The ordinal of a whole number in words, such as "twenty-first"."""
    words = cardinal(number)
    at = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[at:]
    said = _IRREGULAR.get(last) or (f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th")
    return words[:at] + said


def year(number: int) -> str:
    """A year in words, such as "nineteen oh five"."""
    if number < 1000 or number % 1000 < 10 or number > 9999:
        return cardinal(number)
    century, rest = divmod(number, 100)
    if not rest:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def number(text: str) -> str:
    """A number in digits in words: "1,234.5" is "one thousand two hundred thirty-four point five"."""
    whole, _, decimals = text.replace(",", "").partition(".")
    return cardinal(int(whole or 0)) + (f" point {digits(decimals)}" if decimals else "")


def digits(text: str) -> str:
    """The digits of a text one by one, and a plus sign in front of them."""
    return ("plus " if text.startswith("+") else "") + " ".join(SMALL[int(one)] for one in text if one.isdecimal())


def plural_of(thing: str) -> str:
    """What several of a thing are called: "miles per hour" for "mile per hour"."""
    head, joint, rest = thing.partition(" per ") if " per " in thing else thing.partition(" of ")
    if head.startswith("degree "):
        return f"degrees{head[6:]}{joint}{rest}"
    before, space, last = head.rpartition(" ")
    if thing in _PLURALS:
        return _PLURALS[thing]
    return f"{before}{space}{_PLURALS.get(last, f'{last}s')}{joint}{rest}"


def singular_of(things: str) -> str:
    """What one of a number of things is called: "child" for "children", "mile per hour" for "miles per hour"."""
    thing, space, rest = things.partition(" ")
    if thing.endswith("ies") and len(thing) > 4:
        one = f"{thing[:-3]}y"
    elif thing.endswith(("sses", "xes", "tches", "shes", "atoes")):
        one = thing[:-2]
    else:
        one = thing if thing.endswith(("ss", "us", "is")) else thing.removesuffix("s")
    return f"{_SINGULARS.get(thing, one)}{space}{rest}"

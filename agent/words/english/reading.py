"""Written English as it is read aloud: numbers, money, dates, times, units, fractions, abbreviations, files and
addresses in words. `read_aloud` goes through these kinds in turn; what none of them knows stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from agent.words.english.dates import MONTHS, WEEKDAYS
from agent.words.english.number_words import cardinal, digits, number, ordinal, plural_of, year
from agent.words.english.written_forms import (
    ABBREVIATIONS,
    CURRENCIES,
    ENDINGS,
    FILES,
    NUMBERED,
    REGNAL,
    SAID_AS_WORDS,
    SCALES,
    SYMBOLS,
    UNITS,
    VULGAR,
    WITHOUT_AMOUNT,
)

_MONTHS = [month.title() for month in MONTHS]
_MONTH = (
    r"(Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|"
    r"Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_WEEKDAYS = {day[:3].title(): day.title() for day in WEEKDAYS}
_WEEKDAY = r"(Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)"
_YEAR = r"(1[1-9]\d\d|20\d\d)"
_AMOUNT = r"(?<!\d)(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
_SCALE = r"(thousand|million|billion|trillion|[kmb]n?\b|K|M|B)"
_TO = r"\s?(?:[-–—]|to)\s?"
_ROMAN = r"(?=[IVXL])(X?L|L?X{0,3})(IX|IV|V?I{0,3})"
_SAYS = r" (?:am|think|know|guess|believe|mean|would|have|like|love|said|say|do|can|will|could|read|saw)\b"
"""What somebody does who says "I"."""
_COUNTED = r" (?!(?:is|was|has|does|as|its|this)\b)(?:[a-z]+s\b|people\b)"
"""Things that a number counts, after it."""
_FUNCTION = r"(?:and|or|for|per|each|from|with|but|was|were|the|that|which|into|more|less|when|than|not)\b"
_SURE = rf"(?!I\b){_ROMAN}"
"""A Roman numeral that is not the pronoun."""
_NO_PRONOUN = r"(?=[.,;:!?)]|$| (?:of|and|or|in|was|is|began|ended|to)\b)"
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


def _any_of(texts: Iterable[str]) -> str:
    """A pattern for one of these texts, the longest first."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))


_SYMBOL, _UNIT = f"({_any_of(CURRENCIES)})", _any_of(UNITS)

Match = re.Match[str]


def read_aloud(text: str) -> str:
    """The words with which a text is read aloud."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


# Addresses and names of files.


def _address(match: Match) -> str:
    text = re.sub(r"^(?:https?://)?(?:www\.)?", "", match.group(), flags=re.IGNORECASE)
    text = re.split(r"[?#]", text)[0].rstrip("/")
    for mark, word in (("@", "at"), (".", "dot"), ("/", "slash"), ("_", "underscore"), ("-", "dash"), ("+", "plus")):
        text = text.replace(mark, f" {word} ")
    return text


def _path(match: Match) -> str:
    text = match.group().replace(":", " colon ").replace("\\", " backslash ").replace("/", " slash ")
    return text.replace("_", " underscore ").replace(".", " dot ")


def _file(match: Match) -> str:
    name, ending = match.group(1), match.group(2)
    said = ending if ending.lower() in SAID_AS_WORDS else " ".join(ending)
    return f"{re.sub('[_-]', ' ', name).replace('.', ' dot ')} dot {said}"


def _version(match: Match) -> str:
    parts = " point ".join(cardinal(int(part)) for part in match.group(2).split("."))
    return f"version {parts}" if match.group(1) else parts


# Dates and times.


def _day(month: int, day: int, in_year: str | None) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return f"{_MONTHS[month - 1]} {ordinal(day)}{f', {year(int(in_year))}' if in_year else ''}"


def _iso_date(match: Match) -> str:
    return _day(int(match.group(2)), int(match.group(3)), match.group(1)) or match.group()


def _slashed_date(match: Match) -> str:
    first, second, in_year = int(match.group(1)), int(match.group(2)), match.group(3)
    if len(in_year) == 2:
        in_year = f"{'19' if int(in_year) > 40 else '20'}{in_year}"
    return _day(first, second, in_year) or _day(second, first, in_year) or match.group()


def _month_day(match: Match) -> str:
    return _day(_month(match.group(1)), int(match.group(2)), match.group(3)) or match.group()


def _month_days(match: Match) -> str:
    month, first, last = match.groups()
    if not (1 <= int(first) <= 31 and 1 <= int(last) <= 31):
        return match.group()
    return f"{_MONTHS[_month(month) - 1]} {ordinal(int(first))} to {ordinal(int(last))}"


def _day_month(match: Match) -> str:
    the, day, month, in_year = match.groups()
    if not 1 <= int(day) <= 31:
        return match.group()
    said = f"{the or 'the '}{ordinal(int(day))} of {_MONTHS[_month(month) - 1]}"
    return f"{said} {year(int(in_year))}" if in_year else said


def _month(name: str) -> int:
    return next(n for n, month in enumerate(_MONTHS, 1) if month.startswith(name[:3]))


def _decade(match: Match) -> str:
    century, tens = match.group(1), int(match.group(2))
    if century and not tens:
        return f"{cardinal(int(century) * 100)}s" if int(century) % 10 == 0 else f"{cardinal(int(century))} hundreds"
    plural = cardinal(tens)[:-1] + "ies" if tens >= 20 else "tens"
    return f"{cardinal(int(century))} {plural}" if century else plural


def _clock(match: Match) -> str:
    hour, minute, second, half = match.groups()
    if int(hour) > 24 or int(minute) > 59:
        return f"{cardinal(int(hour))} {cardinal(int(minute))}"
    if second:
        return " ".join(
            _counted(str(int(part)), unit)
            for part, unit in zip((hour, minute, second), ("hour", "minute", "second"), strict=True)
            if int(part)
        )
    said = cardinal(int(hour))
    if int(minute):
        said += f" {'oh ' if int(minute) < 10 else ''}{cardinal(int(minute))}"
    elif not half:
        said += " o'clock" if 1 <= int(hour) <= 12 else " hundred"
    return f"{said}{_half(half)}"


def _half(half: str | None) -> str:
    return f" {half[0].lower()}.m." if half else ""


def _hours_and_minutes(match: Match) -> str:
    return " ".join(
        _counted(count, unit) for count, unit in zip(match.groups(), ("hour", "minute", "second"), strict=True) if count
    )


# Amounts.


def _counted(amount: str, thing: str) -> str:
    return f"{number(amount)} {thing if amount in ('1', '1.0') else plural_of(thing)}"


def _amount_of_money(symbol: str, amount: str, scale: str | None) -> str:
    whole, part = CURRENCIES[symbol]
    if scale:
        return f"{number(amount)} {SCALES.get(scale.lower(), scale)} {plural_of(whole)}"
    units, _, fraction = amount.partition(".")
    if not part or len(fraction) != 2 or not int(fraction):
        return _counted(units if not fraction.strip("0") else amount, whole)
    said = _counted(str(int(fraction)), part)
    return said if not int(units.replace(",", "")) else f"{_counted(units, whole)} and {said}"


def _money_range(match: Match) -> str:
    symbol, low, second, high, scale = match.groups()
    return f"{number(low)} to {_amount_of_money(second or symbol, high, scale)}"


def _fraction(match: Match) -> str:
    whole, above, below = match.groups()
    numerator, denominator = int(above), int(below)
    known = {(24, 7): "twenty-four seven", (9, 11): "nine eleven", (50, 50): "fifty fifty", (20, 20): "twenty twenty"}
    if not whole and (numerator, denominator) in known:
        return known[numerator, denominator]
    if not (2 <= denominator <= 100 or denominator == 1000) or (numerator >= denominator and denominator > 16):
        return f"{number(whole) + ' ' if whole else ''}{cardinal(numerator)} over {cardinal(denominator)}"
    named = {2: "half", 4: "quarter"}.get(denominator, ordinal(denominator).removeprefix("one "))
    if numerator != 1:
        named = "halves" if named == "half" else f"{named}s"
    if whole:
        first = f"{'an' if named[0] in 'e' else 'a'}" if numerator == 1 else cardinal(numerator)
        return f"{number(whole)} and {first} {named}"
    return f"{cardinal(numerator)} {named}"


def _power(match: Match) -> str:
    base, exponent = match.group(1), match.group(2).translate(_SUPERSCRIPTS)
    if exponent in ("2", "3"):
        return f"{base} {'squared' if exponent == '2' else 'cubed'}"
    sign = "minus " if exponent.startswith("-") else ""
    return f"{base} to the power of {sign}{cardinal(int(exponent.lstrip('-')))}"


def _charge(match: Match) -> str:
    """Of an ion."""
    count = match.group(1).translate(_SUPERSCRIPTS)
    return f"{f' {cardinal(int(count))}' if count else ''} {'plus' if match.group(2) == '⁺' else 'minus'}"


def _formula(match: Match) -> str:
    return " ".join(re.findall(r"[A-Z][a-z]?|\d+", match.group().translate(_SUBSCRIPTS)))


def _roman(match: Match) -> str:
    return f"{match.group(1)} {cardinal(_value(match.group(2)))}"


def _roman_ordinal(match: Match) -> str:
    name, numeral = match.group().rsplit(" ", 1)
    return f"{name} the {ordinal(_value(numeral))}"


def _value(numeral: str) -> int:
    """Of a Roman numeral."""
    values = [{"I": 1, "V": 5, "X": 10, "L": 50}[letter] for letter in numeral.upper()]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def _telephone(match: Match) -> str:
    return digits(match.group())


def _years(match: Match) -> str:
    return year(int(match.group()))


_Replacement = str | Callable[[Match], str]


def _rules() -> list[tuple[re.Pattern[str], _Replacement]]:
    rules: list[tuple[str, _Replacement]] = [
        ("’", "'"),
        (r"[‐‑]", "-"),
        # Addresses, files, versions, telephone numbers.
        (r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+", _address),
        (r"(?i:https?)://[^\s,;)]*[^\s,;).!?]", _address),
        (rf"\b(?:www\.(?:[A-Za-z0-9-]+\.)+[a-z]{{2,}}|(?:[A-Za-z0-9-]+\.)+(?:{ENDINGS}))\b(?:/[^\s,;)]*[\w/])?(?!\.\w)",
         _address),
        (r"\b[A-Z]:\\[\w\\.-]*", _path),
        (r"(?<![\w/])/(?:[\w.-]+/)+[\w.-]*\w|(?<![\w/])/[a-z]{3,}\b", _path),
        (rf"\b([\w.-]*\w)\.({FILES})\b", _file),
        (r"(?<!\S)--(?=\w)", "dash dash "),
        (r"\(\)", ""),
        (r"(?<![\w])\.(py|pdf|txt|docx?|csv|json|exe|zip|jpg|png|html)\b", lambda m: " dot " + " ".join(m.group(1))),
        (r"(?<![\w.])\.(?=[a-z])", " dot "),
        (r"\b([vV]\.? ?)(\d+(?:\.\d+)*)\b", _version),
        (r"(?<![\d.])()(\d+\.\d+\.\d+(?:\.\d+)*)\b", _version),
        (r"\b\d{4}-\d{2}-\d{2}\b", lambda m: _iso_date(re.match(r"(\d+)-(\d+)-(\d+)", m.group()) or m)),
        (r"\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}\b", _telephone),
        (r"(?:1[- ])?\(?\b\d{3}\)?[ .-]\d{3}[.-]\d{4}\b|\b\d{3}-\d{4}\b|\b0\d{2,4}[ -]\d{3,4}[ -]?\d{3,4}\b",
         _telephone),
        (r"(?<=[Cc]all )\d{3}\b|(?<=[Dd]ial )\d{3}\b|(?<![$€£\d.,])\b(?:911|999|988)\b(?!,\d| ?[a-z]+s\b)", _telephone),
        # Dates and times.
        (rf"\b{_WEEKDAY}\b\.?(?= ?[-–] ?{_WEEKDAY}\b|,? \d| (?:at|morning|night)\b)",
         lambda m: _WEEKDAYS[m.group(1)[:3]]),
        (rf"(?<=day)( ?[-–] ?){_WEEKDAY}\b\.?", lambda m: f" to {_WEEKDAYS[m.group(2)[:3]]}"),
        (r"\b(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})\b", _slashed_date),
        (rf"\b{_MONTH} (\d{{1,2}}) ?[-–] ?(\d{{1,2}})\b(?!:)", _month_days),
        (rf"\b{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)?(?!\d|:| ?%|{_COUNTED})(?:,? {_YEAR}\b)?", _month_day),
        (rf"\b([Tt]he )?(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? {_YEAR}\b)?", _day_month),
        (r"(?<=\d) ?[–—] ?(?=\d)|(?<=\d[ap]m)[-–—](?=\d)|(?<=:\d\d)-(?=\d)|(?<=[ap]m) ?[-–—] ?(?=\d)", " to "),
        (r"(?<=\d) - (?=\d+ [a-z])", " to "),
        (r"(?<= \d)-(?=\d{1,2}(?::\d\d)? ?[ap]\.?m)", " to "),
        (r"\b(\d\d)(\d0)'?s\b", _decade),
        (r"()(?<!\w)'?([2-9]0)'?s\b", _decade),
        (r"(?<!\w)'(\d\d)\b", lambda m: cardinal(int(m.group(1)))),
        (r"\b(\d{1,2}):(\d\d)(?::(\d\d))?(?: ?([AaPp]\.?[Mm])\b\.?)?", _clock),
        (r"\b(\d{1,2}) ?([AaPp]\.?[Mm])\b\.?", lambda m: f"{cardinal(int(m.group(1)))}{_half(m.group(2))}"),
        (r"\b(\d+) ?h(?:rs?)? ?(\d+) ?m(?:ins?)?(?: ?(\d+) ?s)?\b", _hours_and_minutes),
        (r"\b(\d+):(\d+)\b", r"\1 to \2"),
        # Money.
        (rf"{_SYMBOL} ?{_AMOUNT}{_TO}(?:{_SYMBOL})? ?{_AMOUNT}(?: ?{_SCALE})?", _money_range),
        (rf"(?<=\ba )\$(\d+) (million|billion)(?= (?!{_FUNCTION})[a-z]{{3}})", r"\1 \2 dollar"),
        (rf"(?<=\ba )\$(\d+)(?= (?!{_FUNCTION}|[mbt]r?illion|thousand)[a-z]{{3}})", r"\1 dollar"),
        (rf"{_SYMBOL} ?{_AMOUNT}(?: ?{_SCALE})?", lambda m: _amount_of_money(*m.groups())),
        (rf"{_AMOUNT}(?: ?{_SCALE})? ?{_SYMBOL}(?![\d\w])",
         lambda m: _amount_of_money(m.group(3), m.group(1), m.group(2))),
        (r"\b(\d[\d,]*\.\d\d) (dollar|euro)s?\b",
         lambda m: _amount_of_money("$" if m.group(2) == "dollar" else "€", m.group(1), None)),
        (r"\b(\d+)\s?¢", lambda m: _counted(m.group(1), "cent")),
        # Names.
        *((pattern, said) for pattern, said in ABBREVIATIONS),
        (rf"\b((?i:{NUMBERED})) ({_SURE}|(?-i:(?=[ivx]{{2}})(?i:{_ROMAN})))(?![\w'])", _roman),
        (rf"\b({NUMBERED}) (I){_NO_PRONOUN}", _roman),
        (rf"\b({REGNAL}) ({_SURE})(?![\w'])", _roman_ordinal),
        (rf"\b({REGNAL}) (I){_NO_PRONOUN}", _roman_ordinal),
        (rf"(?:(?<=King )|(?<=Pope )|(?<=Queen )|(?<=Emperor )|(?<=Tsar ))[A-Z]\w+ {_ROMAN}(?!\w|{_SAYS})",
         _roman_ordinal),
        (rf"\b([A-Z][a-z]+) ((?=[VX][IVX]|II){_ROMAN})(?![\w'])", _roman),
        # Fractions, ranges, units.
        (f"[{''.join(VULGAR)}]", lambda m: f" {VULGAR[m.group()]}"),
        (r"(?<![\d/.])(?:(\d+)[ -]+)?(\d{1,3})/(\d{1,4})(?![\d/])", _fraction),
        (r"(?<=\d)\s?%?\s?[–—]\s?(?=\d)|(?<=\d)%? ?- ?(?=\d+ ?%)|(?<![-\d.])(?<=\d)-(?=\d)|(?<=\d%)-(?=\d)", " to "),
        (r"(?<=\d)-(?=\d)", " to "),
        (r"(?<![\w\d)])[-−](?=\d)", " minus "),
        (r"\b(\d[\d,]*)(?:st|nd|rd|th)\b", lambda m: ordinal(int(m.group(1).replace(",", "")))),
        (r"(\d+)['′] ?(\d+)(?:[\"”″]|'')?", r"\1 foot \2"),
        (r"(\d)(?:[”″]|\"(?=[\s,.;]|$))", r"\1 inches"),
        (r"(?<=\d) ?[x×] ?(?=\d[\d.,]* ?(?:[x×]|[a-z]))", " by "),
        (r"\b(?!m/s\b)([a-z])/([a-z])\b", r"\1 over \2"),
        (rf"{_AMOUNT}-({_UNIT})(?![\w²³/])", lambda m: f"{number(m.group(1))}-{UNITS[m.group(2)]}"),
        (rf"{_AMOUNT} ?in(?:\.(?=\s|$)|(?=\s?(?:[,;:!?)]|$|x\b|by\b|tall|wide|long|deep|thick)))",
         lambda m: _counted(m.group(1), "inch")),
        (rf"{_AMOUNT} ?({_UNIT})(?![\w²³/°])(?:\.(?= [a-z]|,))?(?=[\s,;:!?)/-]|\.|$)",
         lambda m: _counted(m.group(1), UNITS[m.group(2)])),
        (rf"(?<![\w°/])({_any_of(WITHOUT_AMOUNT)})(?![\w²³/°])\.?(?= [a-z]|(?=[\s,;:!?)]|\.|$))", _lone_unit),
        (r"(?<=\w)/(?=(?:hour|hr|day|week|month|year|night|person|kg|lb|mile|minute|second|serving|unit|h|d|wk|yr)\b)",
         " per "),
        (r"\b([\w)]+)\^\{?(-?\d+)\}?", _power),
        (r"(?<=\w)([⁰¹²³⁴⁵⁶⁷⁸⁹]*)([⁺⁻])(?![⁰¹²³⁴⁵⁶⁷⁸⁹])", _charge),
        (r"([\w)]+?)(⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)", _power),
        (r"\b(?=[A-Za-z]{1,4}[\d₀-₉])(?:[A-Z][a-z]?[\d₀-₉]{0,3}){1,6}(?![\w-])", _formula),
        *((pattern, said) for pattern, said in SYMBOLS),
        # Numbers.
        (r"(?:(?<=\b[Ii]n )|(?<=[Yy]ear )|(?<=[Ss]ince ))10\d\d\b", _years),
        (rf"(?<![\d,.]){_YEAR}(?!\d|,\d|\.\d)(?! (?:[a-z]+s|people|percent)\b(?<! was)(?<! is)(?<! has)(?<! does))",
         _years),
        (r"(?<![\d.,])0\d+\b", _telephone),
        (r"(?<![\w.])\.(?=\d)", "0."),
        (_AMOUNT, lambda m: f"{number(m.group(1))}{' ' if m.string[m.end() : m.end() + 1].isalpha() else ''}"),
        (r" (?=[,.;:!?])", ""),
    ]  # fmt: skip
    return [(re.compile(pattern), replacement) for pattern, replacement in rules]


def _lone_unit(match: Match) -> str:
    """A unit without an amount, such as "kg" in "a few kg"."""
    one = match.string[: match.start()].endswith(("one ", " a ", "per ", " each "))
    return UNITS[match.group(1)] if one else plural_of(UNITS[match.group(1)])


_RULES = _rules()

"""English, American and British: see `agent.words.language.Language` for what each function does."""

from agent.words.english.dates import (
    MONTHS,
    WEEKDAYS,
    date_parts,
    is_named_date,
    named_date,
    say_date,
    supposes_another_day,
)
from agent.words.english.deeds import claims_deed, reports_task
from agent.words.english.number_words import digits as say_digits
from agent.words.english.number_words import ordinal as say_ordinal
from agent.words.english.numbers import (
    ORDINALS,
    cardinal,
    digits_for_words,
    ordinal,
    spoken_digits,
    tokens,
    with_numerals,
)
from agent.words.english.pronunciations import pronunciations
from agent.words.english.reading import read_aloud
from agent.words.english.times import in_digits, say_time, time_parts
from agent.words.english.wishes import asks_to_repeat, is_dismissal, wanted_manner, wants_length

__all__ = [
    "MONTHS", "ORDINALS", "WEEKDAYS", "asks_to_repeat", "cardinal", "claims_deed", "date_parts", "digits_for_words",
    "in_digits", "is_dismissal", "is_named_date", "named_date", "ordinal", "pronunciations", "read_aloud",
    "reports_task", "say_date", "say_digits", "say_ordinal", "say_time", "spoken_digits", "supposes_another_day",
    "time_parts", "tokens", "wanted_manner", "wants_length", "with_numerals",
]  # fmt: skip

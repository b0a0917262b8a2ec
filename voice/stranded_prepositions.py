"""Recognizes questions that end in a preposition and are complete, such as "What is it made of?": the preposition
belongs to the question word. After most other words it needs what follows ("What is the capital of").

Which words take which preposition was collected from the endings of one half of 55,000 questions that people asked a
chat program; lab/benchmarks/turn_ends.py measures the other half.
"""

from __future__ import annotations

import re

_QUESTION_WORDS = frozenset("what who whom whose which where".split())
_MAX_WORDS_BEFORE = 5
"""Words before the question word, as in "do you happen to know what …"."""

_TAKEN_BY = {
    preposition: frozenset(words.split())
    for preposition, words in {
        "of": "made composed consist consists think thinking thought afraid scared frightened proud tired sick capable "
        "full dream dreaming hear heard aware die died dying remind fond jealous guilty ashamed speak speaking talk "
        "talking",
        "from": "come comes came coming you they he she we it this that these those different originate originates "
        "descended derived suffer suffering hear heard get got buy bought learn learned away made born",
        "to": "talk talking talked speak speaking spoke listen listening listened belong belongs happened happen "
        "married related allergic similar equal up forward point pointing write writing refer referring sing singing "
        "addicted attracted react",
        "for": "used known famous stand stands stood look looking wait waiting good bad ask asking pay paid paying "
        "responsible search searching apply vote voted play plays work works working it that this these those you "
        "made meant care cares",
        "with": "talk talking speak speaking play playing live lives living go goes come came chat chatting dance work "
        "works working deal agree busy angry you he she they stay staying travel travelling eat eating sleep",
        "in": "live lives living born interested believe believes located work works working involved",
        "on": "going based depend depends depending work works working live lives rely run runs focus concentrate",
        "at": "good bad look looking laugh laughing aim stare staring",
        "by": "written made painted caused invented built composed directed owned powered created",
        "into": "turn turned get fall look",
    }.items()
}
"""The words that a preposition at the end of a question may follow."""

_NEEDS_TOPIC = frozenset("know think say tell feel hear heard read something anything more me you".split())
"""After these, "about" needs what follows; after other words it ends a question ("What is the book about?")."""


def ends_in_stranded_preposition(text: str) -> bool:
    """Whether the last word of a question is a preposition that belongs to its question word."""
    words = [word.split("'")[0] for word in re.split(r"[^\w']+", text.lower()) if word]
    asked = _QUESTION_WORDS.intersection(words[: _MAX_WORDS_BEFORE + 1])
    if len(words) < 3 or not asked:
        return False
    before, last = words[-2:]
    if last == "like":
        return "what" in asked
    if last == "about":
        return before not in _NEEDS_TOPIC
    return before in _TAKEN_BY.get(last, ())

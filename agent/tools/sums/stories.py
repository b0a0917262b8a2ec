"""Sums that are told as a story: a bill that is split, a price that is reduced, and what is left of something. One is
computed only if it has exactly the numbers that its kind needs, and its question has no words that lead elsewhere."""

from __future__ import annotations

import re
from fractions import Fraction

from agent.tools.sums.answer import Answer
from agent.tools.sums.expressions import MONEY
from agent.tools.sums.rates import NO_NOUNS, rate_answer, singular
from agent.tools.sums.spoken import money_answer, spoken_number
from agent.tools.sums.words import count_numbers, has_new_words, numbers

_N = r"(?<!\d)(\d++(?:\.\d++)?+)"
_QUESTION = re.compile(
    r"(?:^|, |\bthen |\band |\bso )"
    r"((?:how (?:many|much|far|long|old)|what(?:'s| is| does| do| will| would| was)?)\b[^,]*)"
)
_ASKING = frozenset(
    "how much many far long old what what's is are was were the a an do does did i we you he she it they them that "
    "this my me our us his her of in for to at after will would should can must need needs have has had got left "
    "over now pay pays cost costs total altogether all together each everyone everybody person apiece per head get "
    "gets be take takes make earn spend save price amount new tip leave owe come result then there still remain "
    "remains go if mean average percent dollars dollar euros cents drive walk travel with by on so day days week "
    "weeks hour hours minute minutes sale final discounted".split()
)
"""Words of questions for the result of a story."""

_SHARE = rf"{_N} percent|(?<=by )(\d+/\d+)|(?<!\d)(\d+/\d+) off"
_ADDS = r"\b(?:tip|tax|vat|up|increas\w+|rais\w+|rises?|grows?|interest|service|more)\b"
_TAKES_OFF = r"\b(?:off|discount|reduc\w+|down|drops?|dropped|decreas\w+|cheaper|lower\w*|sale|less|falls?|fell)\b"
_PEOPLE = (
    r"\b(\d+)(?: of us| ways| people| persons| friends| guests| colleagues| roommates| siblings)\b|"
    r"\b(?:we are|we're|there are) (\d+)\b"
)
_EACH = r"\b(?:each|everyone|everybody|person|apiece|head|one of us|my share|our share|i pay|i owe)\b"
_ASKS_SHARE = (
    r"\bhow much (?:is|was|are|should|do|does|would|will|did|can)?(?: the| a| my| i| we| you)*"
    r"(?: tip| leave| discount| save| tax)\b|\bwhat(?: is|'s) the (?:tip|tax|discount)\b"
)
_ASKS_TOTAL = r"\b(?:pay|costs?|price|total|altogether|now|new \w+|owe|come to|salary|earn|make|amount)\b"
_HOW_MANY = re.compile(
    r"how many ([a-z]+) (?:do|does|are|have) (?:i|you|we|they|he|she|there)\b(?: have| own| got)?"
    r"(?: in total| altogether| all together| in all)?"
)
_MORE = (
    r"\b(?:found|finds?|got|gets?|bought|buys?|received?|added|adds?|won|wins?|earned|earns?|picked|picks?|another|more|"
    r"came|comes?|joined|joins?|born|gained)\b"
)
_FEWER = (
    r"\b(?:gave|gives?|lost|loses?|ate|eats?|spent|spends?|sold|sells?|used|uses?|broke|breaks?|left|leaves?|took|takes?|"
    r"removed|removes?|dropped|threw|throws?|paid|pays?|drank|drinks?|died|stole|burned|flew|went|goe?s?)\b"
)


def answer_story(text: str) -> Answer | None:
    """The answer to a question that is told as a story; None if it is none of those that are known.

    Args:
        text: `sum_tokens`, joined by spaces.
    """
    questions = _QUESTION.findall(text)
    if not questions:
        return None
    question = questions[-1].strip(" ,")
    story = text[: text.rfind(question)].strip(" ,")
    if (answer := _collection(story, question)) is not None:
        return answer
    if story and has_new_words(question, story, _ASKING):
        return None
    return (
        _bill(text, question) or rate_answer(text, question) or _changes(story, question)
        or _ages(text, question) or _average(text, question)
    )  # fmt: skip


def _answer(value: Fraction) -> Answer:
    return Answer(f"That's {spoken_number(value)}.", (), value)


def _currency(text: str) -> str:
    words = [word.removesuffix("s") for word in text.split()]
    found = {MONEY[word] for word in words if word in MONEY}
    return found.pop() if len(found) == 1 else ""


def _bill(text: str, question: str) -> Answer | None:
    """An amount that is raised or reduced by a share, or split."""
    shares = [next(filter(None, groups)) for groups in re.findall(_SHARE, text)]
    people = [next(filter(None, groups)) for groups in re.findall(_PEOPLE, re.sub(_SHARE, "", text))]
    rest = numbers(text)
    for used in (*shares, *people):
        if used not in rest:
            return None
        rest.remove(used)
    if len(rest) != 1 or len(shares) > 1 or len(people) > 1 or not (shares or people) or "/" in rest[0]:
        return None
    base, currency, share = Fraction(rest[0]), _currency(text), Fraction(0)
    if shares:
        adds, takes_off = re.search(_ADDS, text), re.search(_TAKES_OFF, text)
        if bool(adds) == bool(takes_off):
            return None
        share = Fraction(shares[0]) / (1 if "/" in shares[0] else 100)
        if re.search(_ASKS_SHARE, question) and not people:
            return money_answer(base * share, currency)
        share = share if adds else -share
    elif not currency and not re.search(r"\b(?:bill|check|costs?|price|rent|pay)\b", text):
        return None
    total = base * (1 + share)
    if people:
        return money_answer(total / Fraction(people[0]), currency) if re.search(_EACH, question) else None
    return money_answer(total, currency) if re.search(_ASKS_TOTAL, question) else None


def _changes(story: str, question: str) -> Answer | None:
    """ "I had forty-two marbles, gave away fifteen and found six. How many do I have?"."""
    clauses = [clause for clause in re.split(r" , | and then | and | then | but ", story) if count_numbers(clause)]
    if not re.match(r"how (?:many|much)\b.*\b(?:have|has|left|remains?|are there|now|over)\b", question):
        return None
    if len(clauses) < 2 or any(count_numbers(clause) != 1 for clause in clauses) or count_numbers(question):
        return None
    if not re.search(r"\b(?:have|had|has|there (?:are|were)|start\w*|own|bought|got|baked|picked|i've)\b", clauses[0]):
        return None
    total, noun = Fraction(0), ""
    for number, clause in enumerate(clauses):
        match = re.search(rf"{_N}(?: (?:of them|of those|more|dollars)\b)?(?: ([a-z]+))?", clause)
        if match is None:
            return None
        word = match[2] or "of"
        of_what = "" if word in NO_NOUNS or re.fullmatch(f"{_MORE}|{_FEWER}", word) else singular(word)
        noun = noun or of_what
        rises, falls = re.search(_MORE, clause), re.search(_FEWER, clause)
        if number and (of_what not in ("", noun) or bool(rises) == bool(falls)):
            return None
        total += Fraction(match[1]) * (1 if not number or rises else -1)
    return money_answer(total, _currency(story))


def _collection(story: str, question: str) -> Answer | None:
    """ "I have three sons and two daughters. How many children do I have?"."""
    asked = _HOW_MANY.fullmatch(question)
    listed = re.fullmatch(
        rf"(?:.* )?(?:have|has|own|are|i've|we've|got) ((?:{_N} [a-z]+(?: , and | , | and ))+{_N} [a-z]+)", story
    )
    if asked is None or listed is None or numbers(story) != numbers(listed[1]):
        return None
    parts = re.findall(rf"{_N} ([a-z]+)", listed[1])
    if any(singular(asked[1]) == singular(noun) for _, noun in parts):
        return None
    total = sum((Fraction(number) for number, _ in parts), Fraction(0))
    return Answer(f"That's {spoken_number(total)} {asked[1]}.", (), total)


def _ages(text: str, question: str) -> Answer | None:
    """ "I'm thirty-four and my brother is nine years younger. How old is he?"."""
    match = re.search(rf"\b(?:is|am|i'm|are|he's|she's) {_N}(?: years old)?\b.*\b{_N} years (younger|older)\b", text)
    if match is None or count_numbers(text) != 2 or not re.match(r"how old (?:is|are|am)\b", question):
        return None
    return _answer(Fraction(match[1]) + Fraction(match[2]) * (1 if match[3] == "older" else -1))


def _average(text: str, question: str) -> Answer | None:
    """ "I scored seventy, eighty and ninety-six. What's my average?"."""
    listed = re.search(rf"{_N}(?:(?: , and | , | and ){_N})+", text)
    if listed is None or numbers(listed[0]) != numbers(text) or not re.search(r"\b(?:average|mean)\b", question):
        return None
    values = [Fraction(number) for number in numbers(text)]
    return _answer(sum(values, Fraction(0)) / len(values))

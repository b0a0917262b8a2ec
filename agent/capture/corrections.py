"""What a caller says to correct a sequence of digits or letters: "the last digit is seven", "change the third one to
eight", "it's N, not M". English."""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.words.language import language

_ENGLISH = language("en")

Parse = Callable[[str], str]
"""The characters that a text spells or dictates; empty if it does neither."""

_NOUN = r"(?: (?:one|digits?|numbers?|letters?|characters?|ones))?"
_POSITION = (
    r"(?:the )?(?P<{name}>(?:(?:second|third|fourth) (?:to|from the|from) (?:last|end)|second last|next to last|"
    r"last but one|very last|last|first|[a-z]+(?: (?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth))?|"
    r"\d+(?:st|nd|rd|th)))"
)
_IS = (
    r"(?:(?: is| was|'s) wrong[,.;]* (?:it's|it is|it should be|it must be)|"
    r" is| are| was| were| should be| should have been| must be| has to be| needs to be|'s|,)"
)
_ARTICLE = r"(?:a |an |the )?"

_SET = re.compile(
    rf"^{_POSITION.format(name='at')}{_NOUN}{_IS}(?: not .+? but| actually)? {_ARTICLE}"
    r"(?P<value>.+?)(?:,? (?:and )?not .+)?$"
)
_CHANGE = re.compile(
    rf"^(?:please )?(?:change|make|replace|correct|set|turn) {_POSITION.format(name='at')}{_NOUN}"
    rf"(?: (?:to|into|with|by|be|as))? {_ARTICLE}(?P<value>.+)$"
)
_EXCHANGE = re.compile(
    rf"^(?:please )?(?:change|replace|turn) {_ARTICLE}(?P<old>.+?) (?:to|into|with|by) {_ARTICLE}(?P<value>.+)$"
)
_INSTEAD = re.compile(
    rf"^(?:(?:it's|it is|that's|that is|it should be|with) )?{_ARTICLE}(?P<value>.+?),?"
    rf" (?:instead of|rather than|and not|not) {_ARTICLE}(?P<old>.+)$"
)
_NOT_BUT = re.compile(
    rf"^(?:(?:it's|it is|that's|that is) )?not {_ARTICLE}(?P<old>.+?)(?:,? (?:but|it's|it is|it should be)|,) "
    rf"{_ARTICLE}(?P<value>.+)$"
)
_GROUP = re.compile(
    rf"^(?:the )?(?P<end>first|last) (?:(?P<count>[a-z]+|\d+){_NOUN}|digits|numbers|letters|ones){_IS} (?P<value>.+)$"
)
_EDGE = re.compile(r"^(?:it )?(?P<end>starts|begins|ends) (?:in|with|on) (?P<value>.+)$")
_REMOVE = re.compile(
    rf"^(?:please )?(?:delete|remove|drop|erase|take (?:out|away)|without) {_POSITION.format(name='at')}"
)
_ADD = re.compile(
    rf"^(?:please )?(?:add|append|there is|there's|you missed|you forgot|i forgot) {_ARTICLE}(?P<value>.+?)"
    r"(?: (?:is )?missing)?(?: (?P<where>at the (?:end|start|beginning|front)))?$"
)

_PLACES = frozenset("first last middle area country".split())
_PARTS = frozenset("one ones digit digits number numbers letter letters character characters code".split())
_AROUND_PLACES = _PARTS | frozenset("the my it's to from very next but".split())

_DENIAL = re.compile(
    r"^(?:(?:no|nope|nah|wait|sorry|oh|well|um|uh|actually|hold on|almost|not quite|wrong|incorrect|yes|yeah|but|"
    r"that's wrong|that is wrong|that's not right|that is not right|that's not correct|that's incorrect|"
    r"that is incorrect|it's wrong|it isn't|it's not|it is not|that's not it|that isn't right|"
    r"i said|i meant|i think)\b[ ,.;:!-]*)+"
)


def without_denial(text: str) -> str:
    """The rest of "no, …": what should be there instead, in lower case without punctuation at its end."""
    plain = " ".join(text.lower().replace("’", "'").split())
    return _DENIAL.sub("", plain).strip(" .,;:!?")


def is_correction(text: str) -> bool:
    """Whether a text says that something before it was wrong."""
    rest = without_denial(text)
    return rest != text.lower().strip(" .,;:!?") or bool(
        re.match(r"(please )?(change|delete|remove|replace|drop)\b", rest)
    )


def wrong_part(text: str) -> str:
    """What a text calls wrong, without what is right: "the third digit is wrong", or only "the last two digits"; empty
    if it calls nothing so."""
    rest = without_denial(text)
    if match := re.fullmatch(r"(.+?)(?:'s| is| are| was| were)? (?:wrong|incorrect|not right|not correct)", rest):
        return match[1]
    named = rest.removeprefix("please ").removeprefix("change ").removeprefix("correct ")
    words = _ENGLISH.tokens(named)
    has_place = any(word in _PLACES or _ENGLISH.ordinal([word]) is not None for word in words)
    others = [word for word in words if word not in _PLACES | _AROUND_PLACES and _ENGLISH.ordinal([word]) is None]
    others = [word for word in others if _ENGLISH.cardinal([word]) is None]
    return named if has_place and _PARTS.intersection(words) and not others else ""


def corrected(entry: str, text: str, parse: Parse) -> str | None:
    """The sequence as `text` corrects it; None if the text corrects nothing in it. Positions count from 1.

    Args:
        parse: reads the characters that are named.
    """
    for part in re.split(r"[,.;]? and (?=the |change |replace )", without_denial(text)):
        after = _corrected_once(entry, part.strip(" .,;"), parse)
        if after is None:
            return None
        entry = after
    return entry


def _corrected_once(entry: str, text: str, parse: Parse) -> str | None:
    if (match := _GROUP.match(text) or _EDGE.match(text)) is not None:
        value = parse(match["value"])
        named = _ENGLISH.cardinal(_ENGLISH.tokens(match.groupdict().get("count") or "")) or (len(value), 0)
        if value and len(value) == named[0] <= len(entry):
            at_end = match["end"] in ("last", "ends")
            return entry[: len(entry) - len(value)] + value if at_end else value + entry[len(value) :]
    if (match := _CHANGE.match(text) or _SET.match(text)) is not None:
        at, value = _position(match["at"], len(entry)), parse(match["value"])
        if at is not None and len(value) == 1:
            return entry[:at] + value + entry[at + 1 :]
    if match := _REMOVE.match(text):
        at = _position(match["at"], len(entry))
        return None if at is None else entry[:at] + entry[at + 1 :]
    for pattern in (_EXCHANGE, _NOT_BUT, _INSTEAD):
        if match := pattern.match(text):
            old, value = parse(match["old"]), parse(match["value"])
            if old and value and entry.count(old) == 1:  # otherwise it is not clear which one is meant
                return entry.replace(old, value)
    if (match := _ADD.match(text)) and (value := parse(match["value"])):
        at_start = match["where"] is not None and "end" not in match["where"]
        return value + entry if at_start else entry + value
    return None


def _position(named: str, length: int) -> int | None:
    """The index of "third", "last" or "second to last"; None if there is no such position."""
    named = named.strip()
    if named in ("last", "very last"):
        at = length - 1
    elif named in ("next to last", "last but one", "second last"):
        at = length - 2
    elif match := re.match(r"(second|third|fourth) (?:to|from)", named):
        number = _ENGLISH.ordinal([match[1]])
        at = length - (number[0] if number else 1)
    else:
        found = _ENGLISH.ordinal(_ENGLISH.tokens(named))
        if found is None or found[1] != len(_ENGLISH.tokens(named)):
            return None
        at = found[0] - 1
    return at if 0 <= at < length else None

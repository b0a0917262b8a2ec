"""The words that a voice pronounces for a text: without markup, code and what no voice can say, and with numbers and
abbreviations as they are read aloud."""

from __future__ import annotations

import re
import unicodedata

from agent.words.language import language

FENCE = re.compile(r"```|^[ \t]*~~~", re.MULTILINE)
"""Begins and ends code, which is not spoken."""

_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_FOOTNOTE = re.compile(r"\[(?:\^?\d+|!\w+)\](?!\()")
_INDENTED = re.compile(r"^(?: {4}|\t)\S[^\n]*[{}()=;<>][^\n]*$", re.MULTILINE)
_TAG = re.compile(r"<!--.*?-->|<\|[^<>|]*\|>|<br ?/?>|</?[a-zA-Z][^<>]*>|&nbsp;")
_RULE = re.compile(r"^[ \t]*(?:[-*_] ?){3,}$|^[ \t]*\|?(?: ?:?-{2,}:? ?\|)+[-: ]*$", re.MULTILINE)
_BULLET = re.compile(r"^\s*(?:>\s*)*[-*•+–]\s+(?:\[[ xX]\]\s*)?", re.MULTILINE)
_NUMBERED = re.compile(r"^\s*(?:>\s*)*([1-9]\d?)[.)]\s+", re.MULTILINE)
_MARKUP = re.compile(r"[#`|<>{}\\*_~]+")
_EMPHASIS = re.compile(r"(\*\*\*|\*\*|__|~~|(?<!\w)[*_](?=\w))(?=\S)(.+?)(?<=\S)\1")
_QUOTE = re.compile(r"^\s*>+ ?", re.MULTILINE)
_HEADING = re.compile(r"^\s*#+\s+", re.MULTILINE)
_CELLS = re.compile(r"\s*\|\s*")
_SMILEY = re.compile(r"(?<!\S)(?:[:;=][-'^o]?[)(DPpOo\]\[/|]+|[:;]-?3)(?!\S)|(?<!\S)<3(?!\S)|¯\\_\(ツ\)_/¯")
_TEX = (
    (re.compile(r"\\[()\[\]]|\$\$?(?=[^$\n]*[\\^_={][^$\n]*\$(?!\d))|(?<=[\w})])\$\$?(?!\d)"), " "),
    (re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}"), r" \1 over \2 "),
    (re.compile(r"\\sqrt\{([^{}]*)\}"), r" the square root of \1 "),
    (re.compile(r"\\(?:boxed|text|mathrm|mathbf|textbf)\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\(?:times|cdot)"), " times "),
    (re.compile(r"\\div"), " divided by "),
    (re.compile(r"\\(?:approx|sim)"), " about "),
    (re.compile(r"\\pm"), " plus or minus "),
    (re.compile(r"\\pi"), " pi "),
    (re.compile(r"\\(?:leq?|geq?|neq|[,;! ]|left|right|quad)"), " "),
)
_MAX_ORDINAL = 15
"""Items of a list after this one have a number: "Number 16"."""
_REPEATED = re.compile(r"([^\w\s.])\1{2,}")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z ,;'?!-]*[.?!]?")


def speakable(text: str, *, english: bool = True, may_begin_item: bool = True) -> str:
    """The words to pronounce for a text; empty if there are none.

    Args:
        english: whether the voice speaks English. For another one, numbers and abbreviations stay as they are written:
            its own normalizer knows how they are said.
        may_begin_item: whether a number at its beginning may be that of an item of a list.
    """
    text = _INDENTED.sub("", text).strip()
    if _PLAIN.fullmatch(text):
        return language("en").read_aloud(text) if english and text else text
    text = _without_markup(text if may_begin_item else f"\u2060{text}")
    if english:
        text = language("en").read_aloud(text)
    text = "".join(character for character in _MARKUP.sub(" ", text) if character.isascii() or _has_sound(character))
    text = re.sub(r"\s+([,.;:!?])", r"\1", " ".join(text.split()))
    text = re.sub(r"[,;:]+([.!?])", r"\1", text).lstrip(",;:.!? ")
    return text if re.search(r"\w", text) else ""


def _without_markup(text: str) -> str:
    text = _SMILEY.sub(" ", _TAG.sub(" ", _FOOTNOTE.sub("", _LINK.sub(r"\1", _RULE.sub("", text)))))
    for pattern, replacement in _TEX:
        text = pattern.sub(replacement, text)
    text = re.sub(r"(?<=\b[A-G])#(?!\w)", " sharp", text)
    text = _QUOTE.sub("", _NUMBERED.sub(_ordinal, _BULLET.sub("", _HEADING.sub("", text))))
    text = _EMPHASIS.sub(r"\2", text)
    if text.count("|") > 1:
        text = _CELLS.sub(", ", text).strip(", ")
    return _REPEATED.sub(r"\1", text).replace("`", "")


def _ordinal(match: re.Match[str]) -> str:
    number = int(match.group(1))
    return f"{language('en').say_ordinal(number).capitalize() if number <= _MAX_ORDINAL else f'Number {number}'}, "


def _has_sound(character: str) -> bool:
    """Whether a voice for a language in Latin letters can say a character that is not ASCII, or pauses at it."""
    if unicodedata.category(character)[0] == "L":
        return unicodedata.name(character, "").startswith(("LATIN", "FEMININE", "MASCULINE"))
    return unicodedata.combining(character) > 0 or character in "–—‘’“”…"

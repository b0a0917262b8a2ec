"""How a text says that names are pronounced: "Siobhan (pronounced shi-VAWN)", "Nguyen is pronounced like win", "You
pronounce it Shivon"."""

from __future__ import annotations

from difflib import SequenceMatcher

_MARKER = "pronounce"
_MAX_NAME_WORDS, _MAX_SAID_WORDS = 4, 4
_WINDOW, _MAX_FOUND = 120, 100
"""Characters before and after the word that are read, and places of a text: anyone may have written it."""

_ALIKE = 0.45
"""Likeness of two spellings from which they are most likely of one name."""

_LINKS = frozenset("is are was usually normally actually correctly properly often be should".split())
"""Words between a name and `pronounced`."""

_INTRODUCING = (",", "(", ":", ";", "-", "–", "—")

_BACKWARD = frozenset("it that this name".split())
"""Words that stand for a name which somebody has said before."""

_NO_NAME = frozenset(
    "a an the and or but so because i i'm i'd you he she we they it it's that that's this no not yes yeah okay ok oh "
    "well sorry actually please hey hello hi good is are was were do does did can could will would should how what who "
    "whose where when why which if in on at of to for from with by as my your his her its our their there here thanks "
    "thank word name mr mrs ms dr fine sure great welcome let maybe some many most one two three".split()
)
_DOUBTS = frozenset(
    "not never nobody neither whether if how think thinks thought believe believes doubt wonder say says said heard "
    "claims used might maybe perhaps".split()
)
_IPA = [chr(sign) for sign in range(0x250, 0x300)]
"""Letters and marks that only phonemes have."""

_LIKE = ("more like ", "something like ", "like ", "as ")
_NO_SOUND = frozenset(
    "the a an of in on with without by to way same different differently wrong wrongly incorrectly correctly right "
    "properly like that this exactly similarly it you i they is was when how if here there just very dead at "
    "usual always written spelled expected before above normal".split()
)
"""Words that describe a pronunciation, and do not spell one."""

_ENDS = (" not ", " but ", " and ", " in ", " with ", " rather ", " instead ", " because ", " by ")
_OPENING = " ,(:;-–—\"'“”"
_CLOSING = '.,;:!?()[]"“”\n'


def pronunciations(text: str, said_before: str = "", *, trusted: bool = True) -> dict[str, str]:
    """See `agent.words.language.Language`."""
    found = dict[str, str]()
    plain, said_before = (each.replace("’", "'") for each in (text, said_before))
    for before, after in _places(plain, _MARKER):
        if before[-1:].isalpha() or _is_doubted(before):  # people mispronounce it
            continue
        is_passive = after.startswith("d")
        how = after[1:] if is_passive else _like_what(after)
        said = _spelling(how)
        of = _subject(before) if is_passive else _object(after)
        name = _name(of, before, said, said_before) if said else ""
        is_marked = trusted and (_is_marked(how, said) or before.rstrip().endswith(_INTRODUCING))
        if not trusted and not name[:1].isupper():
            continue  # "unsafe is pronounced safe"
        if name and said != name.lower() and (is_marked or _likeness(said, name) >= _ALIKE):
            found.setdefault(name, said)
    for before, after in _places(text, "(/") if trusted else ():
        said, words = _phonemes(f"/{after}"), _name_words(before)
        if words and any(sign in said for sign in _IPA):  # in "(/etc/)" there is none
            found.setdefault(_part_alike(said, words), said)
    return found


def _places(text: str, part: str) -> list[tuple[str, str]]:
    """What is before and after each occurrence of a part of a text."""
    places, start = list[tuple[str, str]](), text.find(part)
    while start >= 0 and len(places) < _MAX_FOUND:
        end = start + len(part)
        places.append((text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW]))
        start = text.find(part, end)
    return places


def _is_doubted(before: str) -> bool:
    """Whether the clause before a pronunciation denies it, doubts it, or says that somebody else has it so. A remark
    in brackets or between commas is no part of that clause."""
    text = before.rstrip(" \"'“").lower().replace("n't", " not")
    clause = text[max(map(text.rfind, ".!?,;:\n")) + 1 :]
    return not text.endswith(_INTRODUCING) and not _DOUBTS.isdisjoint(clause.split())


def _subject(before: str) -> str:
    """What is said to be `pronounced`; empty if that is only a verb, as in "the judge pronounced"."""
    text = before.rstrip(" \"'“")
    *_, last = text.lower().split() or [""]
    return before if last in _LINKS or last.endswith(("'s", *_INTRODUCING)) else ""


def _object(after: str) -> str:
    """What `pronounce` is said of, as it would stand before `pronounced`."""
    return after.removesuffix(_like_what(after))


def _like_what(after: str) -> str:
    """The part of a text after `pronounce` that says how; empty if there is none."""
    first, _, rest = after.lstrip().partition(" ")
    if first.lower() in _BACKWARD:
        return rest
    starts = [start for like in (" like ", " as ") if (start := after.find(like)) > 0]
    return after[min(starts) :].lstrip() if starts else ""


def _is_marked(how: str, said: str) -> bool:
    """Whether a text surely spells a sound: "is pronounced guilty" does not."""
    return how.lstrip(" :").startswith((*_LIKE, "/", "[", '"', "“", "‘", "'")) or "-" in said


def _name(of: str, before: str, said: str, said_before: str) -> str:
    """What is pronounced so, by the text that names it; empty if it is unclear.

    Args:
        before: all of the text before that.
    """
    sentence = of.rstrip(_OPENING)
    sentence = sentence[max(map(sentence.rfind, ".!?\n")) + 1 :]
    words = sentence.split()
    while words and words[-1].lower() in _LINKS:
        del words[-1]
    if not words:
        return ""
    last = words[-1].removesuffix("'s").removesuffix("'d").lower()
    if last in _BACKWARD:
        return _most_alike(said, _names(before)) or _most_alike(said, _names(said_before))
    if names := _name_words(" ".join(words).removesuffix("'s")):
        return _part_alike(said, names)
    is_word = last.isalpha() and last not in _NO_NAME
    return last if is_word and all(word.lower() in _NO_NAME for word in words[:-1]) else ""


def _name_words(before: str) -> list[str]:
    """The name with which a text ends."""
    words = list[str]()
    for word in reversed(before.rstrip(_OPENING).split()):
        plain = word.lstrip("\"'“(")
        closed = words and plain[-1:] in _CLOSING + "'"
        if not plain[:1].isupper() or plain.lower() in _NO_NAME or closed or len(words) == _MAX_NAME_WORDS:
            break
        words.insert(0, plain)
    return words


def _names(text: str) -> list[str]:
    """The words of a text that may be names."""
    words = [word.strip(_CLOSING + "'‘*").removesuffix("'s") for word in text.split()]
    return list(dict.fromkeys(word for word in words if word[:1].isupper() and word.lower() not in _NO_NAME))


def _part_alike(said: str, name: list[str]) -> str:
    """The part of a name that has as many words as what is said for it."""
    count = min(len(name), len(said.split()))
    parts = [" ".join(name[start : start + count]) for start in range(len(name) - count + 1)]
    return max(parts, key=lambda part: _likeness(said, part))


def _most_alike(said: str, names: list[str]) -> str:
    """The name that is written like another spelling, or else the only one; empty if it is unclear."""
    best = max(names, key=lambda name: _likeness(said, name), default="")
    return best if len(names) == 1 or _likeness(said, best) >= _ALIKE else ""


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one.lower(), other.lower()).ratio()


def _spelling(after: str) -> str:
    """How something is pronounced, by the text after that; empty if it does not say so."""
    text = after.removeprefix(":").lstrip()
    for like in _LIKE:
        text = text.removeprefix(like)
    if text.startswith(("/", "[")):
        return _phonemes(text)
    text = text.lstrip("\"'“‘")
    end = min((at for sign in _CLOSING if (at := text.find(sign)) >= 0), default=len(text))
    if text[end : end + 1] == "?":
        return ""
    text = f"{text[:end]} "
    end = min((at for word in _ENDS if (at := text.find(word)) >= 0), default=len(text))
    words = text[:end].strip(" '").lower().split()
    if not 0 < len(words) <= _MAX_SAID_WORDS or any(word in _NO_SOUND or not word[0].isalpha() for word in words):
        return ""
    return " ".join(words)


def _phonemes(text: str) -> str:
    """The phonemes with which a text begins, between slashes; empty if it does not."""
    end = text.find("/" if text[:1] == "/" else "]", 1)
    phonemes = text[1:end].strip()
    is_path = text[end + 1 : end + 2].isalnum()
    return f"/{phonemes}/" if end > 0 and phonemes and len(phonemes) <= 60 and not is_path else ""

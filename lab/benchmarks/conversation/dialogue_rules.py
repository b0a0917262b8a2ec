"""The rules of the dialogues, by their author: `judge(rule, answer, earlier_answers)` lists what is wrong.

Phrases are compared word by word: lower-cased, without accents and punctuation, contractions written out, numbers in
digits. In a phrase `|` separates alternatives, a final `*` on a word is any ending, `...` any words between, `^` the
beginning of the answer. All fields of a rule must hold together.
"""

from __future__ import annotations

import re
import unicodedata

UNITS = {
    w: i
    for i, w in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen".split()
    )
}
TENS = {w: 10 * i for i, w in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)}
SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}


def small(words, i):
    """A number under 100 at words[i]: (value, next i) or None."""
    w = words[i] if i < len(words) else None
    if w in TENS:
        if i + 1 < len(words) and 1 <= UNITS.get(words[i + 1], 0) <= 9:
            return TENS[w] + UNITS[words[i + 1]], i + 2
        return TENS[w], i + 1
    if w in UNITS:
        return UNITS[w], i + 1
    return None


def number_at(words, i):
    start = i
    got = (1, i + 1) if words[i] == "a" and words[i + 1 : i + 2] and words[i + 1] in SCALES else small(words, i)
    if not got:
        return None
    value, i = got
    if 10 <= value <= 20 and i == start + 1:  # nineteen sixty nine
        more = small(words, i)
        if more and more[0] >= 10:
            return str(value * 100 + more[0]), more[1]
    total, current = 0, value
    while i < len(words):
        if words[i] == "hundred":
            current, i = current * 100, i + 1
        elif words[i] in SCALES:
            total, current, i = total + current * SCALES[words[i]], 0, i + 1
        else:
            j = i + 1 if words[i] == "and" and words[i - 1] in SCALES else i
            if words[i - 1] not in SCALES:
                break
            more = small(words, j)
            if not more:
                break
            current, i = current + more[0], more[1]
    text = str(total + current)
    if i + 1 < len(words) and words[i] == "point" and words[i + 1] in UNITS:
        text, i = text + ".", i + 1
        while i < len(words) and UNITS.get(words[i], 10) < 10:
            text, i = text + str(UNITS[words[i]]), i + 1
    return text, i


def numbers(words):
    out, i = [], 0
    while i < len(words):
        got = number_at(words, i)
        if got:
            out.append(got[0])
            i = got[1]
        else:
            out.append(words[i])
            i += 1
    return out


def tokens(text, star=False):
    text = text.lower().replace("\u2019", "'").replace("\u2018", "'")
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    text = re.sub(r"\bcan'?t\b|\bcannot\b", "can not", text)
    text = re.sub(r"\bwon'?t\b", "will not", text)
    text = re.sub(r"n't\b", " not", text)
    for short, long in (("'m", " am"), ("'re", " are"), ("'ve", " have"), ("'ll", " will")):
        text = re.sub(short + r"\b", long, text)
    text = text.replace("'", "")
    text = re.sub(r"(?<=\d),(?=\d\d\d\b)", "", text)
    words = re.findall(r"\d+\.\d+|\w+\*?" if star else r"\d+\.\d+|\w+", text)
    return numbers(words)


def compile_phrase(phrase):
    alternatives = []
    for alt in phrase.split("|"):
        alt = alt.strip()
        start = alt.startswith("^")
        parts = [tokens(p, star=True) for p in alt.lstrip("^").split("...")]
        if not parts or not all(parts):
            raise ValueError(f"empty alternative or part in {phrase!r}")
        if "^" in alt.lstrip("^"):
            raise ValueError(f"stray ^ in {phrase!r}")
        rx = r"(?: \S+)*?".join(
            "".join(" " + (re.escape(w[:-1]) + r"\S*" if w.endswith("*") else re.escape(w)) for w in p) for p in parts
        )
        alternatives.append(("^" if start else "") + rx + "(?= )")
    return re.compile("|".join(f"(?:{a})" for a in alternatives))


def found(phrase, answer):
    return bool(compile_phrase(phrase).search(" " + " ".join(tokens(answer)) + " "))


DECLINES = (
    "not know|no idea|not sure|not certain|no way of knowing|no way to know|not told|not tell|never told|never tell|"
    "not mention*|never mention*|not say|not said|never said|not share*|never shared|not given|not give|not provide*|"
    "not specif*|"
    "not been told|not recall|not remember|no memory|no record|no information|no details|not discuss*|not talked|"
    "not come up|never came up|not aware|not let me know|do not have|have not got|only told|only mentioned|only said|"
    "only know|"
    "nothing about|nothing on|can not|unable|not able|not possible|not something i can|beyond what i|not heard|"
    "unknown|left ... out|not among|not part of|did not get|not got|not have the|not have any|not have access"
)
ASKS = "tell me|let me know|could you|remind me|do you mean|did you mean|are you asking about|are you talking about"

STOP = set(
    "a an the of to in on at is are was were be been am it its this that these those and or but for with as by from so "
    "i you he she they we my your his her their our me him them us do does did have has had not no yes said say just "
    "again sure okay ok well here once more will would can could may about into there than then which who what when "
    "also very only up out if".split()
)


def content(text):
    return {re.sub(r"(ing|ed|es|s)$", "", w) if len(w) > 4 else w for w in tokens(text) if w not in STOP}


def declines(answer):
    text = " ".join(tokens(answer))
    return found(DECLINES, answer) or bool(
        re.search(
            r"\b(not|never)( \w+){0,2} (told|tell|mention\w*|say|said|shared?|given?|provided?|specif\w+|know|remember|"
            r"recall|"
            r"discuss\w*|been (told|mentioned|given))\b|\bno mention\b|\bwithout (knowing|being told)\b",
            text,
        )
    )


def asks_back(answer):
    return "?" in answer or found(ASKS, answer)


def word_count(answer):
    return len(re.findall(r"[^\s]*\w[^\s]*", answer))


def number_ok(spec, answer):
    got = re.match(r"\s*(-?[\d.]+)\s*(?:±\s*([\d.]+))?\s*$", spec)
    if not got:
        raise ValueError(f"number {spec!r}")
    want, tol = float(got.group(1)), float(got.group(2) or 0)
    return any(abs(float(w) - want) <= tol + 1e-9 for w in tokens(answer) if re.fullmatch(r"\d+(\.\d+)?", w))


def judge(rule, answer, earlier):
    """Failures of an answer under a rule (empty: right). earlier: the answers of the turns before."""
    bad = []
    if not answer.strip():
        bad.append("empty")
    for p in rule.get("says", []):
        if not found(p, answer):
            bad.append("says: " + p)
    for p in rule.get("never", []):
        if found(p, answer):
            bad.append("never: " + p)
    if "number" in rule and not any(number_ok(n, answer) for n in rule["number"]):
        bad.append("number")
    if "words" in rule and word_count(answer) > rule["words"]:
        bad.append(f"{word_count(answer)} words")
    if "same_as" in rule:
        old, new = content(earlier[rule["same_as"]]), content(answer)
        if old and len(old & new) <= 0.5 * len(old):
            bad.append(f"same_as: {len(old & new)} of {len(old)}")
    if "shorter_than" in rule and word_count(answer) >= word_count(earlier[rule["shorter_than"]]):
        bad.append("shorter_than")
    if rule.get("declines") and not declines(answer):
        bad.append("declines")
    if "one_of_behaviours" in rule:
        does = {"declines": declines, "asks_back": asks_back}
        if not any(does[b](answer) for b in rule["one_of_behaviours"]):
            bad.append("one_of_behaviours")
    return bad

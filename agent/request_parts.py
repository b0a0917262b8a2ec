"""The parts of a request that asks for several things: "what time is it in Tokyo, and set a timer for an hour".

Small models make one call and take the request as done; asked in the same conversation for the rest, they imitate their
last answer instead of calling. So each further part that a tool suits is asked for by itself, in place of the request.
A part that needs an earlier result ("and write that down") is asked for after what the calls so far returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from agent.matched_text import for_patterns, is_cut
from chat.types import Message

_STRONG = r"[,;]? ?\b(?:and then|and also|and after that|after that|then|also)\b,?|[.;?!](?= )|, ?and\b|,"
_JOINT = re.compile(rf"(?i) ?({_STRONG}|\band\b) ?")
_WEAK_JOINTS = ("and", ",")
_BEGINNING = re.compile(
    r"(?i)(?:please )?(?:what|what's|who|when|where|which|how|is|are|do|does|can|could|will|would|tell|set|start|"
    r"remind|write|read|cancel|stop|convert|calculate|give|show|list|create|delete|look|find|search|check|note|let|put|add|"
    r"send|text|mail|email|message|call|book|order|buy|play|turn|open|close|move|share|print|save)\b"
)
"""How a part begins that only an "and" or a comma separates: as a question or as a command."""

_ASKS = re.compile(
    r"(?i)(?:please )?(?:(?:what|who|which|how)\b|(?:when|where) (?:is|are|do|does|did|was|will|can)\b|"
    r"(?:look|find|check|search|get|tell|show|give|read|open|play|order|book|add|put|text|send|call)\b)"
)
"""How a first part begins that asks for something, whether a tool is known to suit it or not. Others only say when or
why: "in ten minutes, remind me to call"."""

_DICTATION = re.compile(
    r"(?i)\b(?:remind(?:er)?|note|write|jot|remember|say(?:s|ing)?|tell (?!me\b|us\b)|add|put|send|text|e?mail|"
    r"message)\b"
)
"""After these words an "and" belongs to what is dictated: "remind me to call Peter and check the door"."""

_CONDITION = re.compile(r"(?i)\b(?:if|unless|whether|depending|in case|otherwise|until)\b")
_REFERENCE = re.compile(
    r"(?i)(?<!\bis )\b(?:it|that|this|them|those)(?: (?:down|up|to|on|in|by|again|too)\b| ?[.,?!]| ?$)|\bmake it\b|"
    r"\bthe (?:result|answer|same|difference)\b"
)
"""A part that needs the result of an earlier one: "and write that down", "multiply it by two". It is a part of its own
if no tool for an earlier part is for it, unlike in "set a timer, and make it an hour"."""

_ANAPHOR = re.compile(
    r"(?i)\b(?:(?<!\bis )(?<!\bwas )it(?!'s\b| is\b| will\b)|that|this|them|those|these|there|its|her|him|his|their|"
    r"she|he|they|the)\b"
)
"""What may stand for a result: a part with it is asked for after what the calls so far returned."""

_MIN_WORDS = 3
"""Of a part."""


def request_parts(said: str, suiting: Callable[[str], Collection[str]]) -> list[str]:
    """The parts of what the user said that each ask for something, in order; the whole if it has only one, or if
    whether one is asked for depends on another ("if it rains, …").

    Args:
        said: as `for_patterns` returns it.
        suiting: the tools that suit a text.
    """
    parts: list[str] = []
    start = joint_start = 0
    for joint in [*_JOINT.finditer(said), None]:
        end = len(said) if joint is None else joint.start()
        piece = said[start:end]
        if joint is not None and parts and not piece.strip():  # two joints, as in "… . And then …"
            start = joint.end()
            continue
        if not parts or (suiting(piece) and _stands_alone(piece, said[joint_start:start].strip().lower(), parts[-1])):
            parts.append(piece)
        else:
            parts[-1] += said[joint_start:end]
        if joint is not None:
            joint_start, start = joint.start(), joint.end()
    parts = [part.strip() for part in parts]
    first = parts[0]
    is_one = len(parts) < 2 or len(first.split()) < _MIN_WORDS or not (suiting(first) or _ASKS.match(first))
    changed = (
        set(suiting(part)) <= set().union(*map(suiting, parts[:number]))
        for number, part in enumerate(parts)
        if number and _REFERENCE.search(part)
    )
    return [said] if is_one or _CONDITION.search(said) or any(changed) else parts


def _stands_alone(piece: str, joint: str, before: str) -> bool:
    """Whether a piece is a request of its own, by itself and by what joins it to the one before."""
    if len(piece.split()) < _MIN_WORDS:
        return False
    return joint not in _WEAK_JOINTS or (_BEGINNING.match(piece) is not None and not _DICTATION.search(before))


class RequestParts:
    """Which parts of one request remain to be asked for.

    Args:
        messages: the prompt of the response. The user's last message is the request.
        names: of the tools.
        suits: whether the tool of a name suits a text; it does not if it may be called whatever was said.
    """

    def __init__(self, messages: Sequence[Message], names: Sequence[str], suits: Callable[[str, str], bool]) -> None:
        self._suits, self._names = suits, names
        users = [number for number, message in enumerate(messages) if message.role == "user"]
        self._request = messages[users[-1]] if users else Message("user", "")
        said = for_patterns(self._request.content)
        self._before = list(messages[: users[-1]]) if users else []
        self._parts = [said] if is_cut(said) else request_parts(said, self._suiting)
        self._asked: set[int] = set()

    @property
    def first(self) -> str | None:
        """The first part; None if the request is not separated."""
        return self._parts[0] if len(self._parts) > 1 else None

    def first_prompt(self, prompt: Sequence[Message]) -> list[Message]:
        """The prompt for the first part alone, if the request is separated: whether it needs a call is decided as if
        the user had said nothing else."""
        if len(self._parts) < 2 or prompt[-1] != self._request:
            return list(prompt)
        self._asked.add(0)
        return [*self._before, Message("user", self._parts[0], whole=self._request.content)]

    def next_prompt(self, said: str, made: Sequence[str], outputs: Sequence[str] = ()) -> list[Message] | None:
        """The prompt for the next part. None if no part remains, nothing was asked for yet, or the user is to answer
        a question first.

        Args:
            said: what the assistant has just said.
            made: names of the tools that were called for this request.
            outputs: what these calls returned.
        """
        if len(self._parts) < 2 or not (made or self._asked) or said.rstrip().endswith("?"):
            return None
        done = self._assigned(made)
        remaining = (n for n in range(len(self._parts)) if n not in done and n not in self._asked)
        part = next((n for n in remaining if self._suiting(self._parts[n])), None)
        if part is None:
            return None
        self._asked.add(part)
        asked, notes = self._parts[part], list[Message]()
        if outputs and _ANAPHOR.search(asked):
            results = (f"Result of {name}: {output}" for name, output in zip(made, outputs, strict=True))
            notes = [Message("user", "\n".join(results))]
        return [*self._before, *notes, Message("user", asked)]

    def narrowed(self, prompt: Sequence[Message], made: Sequence[str]) -> list[Message]:
        """The prompt with only that part of the request that these calls are about, if it is separated: the answer to
        it must not guess at the others.

        Args:
            prompt: what the calls were made for. It has the whole request, or already a part.
        """
        if len(self._parts) < 2 or len(prompt) <= len(self._before) or prompt[len(self._before)] != self._request:
            return list(prompt)
        parts = sorted({part for part in self._assigned(made) if part is not None})
        text = " ".join(self._parts[part] for part in parts)
        if not text:
            return list(prompt)
        return [*self._before, Message("user", text), *prompt[len(self._before) + 1 :]]

    def asked_with(self, made: Sequence[str]) -> str | None:
        """The part that the last of these calls is about; None if the request is not separated."""
        part = self._assigned(made)[-1]
        return self._parts[part] if part is not None and len(self._parts) > 1 else None

    def _suiting(self, text: str) -> list[str]:
        """The tools that suit a text."""
        return [name for name in self._names if self._suits(name, text)]

    def _assigned(self, made: Sequence[str]) -> list[int | None]:
        """The part that each call is about: the first that its tool suits and no earlier call is about, or one that no
        tool suits in particular."""
        parts: list[int | None] = []
        for name in made:
            rest = [number for number in range(len(self._parts)) if number not in parts]
            suited = [number for number in rest if self._suits(name, self._parts[number])]
            others = [number for number in rest if not self._suiting(self._parts[number])]
            parts.append(next(iter(suited or others), None))
        return parts

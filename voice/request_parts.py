"""The parts of a request that asks for several things: "what time is it in Tokyo, and set a timer for an hour".

Small models make one call and take the request as done; asked in the same conversation for the rest, they imitate their
last answer instead of calling. So each further part that a tool suits is asked for by itself, in place of the request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from voice.language_model import Message

_STRONG = r"[,;]?\s*\b(?:and then|and also|and after that|after that|then|also)\b,?|[.;?!](?=\s)|,\s*and\b|,"
_JOINT = re.compile(rf"(?i)\s*({_STRONG}|\band\b)\s*")
_WEAK_JOINTS = ("and", ",")
_BEGINNING = re.compile(
    r"(?i)(?:please )?(?:what|what's|who|when|where|which|how|is|are|do|does|can|could|will|would|tell|set|start|"
    r"remind|write|read|cancel|stop|convert|calculate|give|show|list|create|delete|look|find|search|check|note|let)\b"
)
"""How a part begins that only an "and" or a comma separates: as a question or as a command."""

_DICTATION = re.compile(r"(?i)\b(?:remind|reminder|note|write|jot|remember|says?|saying|tell (?!me\b|us\b)|add|put)\b")
"""After these words an "and" belongs to what is dictated: "remind me to call Peter and check the door"."""

_CONDITION = re.compile(r"(?i)\b(?:if|unless|whether|depending|in case|otherwise|until)\b")
_REFERENCE = re.compile(
    r"(?i)(?<!\bis )\b(?:it|that|this|them|those)(?:\s+(?:down|up|to|on|in|by|again|too)\b|\s*[.,?!]|\s*$)|\bmake it\b|"
    r"\bthe (?:result|answer|same|difference)\b"
)
"""A part that needs the result of an earlier one: "and write that down", "multiply it by two"."""

_MIN_WORDS = 3
"""Of a part."""


def request_parts(said: str, suits: Callable[[str], bool]) -> list[str]:
    """The parts of what the user said that each ask for something, in order; the whole if it has only one, or if one
    part depends on another ("if it rains, …", "and write that down").

    Args:
        suits: whether a tool suits a text.
    """
    parts: list[str] = []
    start = joint_start = 0
    for joint in [*_JOINT.finditer(said), None]:
        end = len(said) if joint is None else joint.start()
        piece = said[start:end]
        if joint is not None and parts and not piece.strip():  # two joints, as in "… . And then …"
            start = joint.end()
            continue
        if not parts or (suits(piece) and _stands_alone(piece, said[joint_start:start].strip().lower(), parts[-1])):
            parts.append(piece)
        else:
            parts[-1] += said[joint_start:end]
        if joint is not None:
            joint_start, start = joint.start(), joint.end()
    parts = [part.strip() for part in parts]
    is_one = len(parts) < 2 or not suits(parts[0]) or len(parts[0].split()) < _MIN_WORDS
    return [said] if is_one or _CONDITION.search(said) or any(map(_REFERENCE.search, parts[1:])) else parts


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
        self._suits = suits
        users = [number for number, message in enumerate(messages) if message.role == "user"]
        said = messages[users[-1]].content if users else ""
        self._before = list(messages[: users[-1]]) if users else []
        self._parts = request_parts(said, lambda text: any(suits(name, text) for name in names))
        self._asked: set[int] = set()

    @property
    def first(self) -> str | None:
        """The first part; None if the request is not separated."""
        return self._parts[0] if len(self._parts) > 1 else None

    def next_prompt(self, said: str, made: Sequence[str]) -> list[Message] | None:
        """The prompt for the next part. None if no part remains, no call was made yet, or the user is to answer a
        question first.

        Args:
            said: what the assistant has just said.
            made: names of the tools that were called for this request.
        """
        if len(self._parts) < 2 or not made or said.rstrip().endswith("?"):
            return None
        done = self._assigned(made)
        part = next((n for n in range(len(self._parts)) if n not in done and n not in self._asked), None)
        if part is None:
            return None
        self._asked.add(part)
        return [*self._before, Message("user", self._parts[part])]

    def asked_with(self, made: Sequence[str]) -> str | None:
        """The part that the last of these calls is about; None if the request is not separated."""
        part = self._assigned(made)[-1]
        return self._parts[part] if part is not None and len(self._parts) > 1 else None

    def _assigned(self, made: Sequence[str]) -> list[int | None]:
        """The part that each call is about: the first that its tool suits and no earlier call is about."""
        parts: list[int | None] = []
        for name in made:
            rest = [number for number in range(len(self._parts)) if number not in parts]
            parts.append(next((number for number in rest if self._suits(name, self._parts[number])), None))
        return parts

"""What users say, labelled with whether an assistant can answer it (`requests.toml`): training data of the request
classifier. A request is labelled by what was said before it, and by the tools of the conversation.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chat.types import Message, Tool
from model.convert.prompts import TOPICS
from model.engine.request_classifier import RequestKind

_FILE = Path(__file__).with_name("requests.toml")

_GREETED_SHARE, _VARIED_SHARE = 0.25, 0.4
"""Shares of the requests that follow other words, and that are written as a speech recognizer or a talker may."""

_TOOLS_SHARE = 0.3
"""Share of the requests that are also asked with the built-in tools."""

_GREETINGS = (
    ("Hello.", "Hello! How can I help you?"), ("Hi, how are you?", "I'm fine, thank you. What can I do for you?"),
    ("Good evening.", "Good evening! What would you like to know?"), ("Are you there?", "Yes, I'm here."),
    ("Thank you.", "You're welcome."), ("Okay.", "Is there anything else?"),
)  # fmt: skip
_OTHER_TOPICS = (("What is nine times nine?", "It's eighty-one."), ("Tell me a fun fact.", "Honey never spoils."))
"""What an unclear request could refer to."""
_OPENERS = ("Hey, ", "Okay, ", "Um, ", "So, ", "Well, ", "Excuse me, ", "And ", "Oh, ", "Please, ")


@dataclass(frozen=True)
class LabelledRequest:
    """The end of a conversation.

    Attributes:
        origin: requests of one origin, a topic or a frame, are either all used for training or all held out.
        messages: without instructions; the last one is the request.
        tools: the functions that the conversation may call.
    """

    origin: str
    messages: tuple[Message, ...]
    kind: RequestKind
    tools: tuple[Tool, ...] = ()


def labelled_requests(builtin_tools: Sequence[Tool], seed: int) -> list[LabelledRequest]:
    """All requests without tools, and some of them with the built-in ones.

    Args:
        builtin_tools: what they can do counts as answerable.
    """
    data, names = tomllib.loads(_FILE.read_text(encoding="utf-8")), {tool.name for tool in builtin_tools}
    requests: list[LabelledRequest] = []
    draw = random.Random(seed)
    for domain in data["domains"]:
        suits = domain.get("tool") in names
        for request in _requests(domain):
            requests += _asked(request, builtin_tools, suits, draw)
    for topic in TOPICS:
        for kind, frames in data["frames"].items():
            frame = draw.choice(frames)
            request = LabelledRequest(frame, _messages([frame.format(topic=topic)]), kind)
            requests += _asked(request, builtin_tools, False, draw)
    return requests


def _asked(
    request: LabelledRequest, builtin_tools: Sequence[Tool], suits: bool, draw: random.Random
) -> Iterator[LabelledRequest]:
    """A request without tools, and perhaps with the built-in ones, of which one may suit it."""
    yield _varied(request, draw)
    if builtin_tools and draw.random() < _TOOLS_SHARE:
        kind = "answerable" if suits and request.kind == "unable" else request.kind
        yield _varied(replace(request, tools=tuple(builtin_tools), kind=kind), draw)


def _requests(domain: dict[str, Any]) -> Iterator[LabelledRequest]:
    kinds: tuple[RequestKind, ...] = ("answerable", "unable", "unclear", "unsafe", "crisis")
    pairs = [(kind, entry) for kind in kinds for entry in domain.get(kind, ())]
    for entry in domain.get("references", ()):
        pairs += [("answerable", entry), ("unclear", entry[-1])]
    for kind, entry in pairs:
        texts = [entry] if isinstance(entry, str) else entry
        yield LabelledRequest(texts[-1] if domain.get("general") else domain["name"], _messages(texts), kind)


def _messages(texts: Sequence[str]) -> tuple[Message, ...]:
    return tuple(Message("assistant" if n % 2 else "user", text) for n, text in enumerate(texts))


def _varied(request: LabelledRequest, draw: random.Random) -> LabelledRequest:
    """The same request, perhaps after other words, or in another writing."""
    *before, last = request.messages
    text = last.content
    if draw.random() < _VARIED_SHARE and not text.startswith("("):
        following = text if text.startswith(("I ", "I'")) else text[0].lower() + text[1:]
        plain = text.rstrip(".?!")
        text = draw.choice((plain.lower(), f"{plain}.", draw.choice(_OPENERS) + following))
    if not before and draw.random() < _GREETED_SHARE:
        others = () if request.kind == "unclear" else _OTHER_TOPICS
        before = list(_messages(draw.choice((*_GREETINGS, *others))))
    return replace(request, messages=(*before, Message("user", text)))

"""What users say, labelled with whether an assistant can answer it (`requests.toml`, `topics.toml.xz`,
`premises.toml`), whether it is an emergency (`emergencies.toml`), or whether it needs a tool (`tasks.toml.xz`, and what
programs are written for, `programs.txt.xz`): training data of the request classifier. A request is labelled by what was
said before it. Whether it needs a tool is also asked with other instructions, with functions of others, and after
passages of documents.
"""

from __future__ import annotations

import lzma
import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from chat.types import Message, Tool
from lab.convert.programs import read_examples
from lab.convert.prompts import TOPICS
from lab.convert.tool_prompts import TOOL_SETS
from model.engine.request_classifier import KINDS, RequestKind

_DATA, _TOPICS, _PREMISES, _TASKS, _EMERGENCIES = (
    tomllib.loads((lzma.decompress(content) if name.endswith(".xz") else content).decode())
    for name in ("requests.toml", "topics.toml.xz", "premises.toml", "tasks.toml.xz", "emergencies.toml")
    for content in (Path(__file__).with_name(name).read_bytes(),)
)

_GREETED_SHARE, _VARIED_SHARE = 0.25, 0.4
"""Shares of the requests that follow other words, and that are written as a speech recognizer or a talker may."""

_ELSEWHERE_SHARE = 0.35
"""Share of the requests that are also asked in conversations of another kind, half of those to be answered."""

_PROGRAMS_SHARE = 0.5
"""Share of the examples of programs that are requests, too."""

_PAIRS: Mapping[str, tuple[RequestKind, RequestKind]] = {
    "mistaken": ("mistaken", "answerable"),
    "unknowable": ("unknowable", "answerable"),
    "incomplete": ("action", "sum"),  # the program for it asks
}
"""The kinds of a question and of its look-alike, by their list in `premises.toml`."""


@dataclass(frozen=True)
class LabelledRequest:
    """The end of a conversation.

    Attributes:
        origin: requests of one origin, a topic or a frame, are either all used for training or all held out.
        messages: without instructions; the last one is the request.
        tools: functions of others that the conversation may call.
        instructions: of the conversation; empty for the assistant's own.
    """

    origin: str
    messages: tuple[Message, ...]
    kind: RequestKind
    tools: tuple[Tool, ...] = ()
    instructions: str = ""


def labelled_requests(seed: int) -> list[LabelledRequest]:
    """All requests, and some of them as well in conversations with other instructions, functions or passages."""
    requests: list[LabelledRequest] = []
    draw = random.Random(seed)
    for domain in (*_DATA["domains"], *_TASKS["groups"], *_TOPICS["domains"], *_EMERGENCIES["groups"]):
        for request in _requests(domain):
            requests += _asked(request, draw)
    for group, pairs in _PREMISES.items():
        asked, similar = _PAIRS[group]
        for question, look_alike in pairs:
            requests += _asked(LabelledRequest(question, _messages([question]), asked), draw)
            requests += _asked(LabelledRequest(question, _messages([look_alike]), similar), draw)
    for topic in TOPICS:
        for kind, frames in _DATA["frames"].items():
            frame = draw.choice(frames)
            requests += _asked(LabelledRequest(frame, _messages([frame.format(topic=topic)]), kind), draw)
    for example in read_examples():
        [(said, program), *following] = example
        if not following and draw.random() < _PROGRAMS_SHARE and (kind := _kind_of(program)):
            requests += _asked(LabelledRequest(said, _messages([said]), kind), draw)
    return requests


def _kind_of(program: str) -> RequestKind | None:
    """What a request is that a program was written for; None if it tells that something cannot be done."""
    if program.startswith("cannot("):
        return None
    if program == "talk()":
        return "answerable"
    return "sum" if "answer = " in program else "action"


def _asked(request: LabelledRequest, draw: random.Random) -> Iterator[LabelledRequest]:
    """A request, and perhaps the same one in a conversation of another kind."""
    yield _varied(request, draw)
    is_task = request.kind in ("action", "sum")
    if request.kind not in ("answerable", "action", "sum"):
        return
    if draw.random() < (_ELSEWHERE_SHARE if is_task else _ELSEWHERE_SHARE / 2):
        yield _elsewhere(_varied(request, draw), draw)


def _elsewhere(request: LabelledRequest, draw: random.Random) -> LabelledRequest:
    match draw.randrange(4):
        case 0:
            return replace(request, tools=draw.choice(_foreign_tools()))
        case 1:
            passages = Message("user", _DATA["passages"].format(passage=draw.choice(_DATA["quoted"])))
            return replace(request, messages=(*request.messages[:-1], passages, request.messages[-1]))
        case _:
            return replace(request, instructions=draw.choice(_DATA["instructions"]))


@cache
def _foreign_tools() -> list[tuple[Tool, ...]]:
    """Functions of others: the tools of one assistant each."""
    functions = [[use.declaration["function"] for use in each.tools] for each in TOOL_SETS]
    return [tuple(Tool(each["name"], each["description"], each["parameters"]) for each in one) for one in functions]


def _requests(domain: dict[str, Any]) -> Iterator[LabelledRequest]:
    pairs: list[tuple[RequestKind, Any]] = [
        (_as_task(kind, domain), entry)
        for kind in KINDS
        for entry in domain.get({"action": "actions", "sum": "sums"}.get(kind, kind), ())
    ]
    for entry in domain.get("references", ()):
        pairs += [("answerable", entry), ("unclear", entry[-1])]
    for kind, entry in pairs:
        texts = [entry] if isinstance(entry, str) else entry
        yield LabelledRequest(texts[-1] if domain.get("general") else domain["name"], _messages(texts), kind)


def _as_task(kind: RequestKind, domain: dict[str, Any]) -> RequestKind:
    """What the assistant is unable to do without the built-in tool that a domain names is a task for it."""
    return "action" if kind == "unable" and "tool" in domain else kind


def _messages(texts: Sequence[str]) -> tuple[Message, ...]:
    return tuple(Message("assistant" if n % 2 else "user", text) for n, text in enumerate(texts))


def _varied(request: LabelledRequest, draw: random.Random) -> LabelledRequest:
    """The same request, perhaps after other words, or in another writing."""
    *before, last = request.messages
    text = last.content
    if draw.random() < _VARIED_SHARE and not text.startswith("("):
        following = text if text.startswith(("I ", "I'")) else text[0].lower() + text[1:]
        plain = text.rstrip(".?!")
        text = draw.choice((plain.lower(), f"{plain}.", draw.choice(_DATA["openers"]) + following))
    if not before and draw.random() < _GREETED_SHARE:
        others = () if request.kind == "unclear" else _DATA["other_topics"]
        before = list(_messages(draw.choice((*_DATA["greetings"], *others))))
    return replace(request, messages=(*before, Message("user", text)))

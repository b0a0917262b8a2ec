"""Conversations for a model to respond to: the user's side, from patterns and topics, and from questions that the model
has invented. Those with tools come from `tool_prompts.py`.

`generate_data.py` asks the model for passages and follow-ups as well. Patterns cost nothing, and are varied enough for
a draft head. The evaluation has different prompts.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chat.types import Message
from lab.convert import prompts
from lab.convert.spoken_templates import spoken_sentences
from lab.convert.tool_prompts import TOOL_KINDS, tool_conversation

_PATTERNS = tomllib.loads(Path(__file__).with_name("spoken_prompts.toml").read_text(encoding="utf-8"))

_SHARES = {
    "chat": 0.45, "sentence": 0.12, "list": 0.1, "numbers": 0.08, "json": 0.12, "tool": 0.07, "no_tool": 0.03,
    "result": 0.03,
}  # fmt: skip
"""Relative frequency of each kind of prompt. `sentence` is everyday requests, most of which an assistant declines."""

_INVENTED_SHARE = 0.45
"""Share of prompts that the model has invented."""

_JSON_INSTRUCTIONS = ("You are a helpful assistant.", "You are a helpful assistant. Answer with JSON only.")

_PLAIN_INSTRUCTIONS, _PLAIN_SHARE = "You are a helpful assistant.", 0.1


@dataclass(frozen=True)
class SpokenPrompt:
    """A conversation that waits for its response.

    Attributes:
        kind: one of `corpus.KINDS`.
        messages: instructions first. The last one is the user's, or what a call returned.
        tools: functions that may be called, in the chat template's form.
    """

    kind: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()


def spoken_prompts(seed: int, instructions: str, invented: Sequence[tuple[str, str]] = ()) -> Iterator[SpokenPrompt]:
    """Prompts without end.

    Args:
        instructions: the assistant's own; half of the prompts have them.
        invented: (kind, question) pairs to use as well.
    """
    draw = random.Random(seed)
    sentences = [
        " ".join(word for word, _ in words) for _, words in spoken_sentences(draw) if words[-1][1] and len(words) > 3
    ]
    kinds, shares = [*_SHARES], [*_SHARES.values()]
    while True:
        (kind,) = draw.choices(kinds, shares)
        system = instructions if draw.random() < 0.5 else draw.choice(prompts.PERSONAS)
        system = _PLAIN_INSTRUCTIONS if draw.random() < _PLAIN_SHARE else system
        topic = draw.choice(prompts.TOPICS)
        tools: tuple[dict[str, Any], ...] = ()
        messages: tuple[Message, ...] = ()
        if invented and draw.random() < _INVENTED_SHARE:
            kind, text = draw.choice(invented)
        elif kind == "sentence":
            kind, text = "chat", draw.choice(sentences)
            text = text[0].upper() + text[1:] + draw.choice((".", "?", ""))
        elif kind == "json":
            forms = [*prompts.JSON_TURNS, *_PATTERNS["json"]]
            text, system = draw.choice(forms).format(topic=topic), draw.choice(_JSON_INSTRUCTIONS)
        elif kind in TOOL_KINDS:
            messages, tools = tool_conversation(kind, draw)
        else:
            text = draw.choice(_PATTERNS[kind]).format(topic=topic)
        yield SpokenPrompt(kind, (Message("system", system), *(messages or (Message("user", text),))), tools)


def follow_up(prompt: SpokenPrompt, response: str, draw: random.Random) -> SpokenPrompt:
    """The conversation with its response, and another user message."""
    text = draw.choice(_PATTERNS["follow_up"]).format(topic=draw.choice(prompts.TOPICS))
    messages = (*prompt.messages, Message("assistant", response), Message("user", text))
    return SpokenPrompt(prompt.kind, messages, prompt.tools)

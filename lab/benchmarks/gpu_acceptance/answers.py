"""Answers of an engine, for stages that compare or time them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from chat.types import Ask, Message
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel

SYSTEM = Message("system", "You are a voice assistant. Answer in one or two short sentences that can be spoken.")

HANG_S = 100.0
"""No answer of any stage takes as long; its deadline ends a stage anyway."""


@dataclass(frozen=True)
class Answer:
    """What a conversation got.

    Attributes:
        steps: forward passes after the prompt.
        first_s, seconds: until the first and until the last token.
    """

    text: str
    tokens: int
    steps: int
    first_s: float
    seconds: float


@contextmanager
def running(model: LoadedModel, **options: Any) -> Iterator[Engine]:
    """An engine for a loaded model, closed at the end."""
    engine = Engine(lambda: model, **options)
    try:
        yield engine
    finally:
        engine.close()


async def answer(conversation: Conversation, question: str, max_tokens: int, **options: Any) -> Answer:
    """Ask one question, without earlier turns."""
    began, first, parts, tokens, steps = time.perf_counter(), 0.0, [], 0, 0
    async for progress in conversation.reply(
        Ask([SYSTEM, Message("user", question)], max_tokens=max_tokens, **options)
    ):
        first = first or time.perf_counter() - began
        parts.append(progress.committed)
        tokens, steps = progress.tokens, progress.step
    return Answer("".join(parts), tokens, steps, first, time.perf_counter() - began)


def ask(engine: Engine, question: str, max_tokens: int, *, drafting: bool = True, **options: Any) -> Answer:
    """The answer of a new conversation."""
    conversation = Conversation(engine, drafting=drafting)
    return asyncio.run(asyncio.wait_for(answer(conversation, question, max_tokens, **options), HANG_S))


def expect_equal(name: str, ours: object, expected: object) -> None:
    """Raises AssertionError with the beginning of both."""
    if ours != expected:
        one, other = repr(ours), repr(expected)
        at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        raise AssertionError(f"{name} differs at character {at}: {one[at : at + 40]} instead of {other[at : at + 40]}")


def holds(condition: bool, problem: Callable[[], str]) -> None:
    """Raises AssertionError with the problem unless the condition holds."""
    if not condition:
        raise AssertionError(problem())

"""Reasoning effort of the text API: the answer is worked out before it is written (`agent.reasoning`).

| `reasoning_effort`     | worked out as         | block denoising (`--effort`) |
|------------------------|-----------------------|------------------------------|
| none, minimal, instant | nothing               | instant                      |
| not given              | nothing               | the server's                 |
| low                    | low                   | low                          |
| medium                 | medium                | medium                       |
| high, xhigh            | high                  | high                         |

With verified drafts the right column makes no difference to the text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from agent.reasoning import reasoner as reasoning
from agent.reasoning.reasoner import Reasoner, with_conclusion
from chat.types import Effort, Message
from model.engine.engine import Engine
from server.chat_completions.generation import TokenUsage, Update, api_errors, count, new_conversation
from server.chat_completions.schema import ReasoningEffort

_EFFORTS: dict[str, reasoning.ReasoningEffort] = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high"}


def denoising_effort(effort: ReasoningEffort | None) -> Effort | None:
    """The effort of block denoising; None is the server's."""
    return None if effort is None else _EFFORTS.get(effort, "instant")


async def work_out(
    engine: Engine, messages: Sequence[Message], effort: ReasoningEffort | None
) -> tuple[Sequence[Message], str, TokenUsage]:
    """The conversation with what was worked out on its newest message, the answer, and what it took: the same
    conversation and an empty text if nothing was. It is counted for the key of the request. Raises APIError."""
    level = _EFFORTS.get(effort or "")
    if level is None or messages[-1].role != "user":
        return messages, "", TokenUsage()
    reasoner = Reasoner(new_conversation(engine), messages, level)
    try:
        with api_errors():
            conclusion = await reasoner.conclude()
    finally:
        count(TokenUsage(reasoner.prompt_tokens, reasoner.cached_tokens, reasoner.tokens))
    usage = TokenUsage(
        completion_tokens=reasoner.tokens, reasoning_tokens=reasoner.tokens, forward_passes=reasoner.steps
    )
    if conclusion is None:
        return messages, "", usage
    return with_conclusion(messages, conclusion), conclusion.answer, usage


async def with_answer(updates: AsyncIterator[Update], answer: str) -> AsyncIterator[Update]:
    """A text that says what was worked out: if it does not, a sentence that does is added.

    Args:
        answer: as `Conclusion.answer`.
    """
    text = ""
    async with aclosing(updates):  # type: ignore[type-var]
        async for update in updates:
            text += update.text
            if update.finish_reason == "stop" and not _says(text.replace(",", "").lower(), answer):
                update = replace(update, text=f"{update.text}\n\nThe answer is {answer}.")
            yield update


def _says(text: str, answer: str) -> bool:
    """Whether a text has this answer, which is not a part of a longer number or word."""
    start = text.find(answer)
    while start >= 0:
        around = text[:start][-1:], text[start + len(answer) :][:1]
        if not any(character.isalnum() for character in around):
            return True
        start = text.find(answer, start + 1)
    return False

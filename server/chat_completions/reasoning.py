"""Reasoning effort: notes that the model writes before it answers, and that nobody reads.

| `reasoning_effort`          | notes, tokens at most | block denoising (`--effort`) |
|-----------------------------|-----------------------|------------------------------|
| none, minimal, instant      | 0                     | instant                      |
| not given                   | 0                     | the server's                 |
| low                         | 64                    | low                          |
| medium                      | 192                   | medium                       |
| high, xhigh                 | 512                   | high                         |

With verified drafts every effort generates the model's own text, so only the notes make a difference.
"""

from __future__ import annotations

from collections.abc import Sequence

from chat.progress import Progress
from chat.types import Ask, Effort, Message
from model.engine.engine import Engine
from server.chat_completions.generation import TokenUsage, generate, new_conversation
from server.chat_completions.schema import ReasoningEffort

_NOTE_TOKENS = {"low": 64, "medium": 192, "high": 512, "xhigh": 512}

_DENOISING: dict[str, Effort] = {
    "none": "instant", "minimal": "instant", "instant": "instant", "low": "low", "medium": "medium", "high": "high",
    "xhigh": "high",
}  # fmt: skip

_ASK_FOR_NOTES = (
    "\n\nDo not answer yet. First write short notes for yourself: what is asked, the facts that matter, and each step "
    "of any calculation."
)

_ASK_FOR_ANSWER = "\n\nYour notes:\n{notes}\n\nAnswer now, without mentioning the notes."


def denoising_effort(effort: ReasoningEffort | None) -> Effort | None:
    """The effort of block denoising; None is the server's."""
    return None if effort is None else _DENOISING[effort]


async def add_plan(
    engine: Engine, messages: Sequence[Message], effort: ReasoningEffort | None
) -> tuple[Sequence[Message], TokenUsage]:
    """The conversation with notes on its newest message, and what they took. Raises APIError."""
    limit = _NOTE_TOKENS.get(effort or "", 0)
    newest = messages[-1]
    if not limit or newest.role != "user":
        return messages, TokenUsage()
    asked = [*messages[:-1], Message("user", newest.content + _ASK_FOR_NOTES)]
    ask = Ask(asked, max_tokens=limit, effort=denoising_effort(effort), sampling=engine.sampling)
    notes, progress = "", Progress()
    async for progress in generate(new_conversation(engine), ask):
        notes += progress.committed
    answered = [*messages[:-1], Message("user", newest.content + _ASK_FOR_ANSWER.format(notes=notes.strip()))]
    tokens = progress.tokens
    return answered, TokenUsage(completion_tokens=tokens, reasoning_tokens=tokens, forward_passes=progress.step)

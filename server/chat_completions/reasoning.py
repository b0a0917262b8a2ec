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

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from agent.reasoning import prompt as reasoning
from agent.reasoning.constrained_text import ConstrainedText
from agent.reasoning.constraint_reader import ConstraintReader
from agent.reasoning.cost import Cost
from agent.reasoning.reasoner import Reasoner, with_conclusion
from chat.progress import Progress
from chat.types import Ask, Effort, Message
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from server.chat_completions.generation import TokenUsage, Update, api_errors, count, in_bulk, new_conversation
from server.chat_completions.schema import ReasoningEffort

_EFFORTS: dict[str, reasoning.ReasoningEffort] = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high"}


def denoising_effort(effort: ReasoningEffort | None) -> Effort | None:
    """The effort of block denoising; None is the server's."""
    return None if effort is None else _EFFORTS.get(effort, "instant")


@dataclass(frozen=True)
class WorkedOut:
    """What was worked out before a response.

    Attributes:
        messages: the conversation, with what leads to an answer on its newest message.
        answer: a number, a time or an option that the response must have; empty for none.
        written: the response itself; None if it is still to be generated.
        usage: what it took, without `written`.
    """

    messages: Sequence[Message]
    answer: str = ""
    written: Progress | None = None
    usage: TokenUsage = field(default_factory=TokenUsage)

    async def response(self, conversation: Conversation, ask: Ask) -> AsyncIterator[Progress]:
        """The response: what was written already, or what is generated now."""
        if self.written is not None:
            yield self.written
            return
        async with aclosing(conversation.reply(ask)) as replying:  # type: ignore[type-var]
            async for progress in replying:
                yield progress


class Reasoning:
    """Works out answers. One for all requests, which share what was read of the examples."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._constraints: dict[bool, ConstraintReader] = {}
        """By whether they are read for bulk work."""

    async def work_out(
        self, messages: Sequence[Message], effort: ReasoningEffort | None, text: Ask | None
    ) -> WorkedOut:
        """What the answer to the newest message is worked out to be, if the effort wants that. It is counted for the
        key of the request. Raises APIError.

        Args:
            messages: the conversation.
            text: the request for a text, if one may be written here: not for several choices.
        """
        level = _EFFORTS.get(effort or "")
        if level is None or messages[-1].role != "user":
            return WorkedOut(messages)
        model, written = new_conversation(self._engine), None
        reasoner = Reasoner(model, messages, level)
        try:
            with api_errors():
                conclusion = await reasoner.conclude()
                if conclusion is None and text is not None and _is_free(text) and await reasoner.kind() == "text":
                    written = await self._write(model, text, level, reasoner.cost)
        finally:
            cost, end = reasoner.cost, written or Progress()
            tokens, steps = cost.tokens - end.tokens, cost.steps - end.step
            count(TokenUsage(cost.prompt_tokens, cost.cached_tokens, tokens))
        usage = TokenUsage(completion_tokens=tokens, reasoning_tokens=tokens, forward_passes=steps)
        if conclusion is None:
            return WorkedOut(messages, "", written, usage)
        return WorkedOut(with_conclusion(messages, conclusion), conclusion.answer, None, usage)

    async def _write(
        self, model: Conversation, text: Ask, level: reasoning.ReasoningEffort, cost: Cost
    ) -> Progress | None:
        """A text that follows the constraints of the newest message; None if it has none."""
        if (bulk := in_bulk.get()) not in self._constraints:
            self._constraints[bulk] = ConstraintReader(new_conversation(self._engine))
        constraints = await self._constraints[bulk].read(text.messages[-1].content, cost)
        return await ConstrainedText(model, text, constraints, level, cost).write() if constraints else None


def _is_free(ask: Ask) -> bool:
    """Whether a text is the response as it is: no grammar, no stop sequence, no log probabilities."""
    return ask.grammar is None and not ask.stop and ask.top_log_probabilities is None


async def with_answer(updates: AsyncIterator[Update], answer: str) -> AsyncIterator[Update]:
    """A text that says what was worked out: if it does not, a sentence that does is added.

    Args:
        answer: as `Conclusion.answer`.
    """
    text = ""
    async with aclosing(updates):  # type: ignore[type-var]
        async for update in updates:
            text += update.text
            if update.finish_reason == "stop" and not _says(text.lower(), answer):
                update = replace(update, text=f"{update.text}\n\nThe answer is {answer}.")
            yield update


def _says(text: str, answer: str) -> bool:
    """Whether a text has this answer, with or without commas, which is not a part of a longer number or word."""
    text, answer = text.replace(",", ""), answer.replace(",", "")
    return re.search(rf"(?<![^\W_])(?<!\d[.:]){re.escape(answer)}(?![^\W_]|[.:]\d)", text) is not None

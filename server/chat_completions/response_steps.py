"""The steps of one response: text and calls, again and again while the server makes the calls itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agent.tool_loop import ToolLoop, without_oldest_output
from chat.types import Ask, Message
from model.engine.conversation import Conversation
from server.api_errors import APIError
from server.chat_completions.generation import TokenUsage, Update, generate
from server.chat_completions.reasoning import WorkedOut, with_answer
from server.chat_completions.response_output import Event, ResponseOutput
from server.chat_completions.server_side_tools import ServerSideTools


class ResponseSteps:
    """Generates a response and makes the calls of MCP tools in it, until it says something without such a call.

    Args:
        conversation: generates; for this response alone.
        tools: what the server calls.
        loop: counts the calls, and says when no further one may be made: the last step has no tools then.
        messages: the conversation up to the response.
        ask: what the first step is asked, without the messages and the server's tools.
        found: what was worked out before the first step.

    Attributes:
        items: the output of the steps so far.
        new_messages: the same as it goes into the conversation.
        usage: of all steps together; a prompt that they share counts once.
        incomplete: why the response was cut off; None if it was not.
    """

    def __init__(
        self,
        conversation: Conversation,
        tools: ServerSideTools,
        loop: ToolLoop,
        messages: list[Message],
        ask: Ask,
        found: WorkedOut,
    ) -> None:
        self.items: list[dict[str, Any]] = []
        self.new_messages: list[Message] = []
        self.usage, self._found = found.usage, found
        self.incomplete: str | None = None
        self._conversation, self._tools, self._loop = conversation, tools, loop
        self._messages, self._num_earlier, self._ask = messages, len(messages), ask
        self._server_tools = tools.declarations if ask.tool_choice != "none" else []

    async def events(self) -> AsyncIterator[Event]:
        """What happens. Raises APIError."""
        for item, listing in self._tools.lists():
            for event in listing:
                yield {**event, "output_index": len(self.items)}
            self.items.append(item)
        num_steps, before = 0, self.usage
        while True:
            output = ResponseOutput(len(self.items), self._tools.labels)
            async with aclosing(self._step(self._next_ask(num_steps, before))) as updates:  # type: ignore[type-var]
                async for update in updates:
                    for event in output.add(update):
                        yield event
                    if self._loop.stopped == "cancelled":
                        break
            cancelled = self._loop.stopped == "cancelled"
            if cancelled:
                output.choice.finish_reason = "length"
            for event in output.close():
                yield event
            num_steps += 1
            self.usage += output.choice.usage
            self._add(output.message())
            mine = [call for call in output.choice.calls if call.done and call.name in self._tools.labels]
            returned = list[Message]()
            async for event in self._tools.run(mine, output, self._loop, returned):
                yield event
            for message in returned:
                self._add(message)
            self.items += output.items
            if self._loop.stopped == "cancelled":
                self.incomplete = "cancelled"
            elif not output.complete or (mine and self._tokens_left(before) == 0):
                self.incomplete = "max_output_tokens"
            if self.incomplete or not mine or len(mine) < len(output.choice.calls):
                return

    def _next_ask(self, num_steps: int, before: TokenUsage) -> Ask:
        """Functions that must be called, must be so in the first step only."""
        ask = replace(self._ask, max_tokens=self._tokens_left(before))
        if self._loop.stopped is not None:
            return replace(ask, tools=(), tool_choice="auto")
        if not self._server_tools:
            return ask
        choice = ask.tool_choice if num_steps == 0 else "auto"
        tools = [*ask.tools, *self._server_tools]
        return replace(ask, tools=tools, tool_choice=choice, max_tool_calls=self._loop.remaining_calls)

    def _tokens_left(self, before: TokenUsage) -> int | None:
        if self._ask.max_tokens is None:
            return None
        return max(0, self._ask.max_tokens - (self.usage.completion_tokens - before.completion_tokens))

    async def _step(self, ask: Ask) -> AsyncIterator[Update]:
        """One step. Where the outputs of calls have become too long for the context, the oldest of them make room."""
        while True:
            try:
                generated = generate(self._found.response(self._conversation, replace(ask, messages=self._messages)))
                if self._found.answer and ask.grammar is None:
                    generated = with_answer(generated, self._found.answer)
                async with aclosing(generated):  # type: ignore[type-var]
                    async for update in generated:
                        yield update
                return
            except APIError as error:
                shorter = without_oldest_output(self._messages, self._num_earlier)
                if error.code != "context_length_exceeded" or shorter is None:
                    raise
                self._messages = shorter

    def _add(self, message: Message) -> None:
        self.new_messages.append(message)
        self._messages.append(message)

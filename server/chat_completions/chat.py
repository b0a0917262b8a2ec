"""`/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chat.progress import ScoredToken
from chat.types import Ask, ToolCallDelta
from model.engine.engine import Engine
from server.chat_completions.generation import (
    Choice,
    TokenUsage,
    Update,
    generate,
    new_conversation,
    speakable_updates,
)
from server.chat_completions.logprobs import chat_logprobs
from server.chat_completions.reasoning import Reasoning, denoising_effort, with_answer
from server.chat_completions.requests import (
    RequestLimit,
    TextEndpoint,
    check_format,
    conversation_messages,
    samplings,
    tool_options,
)
from server.chat_completions.schema import ChatCompletionRequest
from server.chat_completions.streaming import event_stream, merge, unless_disconnected
from server.chat_completions.verbosity import with_verbosity
from server.server_sent_events import DONE, event


class ChatCompletions(TextEndpoint):
    """Answers chat completion requests.

    Args:
        reasoning: shared with the Responses API.
    """

    def __init__(self, engine: Engine, model: str, limit: RequestLimit, reasoning: Reasoning) -> None:
        super().__init__(engine, model, limit)
        self._reasoning = reasoning

    async def handle(self, request: Request) -> Response:
        """One request. Raises APIError, ClientDisconnect."""
        body = await self._read(request, ChatCompletionRequest)
        if body.stream or body.diffusing:
            return await event_stream(request, self._stream(body))
        return JSONResponse(await unless_disconnected(request, self._complete(body)))

    async def _complete(self, body: ChatCompletionRequest) -> dict[str, Any]:
        choices: dict[int, Choice] = {}
        async for index, update in self._updates(body):
            choices.setdefault(index, Choice()).add(update)
        return {
            **self._envelope("chat.completion", "chatcmpl"),
            "choices": [_body(choices[index], index, scored=bool(body.logprobs)) for index in sorted(choices)],
            "usage": _total(choices.values()).body(),
        }

    async def _stream(self, body: ChatCompletionRequest) -> AsyncIterator[str]:
        """The events of a streamed response."""
        envelope = self._envelope("chat.completion.chunk", "chatcmpl")
        choices: dict[int, Choice] = {}

        def chunk(
            index: int,
            delta: dict[str, Any],
            finish_reason: str | None = None,
            scores: Sequence[ScoredToken] | None = None,
            **more: Any,
        ) -> str:
            logprobs = None if scores is None else chat_logprobs(scores)
            choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
            return event({**envelope, "choices": [choice], **more})

        async for index, update in self._updates(body):
            if index not in choices:
                choices[index] = Choice()
                yield chunk(index, {"role": "assistant", "content": ""})
            choice = choices[index]
            choice.add(update)
            if calls := [_call_delta(choice, piece) for piece in update.tool_calls]:
                yield chunk(index, {"tool_calls": calls})
            scores = update.scores if body.logprobs else None
            if body.diffusing and not choice.calls:
                whole = {"role": "assistant", "content": choice.text + update.draft}
                yield chunk(index, whole, scores=scores, diffusion_meta=_diffusion_meta(choice, update))
            elif update.text or scores:
                yield chunk(index, {"content": update.text}, scores=scores)
            if update.finish_reason:
                yield chunk(index, {}, update.finish_reason)
        if body.stream_options and body.stream_options.include_usage:
            yield event({**envelope, "choices": [], "usage": _total(choices.values()).body()})
        yield DONE

    async def _updates(self, body: ChatCompletionRequest) -> AsyncIterator[tuple[int, Update]]:
        """What each choice generates, as it comes."""
        with self._limit.slot():
            await check_format(self._engine, body.response_format, "response_format")
            messages = conversation_messages(body.messages)
            asks = [
                Ask(
                    with_verbosity(messages, body.verbosity),
                    max_tokens=body.token_limit,
                    effort=denoising_effort(body.reasoning_effort),
                    max_steps=body.max_steps,
                    sampling=sampling,
                    stop=body.stop_sequences,
                    grammar=body.response_format.as_grammar if body.response_format else None,
                    top_log_probabilities=body.top_logprobs or 0 if body.logprobs else None,
                    **tool_options(body.functions, body.chosen_function, body.parallel_tool_calls),
                )
                for sampling in samplings(body, self._engine.sampling, body.n or 1)
            ]
            effort = None if body.functions else body.reasoning_effort
            found = await self._reasoning.work_out(messages, effort, asks[0] if len(asks) == 1 else None)
            asked = with_verbosity(found.messages, body.verbosity)
            asks = [replace(ask, messages=asked) for ask in asks]
            streams = [generate(found.response(new_conversation(self._engine), ask), ask.stop) for ask in asks]
            if found.answer and asks[0].grammar is None and not asks[0].stop:
                streams = [with_answer(stream, found.answer) for stream in streams]
            if body.speakable:
                streams = [speakable_updates(stream) for stream in streams]
            async for index, update in merge(streams):
                yield index, update.after(found.usage) if index == 0 else update  # it was worked out once for all


def _body(choice: Choice, index: int, *, scored: bool) -> dict[str, Any]:
    """A choice as it is sent; `scored`: with log probabilities."""
    message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
    if choice.calls:
        message["content"] = choice.text or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in choice.calls
        ]
    logprobs = chat_logprobs(choice.scores) if scored else None
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": choice.finish_reason}


def _call_delta(choice: Choice, piece: ToolCallDelta) -> dict[str, Any]:
    """A streamed piece of a call. The first one has its id and name."""
    call = choice.calls[piece.index]
    delta: dict[str, Any] = {"index": piece.index, "function": {"arguments": piece.arguments}}
    if not call.announced:
        call.announced = True
        delta = {**delta, "id": call.id, "type": "function"}
        delta["function"] = {"name": call.name, "arguments": piece.arguments}
    return delta


def _diffusion_meta(choice: Choice, update: Update) -> dict[str, Any]:
    """Inception's fields, and how many characters of the text are final."""
    return {
        "diffusion_content": True,
        "diffusion_progress": 1.0 if update.finish_reason else 0.0,
        "committed_length": len(choice.text),
    }


def _total(choices: Any) -> TokenUsage:
    return sum((choice.usage for choice in choices), TokenUsage())

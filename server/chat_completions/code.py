"""Completions for editors: `/v1/fim/completions` and `/v1/edit/completions` as Inception's API has them, and `/infill`
as llama.cpp's server does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chat.progress import Progress
from chat.types import Ask, Message
from model.engine.fill_in import FillIn
from server.chat_completions.errors import read_json
from server.chat_completions.generation import TokenUsage, api_errors, generate, new_conversation, until_stop
from server.chat_completions.requests import TextEndpoint, samplings
from server.chat_completions.schema import ChatMessage, SamplingFields
from server.chat_completions.streaming import DONE, event, event_stream, unless_disconnected

FIM_TOKENS, EDIT_TOKENS = 512, 1024
"""Inception's defaults for the length of a completion."""

_EDIT_INSTRUCTIONS = (
    "You edit code. The user sends the current file, what they viewed and changed recently, and the code to edit, "
    "which is marked with <|code_to_edit|>. Reply with the new version of that code and nothing else."
)


class FIMRequest(SamplingFields):
    """The body of `/v1/fim/completions`."""

    prompt: str
    suffix: str = ""
    # Accepted where they ask for nothing; Inception's clients send a presence penalty of 1.5 by default.
    frequency_penalty: float | None = Field(None, ge=0, le=0)
    presence_penalty: float | None = None
    repetition_penalty: float | None = None


class EditRequest(SamplingFields):
    """The body of `/v1/edit/completions`."""

    messages: list[ChatMessage] = Field(min_length=1)
    presence_penalty: float | None = None


class InfillRequest(SamplingFields):
    """The body of `/infill`. Fields that only tune llama.cpp's own caches and samplers are ignored."""

    model_config = ConfigDict(extra="ignore")

    input_prefix: str
    input_suffix: str = ""
    prompt: str = ""
    input_extra: list[dict[str, Any]] | None = None
    n_predict: int | None = None


class CodeCompletions(TextEndpoint):
    """Answers requests of editors."""

    async def fim(self, request: Request) -> Response:
        """Fill in the middle. Raises APIError, ClientDisconnect."""
        body = await self._read(request, FIMRequest)
        envelope = self._envelope("text_completion", "cmpl")
        found = self._fill_in(body, body.prompt, body.suffix, body.max_tokens or FIM_TOKENS)
        if not body.stream:
            text, last = await unless_disconnected(request, _collect(found))
            choice = {"index": 0, "text": text, "finish_reason": last.finished, "logprobs": None}
            return JSONResponse({**envelope, "choices": [choice], "usage": TokenUsage.of(last).body()})

        async def events() -> AsyncIterator[str]:
            progress = Progress()
            async for progress in found:
                text, finish = progress.committed, progress.finished
                choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
                if text or finish:
                    yield event({**envelope, "choices": [choice]})
            if body.stream_options and body.stream_options.include_usage:
                yield event({**envelope, "choices": [], "usage": TokenUsage.of(progress).body()})
            yield DONE

        return await event_stream(events())

    async def infill(self, request: Request) -> Response:
        """Fill in the middle, in llama.cpp's format. Raises APIError, ClientDisconnect."""
        body = await read_json(request, InfillRequest)
        extra = "".join(str(chunk.get("text", "")) + "\n" for chunk in body.input_extra or ())
        limit = body.n_predict if body.n_predict is not None and body.n_predict > 0 else body.max_tokens
        found = self._fill_in(body, extra + body.input_prefix + body.prompt, body.input_suffix, limit)

        def described(text: str, progress: Progress) -> dict[str, Any]:
            return {
                "content": text,
                "stop": progress.finished is not None,
                "stop_type": {None: "none", "length": "limit"}.get(progress.finished, "eos"),
                "model": self._model,
                "tokens_predicted": progress.tokens,
                "tokens_evaluated": progress.prompt_tokens,
                "tokens_cached": progress.cached_tokens,
            }

        if not body.stream:
            return JSONResponse(described(*await unless_disconnected(request, _collect(found))))

        async def events() -> AsyncIterator[str]:
            async for progress in found:
                if progress.committed or progress.finished:
                    yield event(described(progress.committed, progress))

        return await event_stream(events())

    async def edit(self, request: Request) -> Response:
        """The next edit of a file. Raises APIError, ClientDisconnect."""
        body = await self._read(request, EditRequest)
        messages = [Message("system", _EDIT_INSTRUCTIONS), *(Message(m.role, m.text) for m in body.messages)]
        (sampling,) = samplings(body, self._engine.sampling, 1)
        ask = Ask(messages, max_tokens=body.max_tokens or EDIT_TOKENS, sampling=sampling, stop=body.stop_sequences)
        with self._limit.slot():
            found = generate(new_conversation(self._engine), ask)
            text, last = await unless_disconnected(request, _collect(found))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": last.finished}
        envelope = self._envelope("edit.completion", "edit")
        return JSONResponse({**envelope, "choices": [choice], "usage": TokenUsage.of(last).body()})

    async def _fill_in(
        self, body: SamplingFields, before: str, after: str, max_tokens: int | None
    ) -> AsyncIterator[Progress]:
        (sampling,) = samplings(body, self._engine.sampling, 1)
        with self._limit.slot(), api_errors():
            filler = FillIn(self._engine, background=True)
            found = filler.fill_in(before, after, max_tokens=max_tokens, sampling=sampling)
            async for progress in until_stop(found, body.stop_sequences):
                yield progress


async def _collect(found: AsyncIterator[Progress]) -> tuple[str, Progress]:
    """The whole text and the last progress."""
    text = ""
    async for progress in found:
        text += progress.committed
    return text, progress

"""Completions for editors: `/v1/fim/completions` and `/v1/edit/completions` as Inception's API has them, and `/infill`
as llama.cpp's server does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from chat.types import Ask, Message
from model.engine.engine import Engine
from model.engine.fill_in import FillIn
from server.access.usage import key_name
from server.api_errors import read_json
from server.chat_completions.generation import (
    Choice,
    TokenUsage,
    Update,
    api_errors,
    collect,
    generate,
    new_conversation,
)
from server.chat_completions.requests import RequestLimit, TextEndpoint, samplings
from server.chat_completions.schema import ChatMessage, SamplingFields
from server.chat_completions.streaming import event_stream, unless_disconnected
from server.chat_completions.suggestion import SuggestionEnd, until_end
from server.server_sent_events import DONE, event

FIM_TOKENS, EDIT_TOKENS = 512, 1024
"""Inception's defaults for the length of a completion."""

_MAX_IDLE = 2
"""Caches that are kept for the next request of their key: an editor's requests differ by a few characters. One takes as
much memory as a conversation of its length."""

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

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.stream:
            raise ValueError("an edit is not streamed: leave stream out")
        return self


class InfillRequest(SamplingFields):
    """The body of `/infill`. Fields that only tune llama.cpp's own caches and samplers are ignored."""

    model_config = ConfigDict(extra="ignore")

    input_prefix: str
    input_suffix: str = ""
    prompt: str = ""
    input_extra: list[dict[str, Any]] | None = None
    n_predict: int | None = None
    n_indent: int | None = Field(None, ge=0)
    t_max_predict_ms: float | None = None


class CodeCompletions(TextEndpoint):
    """Answers requests of editors."""

    def __init__(self, engine: Engine, model: str, limit: RequestLimit) -> None:
        super().__init__(engine, model, limit)
        self._idle: list[tuple[str, FillIn]] = []

    async def forget(self, key: str) -> None:
        """Forget what an API key's requests have read."""
        self._idle = [(owner, filler) for owner, filler in self._idle if owner != key]

    async def fim(self, request: Request) -> Response:
        """Fill in the middle. Raises APIError, ClientDisconnect."""
        body = await self._read(request, FIMRequest)
        envelope = self._envelope("text_completion", "cmpl")
        found = self._fill_in(request, body, body.prompt, body.suffix, body.max_tokens or FIM_TOKENS)
        if not body.stream:
            whole = await unless_disconnected(request, collect(found))
            return JSONResponse({**envelope, "choices": [_text_choice(whole)], "usage": whole.usage.body()})

        async def events() -> AsyncIterator[str]:
            usage = TokenUsage()
            async for update in found:
                usage = update.usage
                if update.text or update.finish_reason:
                    yield event({**envelope, "choices": [_text_choice(update)]})
            if body.stream_options and body.stream_options.include_usage:
                yield event({**envelope, "choices": [], "usage": usage.body()})
            yield DONE

        return await event_stream(request, events())

    async def infill(self, request: Request) -> Response:
        """Fill in the middle, in llama.cpp's format. Raises APIError, ClientDisconnect."""
        body = await read_json(request, InfillRequest)
        files = [(str(chunk.get("filename", "")), str(chunk.get("text", ""))) for chunk in body.input_extra or ()]
        limit = body.n_predict if body.n_predict is not None and body.n_predict >= 0 else body.max_tokens
        before = body.input_prefix + body.prompt
        found = self._fill_in(
            request, body, before, body.input_suffix, max(1, limit) if limit is not None else None, files
        )
        if limit == 0:  # the editor only wants its files to be read
            found = (replace(update, text="") async for update in found)
        else:
            found = until_end(found, SuggestionEnd(body.n_indent or 0, max(0.0, body.t_max_predict_ms or 0.0) / 1000))

        def described(part: Update | Choice) -> dict[str, Any]:
            usage, finish = part.usage, part.finish_reason
            return {
                "content": part.text,
                "stop": finish is not None,
                "stop_type": {None: "none", "length": "limit"}.get(finish, "eos"),
                "model": self._model,
                "tokens_predicted": usage.completion_tokens,
                "tokens_evaluated": usage.prompt_tokens,
                "tokens_cached": usage.cached_tokens,
            }

        if not body.stream:
            return JSONResponse(described(await unless_disconnected(request, collect(found))))

        async def events() -> AsyncIterator[str]:
            async for update in found:
                if update.text or update.finish_reason:
                    yield event(described(update))

        return await event_stream(request, events())

    async def edit(self, request: Request) -> Response:
        """The next edit of a file. Raises APIError, ClientDisconnect."""
        body = await self._read(request, EditRequest)
        messages = [Message("system", _EDIT_INSTRUCTIONS), *(Message(m.role, m.text) for m in body.messages)]
        (sampling,) = samplings(body, self._engine.sampling)
        ask = Ask(messages, max_tokens=body.max_tokens or EDIT_TOKENS, sampling=sampling, stop=body.stop_sequences)
        with self._limit.slot():
            found = generate(new_conversation(self._engine).reply(ask), ask.stop)
            whole = await unless_disconnected(request, collect(found))
        message = {"role": "assistant", "content": whole.text}
        choice = {"index": 0, "message": message, "finish_reason": whole.finish_reason}
        envelope = self._envelope("edit.completion", "edit")
        return JSONResponse({**envelope, "choices": [choice], "usage": whole.usage.body()})

    async def _fill_in(
        self,
        request: Request,
        body: SamplingFields,
        before: str,
        after: str,
        max_tokens: int | None,
        files: Sequence[tuple[str, str]] = (),
    ) -> AsyncIterator[Update]:
        (sampling,) = samplings(body, self._engine.sampling)
        with self._limit.slot(), api_errors(), self._filler(key_name(request.state.key)) as filler:
            found = filler.fill_in(before, after, files=files, max_tokens=max_tokens, sampling=sampling)
            async for update in generate(found, body.stop_sequences):
                yield update

    @contextmanager
    def _filler(self, owner: str) -> Iterator[FillIn]:
        """What has read the newest request of a key, unless another request uses it."""
        mine = [entry for entry in self._idle if entry[0] == owner][-1:]
        self._idle = [entry for entry in self._idle if entry not in mine]
        filler = mine[0][1] if mine else FillIn(self._engine, background=True)
        try:
            yield filler
        finally:
            self._idle = [*self._idle, (owner, filler)][-_MAX_IDLE:]


def _text_choice(part: Update | Choice) -> dict[str, Any]:
    return {"index": 0, "text": part.text, "finish_reason": part.finish_reason, "logprobs": None}

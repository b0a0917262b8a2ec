"""One conversation with the engine: it keeps the cache of what it has read, and generates responses.

Each request is a generator of forward passes. The engine's thread runs it; its output is delivered on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from chat.progress import Progress
from chat.types import Ask, Message, Tool, ToolChoice, Truncation
from model.checkpoint.chat_template import with_noted_outputs
from model.decode.constraint import Constraint
from model.decode.decoding import generate
from model.decode.diffusion import DiffusionDecoder, prefill_length
from model.decode.effort import DenoisingSchedule, schedule_for_effort
from model.decode.grammar import Grammar
from model.decode.output import GenerationOutput
from model.decode.prediction import Prediction
from model.decode.sampling import Sampler, Sampling
from model.decode.speculative import DraftSettings, SpeculativeDecoder
from model.decode.tool_calls import declaration
from model.engine.engine import Engine
from model.engine.request_opening import with_opening
from model.engine.response_form import ResponseForm, check_tools, response_form
from model.engine.scheduler import Request, RequestSteps
from model.engine.truncation import (
    Dropped,
    num_characters,
    num_droppable,
    num_dropped_unread,
    num_instructions,
    num_to_drop,
    without_oldest,
)
from model.engine.turn_completion_reader import TurnCompletionReader
from model.nn.forward_batch import prefill, prefill_chunk
from model.nn.kv_cache import KeyValueCache

T = TypeVar("T")

_log = logging.getLogger("rejoinder.model")

_MAX_STEPS_WITH_ADAPTER = 4
"""Maximum steps of a block with an adapter that we trained: more steps do not improve it
(docs/benchmarks/language-model.md)."""


class PromptTooLong(ValueError):
    """What must be read does not fit into the context."""


@dataclass(frozen=True)
class ResponseOptions:
    """How one request is responded to.

    Attributes:
        schedule: how its blocks are denoised.
        stop_tokens: end the response besides the model's own.
        encoded: token ids of the prompt and the maximum length of the response; None to encode the messages.
    """

    schedule: DenoisingSchedule
    form: ResponseForm
    stop_tokens: frozenset[int] = frozenset()
    encoded: tuple[list[int], int] | None = None


class Conversation:
    """One conversation. It keeps its key-value cache, so that each turn reads only new tokens.

    At most one request runs at a time; a new request cancels the active one.

    Args:
        drafting: whether tokens are drafted.
        background: requests of other conversations come first: nobody listens to this one.
        bulk: nobody waits for it either: it uses the time that nobody else needs.
        keep_all_messages: a conversation that does not fit is an error; otherwise its oldest messages are dropped.
        keep_instructions: what has been read of its instructions and tools is kept on disk. They are the operator's.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        drafting: bool = True,
        background: bool = False,
        bulk: bool = False,
        keep_all_messages: bool = False,
        keep_instructions: bool = False,
    ) -> None:
        self._engine, self._drafting, self._keep_instructions = engine, drafting, keep_instructions
        self._background, self._bulk = background or bulk, bulk
        self._truncation = Truncation(keep_all_messages)
        self._cache = engine.new_cache()
        self._forked_from: KeyValueCache | None = None
        self._request: Request | None = None
        self._dropped = Dropped()
        self._encoded_instructions: tuple[Sequence[Message], Sequence[Mapping[str, Any]], list[int]] = ([], [], [])
        self._turn_completion = TurnCompletionReader(engine)

    async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
        """Respond to the conversation so far. Yields progress after every step.

        Leaving the iterator early cancels the response. When the conversation has outgrown the context, its oldest
        messages are dropped, unless all are to be kept; the instructions and the newest message never are. A deadline
        gives blocks fewer steps until a clause is ready, and effort says how confident their tokens must be. Where
        drafts are verified, effort only bounds the drafter's steps: the text is always the model's own.

        Args:
            ask: with tools and the choice `auto`, the likelihood of its first token decides whether it is a call.

        Raises:
            InvalidGrammar: the grammar, or a tool's parameters, cannot be enforced.
            PromptTooLong: the newest message does not fit, or, if all are to be kept, not all of them do.
            ValueError: the template refuses the conversation, `max_tokens`, `max_steps` or a token of `logit_bias` is
                out of range, or a model that denoises blocks is asked for log probabilities, a bias or penalties.
            RuntimeError: the request failed, or the engine was closed.
        """
        messages, tools = ask.messages, ask.tools
        if ask.top_log_probabilities is not None and self._engine.diffusion is not None:
            raise ValueError("a model that denoises blocks has no log probabilities of tokens: ask without logprobs")
        self._check_bias(ask.sampling)
        if ask.max_tokens is not None and ask.max_tokens < 1:
            raise ValueError(f"max_tokens is {ask.max_tokens} and must be 1 or more")
        schedule = default = self._engine.denoising_schedule
        if ask.effort is not None:
            limit = default.limit if ask.max_steps is None else ask.max_steps
            schedule = schedule_for_effort(ask.effort, limit, default.rule, default.in_flight, default.edit)
        elif ask.max_steps is not None:
            schedule = default.limited(ask.max_steps)
        form = ResponseForm()
        if tools or ask.grammar is not None or ask.tool_choice not in ("auto", "none"):
            form = await asyncio.to_thread(response_form, self._engine.model, ask)
        if ask.tool_choice in ("auto", "none") and self._engine.diffusion is None:
            form = with_opening(self._engine.model, form, ask)
        declarations = self._declarations(messages, tools, ask.tool_choice)
        # Encoding a long prompt takes longer than a speaker should wait, so it is not done on the engine's thread.
        encoded = (
            await asyncio.to_thread(self._encode, list(messages), declarations, True) if self._background else None
        )
        asked = replace(ask, messages=list(messages))  # whoever asked may add to them while the response is generated
        responding = self._respond(asked, declarations, ResponseOptions(schedule, form, encoded=encoded))
        async with aclosing(responding):  # type: ignore[type-var]
            async for progress in responding:
                yield progress

    def _check_bias(self, sampling: Sampling | None) -> None:
        """Raise ValueError if the model cannot bias the logits of its tokens as a request asks for."""
        if sampling is None or not sampling.biased:
            return
        if self._engine.diffusion is not None:
            raise ValueError("a model that denoises blocks has no logit_bias and no penalties: ask without them")
        size = self._engine.model.decoder.config.vocab_size
        if unknown := [token for token in sampling.logit_bias if not 0 <= token < size]:
            raise ValueError(f"logit_bias names the token {unknown[0]}, and this model has the tokens 0 to {size - 1}")

    async def _respond(
        self, ask: Ask, tools: Sequence[Mapping[str, Any]], options: ResponseOptions
    ) -> AsyncIterator[Progress]:
        """Submit a request, and yield its progress."""
        loop = asyncio.get_running_loop()
        output: asyncio.Queue[Progress | Exception | None] = asyncio.Queue()

        def deliver(item: Progress | Exception | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(output.put_nowait, item)

        request = self._submit(self._steps(ask, tools, options, deliver), deliver, lambda: deliver(None))
        try:
            while (item := await output.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            request.cancelled.set()

    def check_tools(self, tools: Sequence[Tool]) -> None:
        """Check that calls of these tools can be enforced. The first time in a process it takes about a second.

        Raises:
            InvalidGrammar: one cannot; the path begins with `tools[n]`.
        """
        check_tools(self._engine.model, tools)

    def check_grammar(self, grammar: Grammar) -> None:
        """Check that responses can be held to this grammar. The first time in a process it takes about a second.

        Raises:
            InvalidGrammar: they cannot; the path is a place in the grammar.
        """
        self._engine.model.grammars.compile(grammar)

    def prepare(self, ask: Ask) -> None:
        """Read the prompt while the user is still speaking, so that `reply` and `turn_completion` need not. Returns at
        once. Tools are part of the prompt, so they must be the ones that `reply` gets.

        If the conversation does not fit, or the template refuses it, `reply` reports that later.
        """
        messages, declarations = ask.messages, self._declarations(ask.messages, ask.tools, ask.tool_choice)

        def steps() -> RequestSteps:
            ids, _ = self._encode(list(messages), declarations, False)
            diffusion = self._engine.diffusion
            length = len(ids) if diffusion is None else prefill_length(diffusion, ids)
            ids = ids[: min(length, self._engine.context)]
            self._truncate_to(ids)
            yield from self._read_instructions(messages, declarations, ids)
            yield from self._read(ids)

        self._submit(steps(), lambda error: _log.debug("reading ahead failed (%s)", type(error).__name__), lambda: None)
        if messages and messages[-1].role == "user":
            self._turn_completion.prepare(messages[-1].content)

    async def turn_completion(self, text: str) -> float | None:
        """The probability (0 to 1) that `text`, what the user has said so far, is a complete turn. It depends on the
        last 40 words only, and not on punctuation. This neither cancels nor delays the active request.

        Returns None if it is unknown: no classifier was trained for these weights, the forward pass failed, or a newer
        call replaced this one.
        """
        return await self._turn_completion.probability(text)

    @property
    def recognizes_tasks(self) -> bool:
        """Whether `Ask.task` has an effect: these weights were trained to tell tasks from talk, and to write
        programs for them."""
        model = self._engine.model
        trained = model.request_classifier is not None and model.program_prefix is not None
        return trained and self._engine.diffusion is None

    def pause(self, seconds: float) -> None:
        """Pause the active request for this long; 0 resumes it at once."""
        if self._request is not None:
            self._engine.pause(self._request, seconds)

    def cancel(self) -> None:
        """Drop the active request. Takes effect between two forward passes and leaves the cache usable."""
        if self._request is not None:
            self._request.cancelled.set()

    def limit_context(self, truncation: Truncation) -> None:
        """Choose what happens when the conversation outgrows the context, from the next request on."""
        self._truncation = truncation

    def fork(self) -> Conversation:
        """A conversation that starts with what this one has read by the time of the fork's first request. It is
        independent: dropping it leaves this one unchanged."""
        fork = Conversation(
            self._engine,
            drafting=self._drafting,
            background=self._background,
            bulk=self._bulk,
            keep_instructions=self._keep_instructions,
        )
        fork._forked_from = self._cache if self._forked_from is None else self._forked_from
        fork._dropped = self._dropped
        fork._truncation = self._truncation
        return fork

    def _submit(
        self, steps: RequestSteps, on_error: Callable[[Exception], None], on_done: Callable[[], None]
    ) -> Request:
        self.cancel()
        self._request = self._engine.submit(
            self._using_cache(steps), on_error, on_done, background=self._background, bulk=self._bulk
        )
        return self._request

    async def _result_of(self, steps: Generator[Any, Any, T], name: str) -> T:
        """What a request returns that generates nothing. Raises what its steps raise, and RuntimeError if the engine
        ends it before; `name` says what it was."""
        result: Future[T] = Future()
        result.set_running_or_notify_cancel()  # whoever stops waiting does not cancel it, so it can always be set

        def run() -> RequestSteps:
            result.set_result((yield from steps))

        def end() -> None:
            if not result.done():
                result.set_exception(RuntimeError(f"the {name} was cancelled"))

        request = self._submit(run(), result.set_exception, end)
        try:
            return await asyncio.wrap_future(result)
        finally:
            request.cancelled.set()

    def _using_cache(self, steps: RequestSteps) -> RequestSteps:
        """The same steps. While they run, the cache keeps what it holds."""
        if self._forked_from is not None:
            self._cache, self._forked_from = self._forked_from.fork(), None
        cache = self._cache
        cache.in_use = True
        try:
            yield from steps
        finally:
            cache.in_use = False

    def _steps(
        self,
        ask: Ask,
        tools: Sequence[Mapping[str, Any]],
        options: ResponseOptions,
        deliver: Callable[[Progress], None],
    ) -> RequestSteps:
        """Read the new part of the prompt, then decode until the response ends."""
        engine, messages = self._engine, list(ask.messages)
        ids, max_length = options.encoded or self._encode(messages, tools, True)
        budget = max_length if ask.max_tokens is None else min(max_length, ask.max_tokens)
        sampling = (ask.sampling or engine.sampling).varied(ask.variant)
        sampler = Sampler(sampling, sampling.generator(engine.model.decoder.device))
        diffusion = engine.diffusion
        # Verified drafts need the logits of the last token, so it is read again.
        start = len(ids) - 1 if diffusion is None else prefill_length(diffusion, ids)
        num_cached = self._truncate_to(ids[:start])

        num_committed, text = 0, ""

        def on_progress(progress: Progress) -> None:
            nonlocal num_committed, text
            if progress.tokens > num_committed:
                num_committed = progress.tokens
                engine.record_commit()
            deliver(progress := options.form.read(progress))
            text += progress.committed if ask.stop else ""

        output = GenerationOutput(
            engine.model.tokenizer,
            engine.model.stop_tokens | options.stop_tokens,
            budget,
            len(ids),
            num_cached,
            on_progress,
        )
        yield from self._read_instructions(messages, tools, ids[:start])
        if diffusion is None:  # the forward pass that generates the first token reads the rest
            chunk = prefill_chunk(self._cache.device)
            start = len(self._cache.tokens) + (start - len(self._cache.tokens)) // chunk * chunk
        yield from self._read(ids[:start])
        context = engine.model.decoder.config.context_length
        decoding: SpeculativeDecoder | DiffusionDecoder
        if diffusion is None:
            decoding = SpeculativeDecoder(
                self._cache,
                ids,
                partial(self._draft_settings, options.form.constraint, options.schedule.draft_steps),
                sampler,
                context,
                engine.draft_length,
                engine.attach(drafting=self._drafting),
                options.form.constraint,
                ask.top_log_probabilities,
                engine.model.draft_head if self._drafting else None,
                engine.model.stop_tokens | options.stop_tokens,
                self._prediction(ask.prediction),
            )
        else:
            # A diffusion model's own adapter is for drafting, not for its denoising.
            gated = engine.model.adapter is not None and engine.model.decoder.config.diffusion is None
            schedule = options.schedule if diffusion.corrects else replace(options.schedule, remask=None)
            if gated:
                schedule = replace(schedule, max_steps=min(schedule.max_steps, _MAX_STEPS_WITH_ADAPTER))
            decoding = DiffusionDecoder(
                self._cache,
                ids,
                diffusion,
                schedule,
                sampler,
                output,
                context,
                gated=gated,
                deadline=ask.deadline,
                constraint=options.form.constraint,
            )
        yield from generate(decoding, output, lambda: engine.is_wanted and not any(one in text for one in ask.stop))

    def _prediction(self, text: str) -> Prediction | None:
        """What drafts a response that will resemble a text."""
        if not (text and self._drafting):
            return None
        tokenizer = self._engine.model.tokenizer
        return Prediction(tokenizer.encode(text), lambda token: tokenizer.decode([token]).strip().lower() or token)

    def _instruction_tokens(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], ids: list[int]
    ) -> int:
        """How many of the first tokens are instructions and tools, which other conversations may share."""
        instructions = list(messages[: num_instructions(messages)])
        if not (tools or instructions):
            return 0
        instructions.append(Message("user", ""))  # how a question begins is the same for all, too
        if (instructions, tools) != self._encoded_instructions[:2]:
            try:
                prefix = self._engine.model.template.encode(instructions, tools=tools, add_generation_prompt=False)
            except ValueError:
                return 0  # some templates refuse a conversation without a user message
            self._encoded_instructions = instructions, tools, prefix
        *_, prefix = self._encoded_instructions
        pairs = zip(prefix, ids, strict=False)
        count = next((n for n, (one, other) in enumerate(pairs) if one != other), len(prefix))
        return min(count, len(ids)) // self._engine.block_size * self._engine.block_size

    def _draft_settings(self, constraint: Constraint | None, max_steps: int) -> DraftSettings:
        constrained = constraint is not None and constraint.active
        settings = self._engine.drafting(constrained=constrained, max_steps=max_steps)
        return settings if self._drafting else DraftSettings()

    def _truncate_to(self, ids: list[int]) -> int:
        """Truncate the cache to what it has in common with `ids`; returns how many tokens remain. With block attention
        the keys are valid for whole blocks only."""
        self._engine.prefix_cache.fill(self._cache, ids)
        common = self._cache.truncate_to_common_prefix(ids)
        if self._engine.attention == "block":
            self._cache.truncate(common // self._engine.block_size * self._engine.block_size)
        return len(self._cache.tokens)

    def _read_instructions(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], ids: list[int]
    ) -> RequestSteps:
        """Read instructions and tools that the cache does not hold yet, and share them. They are read in forward passes
        of their own, so that the result is the same whether they were read here or copied from the prefix cache."""
        count = self._instruction_tokens(messages, tools, ids)
        if len(self._cache.tokens) < count:
            yield from self._read(ids[:count])
        self._engine.prefix_cache.add(self._cache, count, keep=self._keep_instructions)

    def _read(self, ids: list[int]) -> RequestSteps:
        """Bring the cache to hold exactly `ids`, one chunk per forward pass. Copies what other conversations have read
        of them in the meantime."""
        self._truncate_to(ids)
        engine, cache = self._engine, self._cache
        yield from prefill(
            cache, ids, engine.attention, engine.block_size, lambda: engine.prefix_cache.fill(cache, ids)
        )

    def _encode(
        self, messages: list[Message], tools: Sequence[Mapping[str, Any]], add_generation_prompt: bool
    ) -> tuple[list[int], int]:
        """Token ids of the prompt, and how many tokens the context leaves for a response. Messages that were dropped
        from one prompt stay dropped from the next, so that the cache can be reused."""
        engine, truncation = self._engine, self._truncation
        longest = engine.model.tokenizer.longest_token if truncation.keep_all else 0
        if truncation.keep_all and num_characters(messages) > engine.context * longest:
            raise PromptTooLong(f"the conversation has {num_characters(messages)} characters, and the context "
                                f"holds {engine.context} tokens: shorten it")  # fmt: skip
        dropped = self._dropped.count(messages, truncation)
        if not truncation.keep_all:
            dropped = num_dropped_unread(messages, dropped, engine.context)
        while True:
            remaining = without_oldest(messages, dropped)
            read = with_noted_outputs(remaining) if engine.model.notes_outputs else remaining
            ids = engine.model.template.encode(read, tools=tools, add_generation_prompt=add_generation_prompt)
            self._dropped = Dropped.oldest(messages, dropped, truncation)
            free = engine.context - len(ids)
            enough = free >= engine.context // 8  # for a response of some length
            if enough and not self._exceeds_limit(remaining, tools, ids):
                return ids, free
            if truncation.keep_all or dropped == num_droppable(messages):
                if free > 0:
                    return ids, free
                if truncation.keep_all:
                    raise PromptTooLong(f"the conversation needs {len(ids)} tokens, and the context holds "
                                        f"{engine.context}: shorten it")  # fmt: skip
                raise PromptTooLong(
                    f"the conversation's newest message needs {len(ids)} tokens with the instructions, and the "
                    f"context holds {engine.context}: shorten the message or the instructions"
                )
            dropped = num_to_drop(messages, dropped, truncation.retention_ratio)
            _log.info(
                "a conversation has outgrown %d tokens: its oldest %d messages are dropped", engine.context, dropped
            )

    def _exceeds_limit(self, messages: list[Message], tools: Sequence[Mapping[str, Any]], ids: list[int]) -> bool:
        """Whether the messages after the instructions have more tokens than the client wants."""
        most = self._truncation.max_tokens
        return most is not None and len(ids) - self._instruction_tokens(messages, tools, ids) > most

    def _declarations(
        self, messages: Sequence[Message], tools: Sequence[Tool], tool_choice: ToolChoice
    ) -> list[Mapping[str, Any]]:
        """What the prompt says about tools. Nothing if none may be called: a small model would write a call as its
        text. It does not where its outputs are notes, and what follows a call then begins with the same prompt."""
        follows_call = bool(messages) and (messages[-1].role == "tool" or bool(messages[-1].tool_calls))
        if tool_choice == "none" and not (follows_call and self._engine.model.notes_outputs):
            return []
        return [declaration(tool) for tool in tools]

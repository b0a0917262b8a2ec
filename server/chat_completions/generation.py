"""Generates the text of one choice, on the engine that the voice conversations use. Spoken responses come first."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from chat.progress import Progress, ScoredToken
from chat.types import ToolCallDelta
from model.decode.grammar import InvalidGrammar
from model.engine.conversation import Conversation, PromptTooLong
from model.engine.engine import Engine
from server.access.usage import Usage, current_meter
from server.api_errors import APIError
from server.chat_completions.logprobs import ScoredText
from voice.clauses import ClauseSplitter


@dataclass(frozen=True)
class TokenUsage:
    """What a choice took.

    Attributes:
        forward_passes: steps of the response, without those that read the prompt.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    forward_passes: int = 0

    def body(self) -> dict[str, Any]:
        """The `usage` object. `rejoinder` is an extension."""
        passes = self.forward_passes
        generated = self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self.prompt_tokens + generated,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            "rejoinder": {
                "forward_passes": passes,
                "tokens_per_forward": round(generated / passes, 3) if passes else None,
            },
        }

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """The usage of two choices of one prompt, which counts once."""
        return TokenUsage(
            max(self.prompt_tokens, other.prompt_tokens),
            max(self.cached_tokens, other.cached_tokens),
            self.completion_tokens + other.completion_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.forward_passes + other.forward_passes,
        )


@dataclass(frozen=True)
class Update:
    """What one step changed.

    Attributes:
        text: new text of the answer.
        draft: text that may follow and may still change.
        tool_calls: new pieces of function calls.
        finish_reason: in the last update only.
        scores: of the tokens of `text`, if log probabilities were asked for.
    """

    text: str
    draft: str
    tool_calls: Sequence[ToolCallDelta]
    finish_reason: str | None
    usage: TokenUsage
    scores: Sequence[ScoredToken] = ()

    def after(self, earlier: TokenUsage) -> Update:
        """This update, with the tokens and passes of what was generated before."""
        return replace(self, usage=self.usage + earlier)


@dataclass
class CollectedCall:
    """A function call, collected from its pieces.

    Attributes:
        announced: a client that streams was told its id and name.
    """

    name: str
    arguments: str = ""
    done: bool = False
    announced: bool = False
    id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}")


@dataclass
class Choice:
    """One choice, collected from its updates. `scores`, `finish_reason` and `usage` are as in `Update`."""

    text: str = ""
    scores: list[ScoredToken] = field(default_factory=list)
    calls: list[CollectedCall] = field(default_factory=list)
    finish_reason: str | None = None
    usage: TokenUsage = field(default_factory=TokenUsage)

    def add(self, update: Update) -> None:
        """Add an update."""
        self.text += update.text
        self.scores += update.scores
        self.finish_reason, self.usage = update.finish_reason, update.usage
        for piece in update.tool_calls:
            if piece.index == len(self.calls):
                self.calls.append(CollectedCall(piece.name))
            call = self.calls[piece.index]
            call.arguments += piece.arguments
            call.done = call.done or piece.done


async def collect(updates: AsyncIterator[Update]) -> Choice:
    """The whole choice."""
    choice = Choice()
    async for update in updates:
        choice.add(update)
    return choice


async def generate(all_progress: AsyncIterator[Progress], stop_sequences: Sequence[str] = ()) -> AsyncIterator[Update]:
    """What each step of a choice changed, up to the first stop sequence. Leaving the iterator early cancels the choice.
    What it took is counted for the key of the request.

    Raises:
        APIError: the prompt is too long, the chat template refuses it, or the request failed.
    """
    usage, stop, scored = TokenUsage(), StopSequences(stop_sequences), ScoredText()
    try:
        with api_errors():
            async with aclosing(all_progress):  # type: ignore[type-var]
                async for progress in all_progress:
                    text = stop.push(progress.committed, last=progress.finished is not None)
                    usage = TokenUsage(
                        progress.prompt_tokens, progress.cached_tokens, progress.tokens, forward_passes=progress.step
                    )
                    finish = "stop" if stop.stopped else progress.finished
                    calls = progress.tool_calls
                    scores = scored.push(progress.scores, text, finished=finish is not None, in_call=bool(calls))
                    yield Update(text, "" if finish else progress.draft, calls, finish, usage, scores)
                    if stop.stopped:
                        return
    finally:
        count(usage)


def count(usage: TokenUsage) -> None:
    """Count a choice, or texts that were only read, for the key of the request."""
    meter, read = current_meter.get(), usage.prompt_tokens
    if meter is not None and read:
        generated, cached = usage.completion_tokens, usage.cached_tokens
        meter.add(Usage(completions=1, input_tokens=read, cached_tokens=cached, output_tokens=generated))


async def speakable_updates(updates: AsyncIterator[Update]) -> AsyncIterator[Update]:
    """The same answer clause by clause, in words that a voice can pronounce, as our own gets them. It has no draft."""
    splitter, begun = ClauseSplitter(), False
    async with aclosing(updates):  # type: ignore[type-var]
        async for update in updates:
            clauses = splitter.push(update.text)
            if update.finish_reason is not None:
                clauses += splitter.flush()
            words = " ".join(spoken for clause in clauses if (spoken := clause.spoken()))
            text = f" {words}" if words and begun else words
            begun = begun or bool(words)
            yield replace(update, text=text, draft="", scores=())


@contextmanager
def api_errors() -> Iterator[None]:
    """Turns errors of the engine into `APIError`."""
    try:
        yield
    except PromptTooLong as error:
        raise APIError(400, str(error), "messages", "context_length_exceeded") from None
    except ValueError as error:
        raise APIError(400, str(error), _param(error), "invalid_value") from None
    except RuntimeError as error:
        raise APIError(500, str(error)) from error


def _param(error: ValueError) -> str | None:
    """The field that an error is about, if it is a place in a tool's parameters."""
    return error.path if isinstance(error, InvalidGrammar) and error.path.startswith("tools[") else None


in_bulk: ContextVar[bool] = ContextVar("in_bulk", default=False)
"""Whether the request that is being handled belongs to a batch: all others come first. Tasks inherit it."""


def new_conversation(engine: Engine, *, keep_all_messages: bool = True) -> Conversation:
    """The conversation of one request, which yields to spoken ones."""
    return Conversation(engine, background=True, bulk=in_bulk.get(), keep_all_messages=keep_all_messages)


class StopSequences:
    """Passes a growing text on as far as no stop sequence can begin in it.

    Attributes:
        stopped: whether a stop sequence was found. What follows it is dropped.
    """

    def __init__(self, sequences: Sequence[str]) -> None:
        self.stopped = False
        self._sequences, self._held = tuple(sequences), ""

    def push(self, text: str, *, last: bool = False) -> str:
        """Add text; returns what is now certain to belong to the result.

        Args:
            last: nothing follows, so nothing is held back.
        """
        if self.stopped:
            return ""
        self._held += text
        found = [start for sequence in self._sequences if (start := self._held.find(sequence)) >= 0]
        if found:
            self.stopped = True
            end = min(found)
        else:
            end = len(self._held) - (0 if last else self._possible_start())
        out, self._held = self._held[:end], self._held[end:]
        return out

    def _possible_start(self) -> int:
        """Length of the longest end of the text that may become a stop sequence."""
        return max(
            (
                length
                for sequence in self._sequences
                for length in range(1, min(len(sequence), len(self._held) + 1))
                if self._held.endswith(sequence[:length])
            ),
            default=0,
        )

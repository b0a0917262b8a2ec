"""Generates the text of one choice, on the engine that the voice conversations use. Spoken responses come first."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from chat.progress import Progress
from chat.types import Ask, ToolCallDelta
from model.decode.grammar import InvalidGrammar
from model.engine.conversation import Conversation, PromptTooLong
from model.engine.engine import Engine
from server.access.usage import Usage, current_meter
from server.chat_completions.errors import APIError
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

    @staticmethod
    def of(progress: Progress) -> TokenUsage:
        """What a choice has taken so far."""
        return TokenUsage(progress.prompt_tokens, progress.cached_tokens, progress.tokens, forward_passes=progress.step)

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


def collect_calls(calls: list[CollectedCall], pieces: Sequence[ToolCallDelta]) -> None:
    """Add new pieces to the calls so far."""
    for piece in pieces:
        if piece.index == len(calls):
            calls.append(CollectedCall(piece.name))
        call = calls[piece.index]
        call.arguments += piece.arguments
        call.done = call.done or piece.done


async def generate(conversation: Conversation, ask: Ask) -> AsyncIterator[Progress]:
    """Generate one choice, and count it for the key of the request; its text ends before the first of `ask.stop`.
    Leaving the iterator early cancels it.

    Raises:
        APIError: the prompt is too long, the chat template refuses it, or the request failed.
    """
    progress = Progress()
    try:
        with api_errors():
            async with aclosing(until_stop(conversation.reply(ask), ask.stop)) as all_progress:
                async for progress in all_progress:
                    yield progress
    finally:
        meter, read = current_meter.get(), progress.prompt_tokens
        if meter is not None and read:
            generated, cached = progress.tokens, progress.cached_tokens
            meter.add(Usage(completions=1, input_tokens=read, cached_tokens=cached, output_tokens=generated))


async def until_stop(all_progress: AsyncIterator[Progress], stop_sequences: Sequence[str]) -> AsyncGenerator[Progress]:
    """The progress of a response up to the first stop sequence. Its scores are those of its text only."""
    stop, scored = StopSequences(stop_sequences), ScoredText()
    async with aclosing(all_progress):  # type: ignore[type-var]
        async for progress in all_progress:
            text = stop.push(progress.committed, last=progress.finished is not None)
            if stop.stopped:
                progress = replace(progress, finished="stop")
            over = progress.finished is not None
            scores = scored.push(progress.scores, text, finished=over, in_call=bool(progress.tool_calls))
            yield replace(progress, committed=text, draft="" if over else progress.draft, scores=scores)
            if stop.stopped:
                return


async def speakable(all_progress: AsyncIterator[Progress]) -> AsyncIterator[Progress]:
    """The same answer clause by clause, in words that a voice can pronounce, as our own gets them. It has no draft."""
    splitter, begun = ClauseSplitter(), False
    async with aclosing(all_progress):  # type: ignore[type-var]
        async for progress in all_progress:
            clauses = splitter.push(progress.committed)
            if progress.finished is not None:
                clauses += splitter.flush()
            words = " ".join(spoken for clause in clauses if (spoken := clause.spoken()))
            text = f" {words}" if words and begun else words
            begun = begun or bool(words)
            yield progress.with_text(text)


@contextmanager
def api_errors() -> Iterator[None]:
    """Turns errors of the engine into `APIError`."""
    try:
        yield
    except PromptTooLong as error:
        raise APIError(400, str(error), "messages", "context_length_exceeded") from None
    except ValueError as error:
        path = error.path if isinstance(error, InvalidGrammar) else ""
        raise APIError(400, str(error), path if path.startswith("tools[") else None, "invalid_value") from None
    except RuntimeError as error:
        raise APIError(500, str(error)) from error


def new_conversation(engine: Engine, *, keep_all_messages: bool = True) -> Conversation:
    """The conversation of one request, which yields to spoken ones."""
    return Conversation(engine, background=True, keep_all_messages=keep_all_messages)


class StopSequences:
    """Passes a growing text on as far as no stop sequence can begin in it.

    Attributes:
        stopped: whether a stop sequence was found. Nothing may follow.
    """

    def __init__(self, sequences: Sequence[str]) -> None:
        self.stopped = False
        self._sequences, self._held = tuple(sequences), ""

    def push(self, text: str, *, last: bool = False) -> str:
        """Add text; returns what is now certain to belong to the result.

        Args:
            last: nothing follows, so nothing is held back.
        """
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

"""A model's responses together with the states that predicted each of their tokens: what a draft head is trained on.

The states cost nothing extra, because generating a token computes them. They are large (9 kB a token of the 1.5B), so
they are written in shards. A shard depends only on the seed and the questions, so an interrupted run continues with the
next one.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from pathlib import Path

import torch
from torch import Tensor

from chat.types import Message
from lab.convert import prompts
from lab.convert.corpus import KINDS, is_looping
from lab.convert.spoken_prompts import SpokenPrompt, follow_up, spoken_prompts
from lab.convert.tool_prompts import as_read, looks_like_call
from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.decode.sampling import Sampling
from model.engine.loader import LoadedModel
from model.nn.forward_batch import ForwardInput, text_input
from model.nn.kv_cache import KeyValueCache

_CONVERSATIONS = 24
"""Conversations at a time. More rows of a forward pass cost as much each, on a CPU."""

_SAMPLING, _SAMPLED_SHARE, _FOLLOW_UP_SHARE = Sampling(temperature=0.7, top_k=50), 0.25, 0.35
_INVENTING = Sampling(temperature=0.9, top_k=50)
_MAX_TOKENS = {"json": 120, "tool": 80, "list": 100, "program": 80}
"""Maximum tokens of a response, by kind; 72 for the others."""

_INVENTED_TOKENS = 140

_PROGRAM_SHARE = 0.3
"""Share of the responses that are programs, where there are prompts for them."""


@dataclass(frozen=True)
class StateShard:
    """Responses and states.

    Attributes:
        tokens: [n] int32, all responses one after the other, with their end tokens.
        features: [n, features] float16, of the row that predicted each token (`ForwardInput.on_features`).
        ends: [responses] where each response ends.
        kinds: [responses] indices of `KINDS`.
        prompts, prompt_ends: [m] int32 and [responses], what the model read before each response. With the tokens, they
            are enough to compute the features again.
    """

    tokens: Tensor
    features: Tensor
    ends: Tensor
    kinds: Tensor
    prompts: Tensor
    prompt_ends: Tensor

    def part(self, begin: int, end: int) -> StateShard:
        """Some of the responses."""
        tokens, prompts = ([0, *ends.tolist()] for ends in (self.ends, self.prompt_ends))
        return StateShard(
            self.tokens[tokens[begin] : tokens[end]],
            self.features[tokens[begin] : tokens[end]],
            self.ends[begin:end] - tokens[begin],
            self.kinds[begin:end],
            self.prompts[prompts[begin] : prompts[end]],
            self.prompt_ends[begin:end] - prompts[begin],
        )

    @staticmethod
    def joined(shards: Sequence[StateShard]) -> StateShard:
        """One shard of all responses."""
        parts = {name: torch.cat([getattr(shard, name) for shard in shards]) for name in vars(shards[0])}
        counts = torch.tensor([len(shard.ends) for shard in shards])
        for ends, tokens in (("ends", "tokens"), ("prompt_ends", "prompts")):
            lengths = torch.tensor([len(getattr(shard, tokens)) for shard in shards])
            parts[ends] += (lengths.cumsum(0) - lengths).repeat_interleave(counts)
        return StateShard(**parts)


@dataclass
class Response:
    """A response, as far as it is generated, and what the model read before it."""

    prompt: SpokenPrompt
    read: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)


@dataclass
class _Generation:
    """How a response goes on: greedily if it has no sampling."""

    response: Response
    cache: KeyValueCache
    unread: list[int]
    sampling: Sampling | None
    max_tokens: int

    def next_input(self) -> ForwardInput:
        rows = text_input(self.cache, self.unread, 1)
        return replace(rows, on_features=lambda features: self.response.features.append(features[0].half()))


def invent_questions(
    model: LoadedModel,
    seed: int,
    topics: Sequence[str] = prompts.TOPICS,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[tuple[str, str]]:
    """What people may ask about some topics, as the model imagines it: (kind, question) pairs.

    Args:
        on_progress: called with the number of lists of questions that are finished, and that there will be.
    """
    draw, kinds = random.Random(seed), ("chat", "list", "numbers")
    requests = [("chat", topic) for topic in topics] + [(draw.choice(kinds[1:]), topic) for topic in topics[::2]]
    asked = [
        SpokenPrompt(kind, (Message("user", prompts.QUESTIONS[kind].format(topic=topic)),)) for kind, topic in requests
    ]
    generator = ResponseGenerator(
        model, seed, follow_ups=0.0, sampled=1.0, sampling=_INVENTING, max_tokens=_INVENTED_TOKENS
    )
    lines: set[tuple[str, str]] = set()
    responses = islice(generator.run(chain(asked, repeat(asked[0]))), len(asked))
    for done, response in enumerate(responses, 1):
        for line in model.tokenizer.decode(response.tokens).split("\n")[:-1]:  # the last may be incomplete
            lines.add((response.prompt.kind, re.sub(r"^[\s\d.)\-*•]+|[\"“”`]", "", line).strip()))
        on_progress(done, len(asked))
    return sorted((kind, line) for kind, line in lines if 8 <= len(line) <= 200)


def generate_shard(
    model: LoadedModel,
    base: str,
    path: Path,
    instructions: str,
    seed: int,
    *,
    tokens: int,
    questions: Sequence[tuple[str, str]] = (),
    programs: Sequence[SpokenPrompt] = (),
    skip: Callable[[str], bool] = lambda text: False,
    on_progress: Callable[[int], None] = lambda done: None,
) -> StateShard:
    """Generate responses with at least `tokens` tokens, and write them to `path`.

    Args:
        base: sha256 of the model's weights.
        questions: what `invent_questions` returned.
        programs: prompts for programs.
        skip: whether a user message must not be asked, because the evaluation asks it.
    """
    new_prompts = (
        one
        for one in _with_programs(spoken_prompts(seed, instructions, questions), programs, seed)
        if not any(message.role == "user" and skip(message.content) for message in one.messages)
    )
    kept: list[Response] = []
    seen: dict[tuple[int, ...], int] = {}
    count = 0
    for response in ResponseGenerator(model, seed).run(new_prompts):
        key = tuple(response.tokens)
        if response.prompt.kind in ("no_tool", "result") and looks_like_call(model.tokenizer.decode(key)):
            continue
        seen[key] = seen.get(key, 0) + 1
        if len(key) > 3 and seen[key] <= 3 and not is_looping(key):
            kept.append(response)
            count += len(key)
            on_progress(count)
        if count >= tokens:
            break
    shard = StateShard(
        torch.tensor([token for one in kept for token in one.tokens], dtype=torch.int32),
        torch.stack([features for one in kept for features in one.features]),
        torch.tensor([len(one.tokens) for one in kept]).cumsum(0),
        torch.tensor([KINDS.index(one.prompt.kind) for one in kept]),
        torch.tensor([token for one in kept for token in one.read], dtype=torch.int32),
        torch.tensor([len(one.read) for one in kept]).cumsum(0),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save_bound_file(path, dict(vars(shard)), base, {"about": json.dumps({"seed": seed})})
    return shard


def load_shard(path: Path, base: str) -> StateShard:
    """Load a file that `generate_shard` wrote. Raises BadModelFile."""
    names = ("tokens", "features", "ends", "kinds", "prompts", "prompt_ends")
    stored, _ = load_bound_file(path, "states", "generate them again", base=base, names=names)
    return StateShard(*(stored[name] for name in names))


def _with_programs(
    new_prompts: Iterator[SpokenPrompt], programs: Sequence[SpokenPrompt], seed: int
) -> Iterator[SpokenPrompt]:
    draw = random.Random(seed)
    left = draw.sample(programs, len(programs))
    for one in new_prompts:
        while left and draw.random() < _PROGRAM_SHARE:
            yield left.pop()
        yield one


def beginning(model: LoadedModel, kind: str) -> KeyValueCache:
    """A cache for prompts of this kind. Those for programs begin with the trained prefix, if there is one."""
    cache, prefix = model.decoder.new_cache(), model.program_prefix
    if kind == "program" and prefix is not None:
        cache.load(prefix.tokens, prefix.keys, prefix.values)
    return cache


class ResponseGenerator:
    """Generates many responses at a time.

    Args:
        follow_ups: share of finished responses that are followed by another user message.
        sampled: share of responses that are sampled, with `sampling`.
        max_tokens: maximum tokens of every response; by kind when not given.
    """

    def __init__(
        self,
        model: LoadedModel,
        seed: int,
        *,
        follow_ups: float = _FOLLOW_UP_SHARE,
        sampled: float = _SAMPLED_SHARE,
        sampling: Sampling = _SAMPLING,
        max_tokens: int | None = None,
    ) -> None:
        self._model, self._draw = model, random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._follow_ups, self._sampled, self._sampling = follow_ups, sampled, sampling
        self._max_tokens = max_tokens
        self._instructions: dict[tuple[object, ...], KeyValueCache] = {}

    def run(self, new_prompts: Iterable[SpokenPrompt]) -> Iterator[Response]:
        """Responses as they finish."""
        prompts = iter(new_prompts)
        active = [self._start(prompt) for prompt in islice(prompts, _CONVERSATIONS)]
        while active:
            logits = self._model.decoder.run([one.next_input() for one in active])
            following = list[_Generation]()
            for one, row in zip(active, logits, strict=True):
                one.cache.commit(one.unread)
                token, response = self._choose(row[0], one.sampling), one.response
                response.tokens.append(token)
                one.unread = [token]
                if token not in self._model.stop_tokens and len(response.tokens) < one.max_tokens:
                    following.append(one)
                    continue
                if (prompt := self._next_prompt(response, prompts)) is not None:
                    following.append(self._start(prompt))
                yield response
            active = following

    def _choose(self, logits: Tensor, sampling: Sampling | None) -> int:
        """The next token. Only the likeliest are ever drawn, so only they are compared."""
        if sampling is None:
            return int(logits.argmax())
        best = logits.topk(sampling.top_k)
        drawn = torch.multinomial((best.values / sampling.temperature).softmax(0), 1, generator=self._generator)
        return int(best.indices[drawn])

    def _start(self, prompt: SpokenPrompt) -> _Generation:
        ids = self._model.template.encode(as_read(self._model, prompt.messages), tools=prompt.tools)
        key = (prompt.messages[0].content, *(tool["function"]["name"] for tool in prompt.tools))
        if key not in self._instructions:
            read = self._instructions[key] = beginning(self._model, prompt.kind)
            read.truncate_to_common_prefix(ids[:-1])
            self._model.decoder.forward(ids[len(read.tokens) : -1], read, logits="none")
        cache = self._instructions[key].fork()
        cache.truncate_to_common_prefix(ids[:-1])
        sampling = self._sampling if self._draw.random() < self._sampled else None
        max_tokens = self._max_tokens or _MAX_TOKENS.get(prompt.kind, 72)
        return _Generation(Response(prompt, ids), cache, ids[len(cache.tokens) :], sampling, max_tokens)

    def _next_prompt(self, response: Response, prompts: Iterator[SpokenPrompt]) -> SpokenPrompt | None:
        ended = response.tokens[-1] in self._model.stop_tokens
        first = len(response.prompt.messages) == 2 and response.prompt.kind != "program"
        if ended and first and not response.prompt.tools and self._draw.random() < self._follow_ups:
            text = self._model.tokenizer.decode(response.tokens[:-1])
            return follow_up(response.prompt, text, self._draw)
        return next(prompts, None)

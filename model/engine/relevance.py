"""How relevant passages are to a query: the language model says yes or no, and nothing is generated.

The prompts differ in their passages only. What they have in common is read once, and one forward pass scores several
passages, whose rows do not see each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from chat.types import Message
from model.engine.conversation import Conversation
from model.nn.attention import causal_mask
from model.nn.forward_batch import ForwardInput
from model.nn.kv_cache import KeyValueCache

MAX_PASSAGE_TOKENS = 512
"""Longer passages are cut."""

_MAX_ROWS = 256
"""Rows of a forward pass. One passage may have more. On a CPU with two cores they take the 0.5B about 200 ms, for which
other requests wait; a speaker interrupts them."""

_INSTRUCTIONS = "You judge whether a passage answers a query. Answer with yes or no."

_PROMPT = "Query: {query}\nPassage: {passage}\nDoes the passage answer the query?"

_YES, _NO = ("yes", "Yes"), ("no", "No")


@dataclass(frozen=True)
class RelevanceScores:
    """The result.

    Attributes:
        probabilities: of each passage: that of "yes" if the answer is yes or no.
        prompt_tokens, cached_tokens: read for all of them together, and what was in the cache already.
        forward_passes: that scored passages.
    """

    probabilities: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int
    forward_passes: int


class RelevanceScorer(Conversation):
    """Scores passages."""

    async def score(self, query: str, passages: Sequence[str], max_tokens: int = MAX_PASSAGE_TOKENS) -> RelevanceScores:
        """How relevant each passage is to the query, 0 to 1.

        Args:
            passages: at least one.
            max_tokens: of a passage; the rest is not read.

        Raises:
            PromptTooLong: the query does not fit.
            ValueError: the model denoises blocks.
            RuntimeError: the forward pass failed, or the engine was closed.
        """
        if self._engine.diffusion is not None:
            raise ValueError("a model that denoises blocks cannot score passages: choose the decoding `verified`")
        prompts, yes, no = await asyncio.to_thread(self._prompts, query, passages, max_tokens)
        shared = _num_shared(prompts)

        def steps() -> Generator[Any, Any, RelevanceScores]:
            num_cached = self._truncate_to(prompts[0][:shared])
            yield from self._read(prompts[0][:shared])
            rests, chances, passes = [ids[shared:] for ids in prompts], list[float](), 0
            for group in _groups(rests):
                logits: Tensor = yield branches_input(self._cache, group)
                chances += _share(logits, yes, no)
                passes += 1
            read = shared + sum(map(len, rests))
            return RelevanceScores(tuple(chances), read, num_cached, passes)

        return await self._result_of(steps(), "request")

    def _prompts(
        self, query: str, passages: Sequence[str], max_tokens: int
    ) -> tuple[list[list[int]], list[int], list[int]]:
        """The token ids of each prompt, and the first tokens of "yes" and of "no". Raises PromptTooLong."""
        tokenizer = self._engine.model.tokenizer
        prompts = []
        for passage in passages:
            ids = tokenizer.encode(passage[: max_tokens * 16])
            if len(ids) > max_tokens:
                passage = tokenizer.decode(ids[:max_tokens])
            question = _PROMPT.format(query=query, passage=passage)
            prompts.append(self._encode([Message("system", _INSTRUCTIONS), Message("user", question)], (), True)[0])
        yes, no = ([tokenizer.encode(word)[0] for word in words] for words in (_YES, _NO))
        return prompts, yes, no


def branches_input(cache: KeyValueCache, branches: Sequence[Sequence[int]]) -> ForwardInput:
    """The input of a forward pass over several continuations of what the cache holds, which do not see each other. Its
    outputs are the logits of the last token of each, in their order."""
    past = len(cache.tokens)
    heads = [list(branch[:-1]) for branch in branches]
    tokens = [token for head in heads for token in head] + [branch[-1] for branch in branches]
    positions = [past + n for head in heads for n in range(len(head))] + [past + len(head) for head in heads]
    mask = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    start, last = 0, len(tokens) - len(branches)
    for n, head in enumerate(heads):
        end = start + len(head)
        mask[start:end, start:end] = causal_mask(len(head), 0)
        mask[last + n, start:end] = mask[last + n, last + n] = True
        start = end
    return ForwardInput(cache, tokens, positions, mask, [False] * len(tokens), len(branches), is_prefill=True)


def _num_shared(prompts: Sequence[list[int]]) -> int:
    """How many tokens all prompts begin with, leaving at least one of each."""
    one, other = min(prompts), max(prompts)  # of sorted lists, these have the least in common
    equal = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return min(equal, *(len(ids) - 1 for ids in prompts))


def _groups(rests: Sequence[list[int]]) -> Iterator[list[list[int]]]:
    """Passages that share a forward pass, in their order."""
    group, rows = list[list[int]](), 0
    for rest in rests:
        if group and rows + len(rest) > _MAX_ROWS:
            yield group
            group, rows = [], 0
        group.append(rest)
        rows += len(rest)
    yield group


def _share(logits: Tensor, yes: Sequence[int], no: Sequence[int]) -> list[float]:
    """The probability of "yes" among the two answers: [passages, vocabulary] → [passages]."""
    logits = logits.float()
    answers = torch.stack([logits[:, list(ids)].logsumexp(-1) for ids in (yes, no)], -1)
    return [float(share) for share in answers.softmax(-1)[:, 0]]

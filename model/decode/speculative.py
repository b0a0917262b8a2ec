"""Speculative decoding: builds each step's input from prompt, drafts and n-gram look-up, and keeps what was accepted.

`verify.py` has the rules of a single step. A CUDA graph runner can run whole steps on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from model.decode.decoding import StepOutput
from model.decode.draft import NO_DRAFT, Draft
from model.decode.ngram import NgramLookup
from model.decode.sampling import Sampler
from model.decode.verify import VerificationResult, VerificationStep, accept, accepted_length
from model.nn.forward_batch import text_input
from model.nn.kv_cache import KeyValueCache


class DeviceRunner(Protocol):
    """Runs whole steps of one conversation on the device, including acceptance (`CUDAGraphRunner`)."""

    def attach(self, cache: KeyValueCache, last: int, draft: Draft) -> None:
        """Take over a conversation."""
        ...

    def fits(self, cache: KeyValueCache) -> bool:
        """Whether it has room for this conversation's next steps."""
        ...

    def detach(self) -> None:
        """Write the conversation's keys and values back to its cache."""
        ...


class AcceptanceObserver(Protocol):
    """Receives how many drafts were accepted (`DraftLengthController`)."""

    def record_drafts(self, tried: int, accepted: int) -> None:
        """A step verified `tried` drafts and accepted the first `accepted`."""
        ...

    def record_copied(self, tried: int, accepted: int) -> None:
        """A step verified `tried` copied tokens and accepted the first `accepted`."""
        ...


@dataclass(frozen=True)
class DraftSettings:
    """How a step drafts.

    Attributes:
        num_drafts, linear: as in `VerificationStep`.
        max_copied: maximum number of tokens copied from the conversation; 0 for none.
    """

    num_drafts: int = 0
    linear: bool = False
    max_copied: int = 0


class SpeculativeDecoder:
    """Generates one response that is the base model's own text.

    Args:
        cache: holds a prefix of `ids`; the first step reads the rest.
        ids: the prompt.
        draft_settings: called before each step.
        context: the model's context length.
        observer: receives after each step how many drafts and copied tokens were verified and accepted.
        device_runner: called before each step; returns the device runner to use, or None.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        ids: Sequence[int],
        draft_settings: Callable[[], DraftSettings],
        sampler: Sampler,
        context: int,
        observer: AcceptanceObserver,
        device_runner: Callable[[], DeviceRunner | None] = lambda: None,
    ) -> None:
        self._cache, self._draft_settings, self._sampler, self._context = cache, draft_settings, sampler, context
        self._observer, self._device_runner = observer, device_runner
        self._ngram_lookup, self._last_token, self._draft = NgramLookup(ids), ids[-1], NO_DRAFT
        uncached = ids[len(cache.tokens) :]
        self._unread = list(uncached) if len(uncached) > 1 else []
        self._attached: DeviceRunner | None = None
        self._step = VerificationStep(self._last_token)

    def next_input(self) -> Any:
        """The input of the next step: the rest of the prompt, an attached device runner, or drafts and copied tokens to
        verify."""
        if self._unread:
            return replace(text_input(self._cache, self._unread, 1), batch_invariant=False, is_prefill=True)
        if self._attach_if_possible() is not None:
            return self._attached
        settings = self._draft_settings()
        if self._sampler.sampling.temperature and self._draft.tokens:
            settings = replace(settings, max_copied=0)  # sampling with drafts ignores copied tokens
        remaining = self._context - len(self._cache.tokens) - 1
        self._step = _plan(self._last_token, self._draft, self._ngram_lookup, settings, remaining)
        return self._step.forward_input(self._cache)

    def step(self, result: Any) -> StepOutput:
        """Accept drafts from the logits of the forward pass. A device runner has done so itself."""
        if self._unread:
            accepted = accept(self._step, result, self._sampler)
            self._cache.commit(self._unread)
            self._unread = []
        elif self._attached is not None:
            accepted = result
            self._cache.commit([self._last_token, *accepted.committed[:-1]])
            self._observer.record_drafts(
                len(self._draft.tokens), accepted_length(self._draft.tokens, accepted.committed)
            )
        else:
            accepted = accept(self._step, result, self._sampler)
            self._keep(accepted)
        self._draft = accepted.draft
        if accepted.committed:
            self._last_token = accepted.committed[-1]
            self._ngram_lookup.extend(accepted.committed)
        return StepOutput(accepted.committed, accepted.draft)

    def close(self) -> None:
        """Detach the device runner, so that the cache holds all keys and values."""
        if self._attached is not None:
            self._attached.detach()
            self._attached = None

    def _attach_if_possible(self) -> DeviceRunner | None:
        """The attached device runner, after attaching or detaching as needed. None if there is none or it is full."""
        runner = self._device_runner() if self._sampler.sampling.temperature == 0 else None
        if self._attached is not None and (runner is not self._attached or not self._attached.fits(self._cache)):
            self.close()
        if self._attached is None and runner is not None and runner.fits(self._cache):
            runner.attach(self._cache, self._last_token, self._draft)
            self._attached = runner
        return self._attached

    def _keep(self, accepted: VerificationResult) -> None:
        """Keep the keys of what is final, and record the acceptance."""
        drafts, copied = self._step.draft.tokens, self._step.copied
        if accepted.committed:
            self._cache.keep(accepted.kept_rows, [self._last_token, *accepted.committed[:-1]])
            self._observer.record_drafts(len(drafts), accepted_length(drafts, accepted.committed))
        self._observer.record_copied(len(copied), accepted_length(copied, accepted.committed))


def _plan(
    last_token: int, draft: Draft, ngram_lookup: NgramLookup, settings: DraftSettings, remaining: int
) -> VerificationStep:
    """The next step, with as many drafts as fit into the remaining positions."""
    if draft.tokens[remaining:]:
        draft = NO_DRAFT
    num_drafts = max(0, min(settings.num_drafts, remaining - len(draft.tokens)))
    copied = ngram_lookup.find(min(settings.max_copied, remaining))
    return VerificationStep(last_token, draft, copied, num_drafts, settings.linear)

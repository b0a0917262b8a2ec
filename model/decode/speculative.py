"""Speculative decoding: builds each step's input from prompt, drafts and n-gram look-up, and keeps what was accepted.

`verify.py` has the rules of a single step. The device can take whole steps (`engine/cuda_graph.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from chat.progress import DraftOrigin
from model.decode.constraint import Constraint, RowRule, draft_after
from model.decode.device_steps import MAX_TOP, Attach, DeviceSteps, TokenSettings
from model.decode.draft import NO_DRAFT, Alternative, Draft, DraftHead
from model.decode.draft_length import DraftLengthController
from model.decode.log_probabilities import TokenLogProbability, forced, log_probabilities
from model.decode.ngram import NgramLookup
from model.decode.output import StepOutput
from model.decode.prediction import MAX_PREDICTED, Prediction
from model.decode.sampling import Sampler
from model.decode.token_bias import TokenBias
from model.decode.verify import VerificationResult, VerificationStep, accept, accepted_length
from model.nn.draft_head import Drafted
from model.nn.forward_batch import ForwardInput
from model.nn.kv_cache import KeyValueCache

_MAX_FORCED = 20
"""Forced tokens that the device reads, a step's drafts at a time. More than that are read in a forward pass that is not
captured, which takes as long as several steps."""


@dataclass(frozen=True)
class DraftSettings:
    """How a step drafts.

    Attributes:
        num_drafts, linear: as in `VerificationStep`.
        max_copied: maximum number of tokens copied from the conversation; 0 for none.
        max_guessed: maximum number of tokens guessed by the constraint (`Constraint.guess`) instead.
        worth_drafting: whether the draft head should draft another token, given the confidence in those before it and
            how many other rows the step has; None for no drafts of a head.
        num_others: how many other choices than drafts should be verified as well, given their probabilities in
            descending order and the rows of the step without them; None for no such choices.
        max_steps: most denoising steps of a draft head that denoises.
    """

    num_drafts: int = 0
    linear: bool = False
    max_copied: int = 0
    max_guessed: int = 0
    worth_drafting: Callable[[Sequence[float], int], bool] | None = None
    num_others: Callable[[Sequence[float], int], int] | None = None
    max_steps: int = 1


class SpeculativeDecoder:
    """Generates one response that is the base model's own text.

    Args:
        cache: holds a prefix of `ids`; the first step reads the rest.
        ids: the prompt.
        draft_settings: called before each step.
        context: the model's context length.
        observer: receives after each step how many drafts, other choices and copied tokens were verified and accepted.
        attach: called before each step that the device could take, which is none where logits are biased; None without
            such a device.
        constraint: what the response is held to, if anything. The text is the same as with one token per forward pass
            under the same constraint.
        num_top: report the log probability of each token, and those of this many most likely ones; None for neither.
        draft_head: drafts what no look-up has found, if `draft_settings` says so.
        stop_tokens: ids that end the response. Nothing is drafted after one.
        prediction: what the response will resemble, if that is known. The device's own steps do not use it.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        ids: Sequence[int],
        draft_settings: Callable[[], DraftSettings],
        sampler: Sampler,
        context: int,
        observer: DraftLengthController,
        attach: Attach | None = None,
        constraint: Constraint | None = None,
        num_top: int | None = None,
        draft_head: DraftHead | None = None,
        stop_tokens: frozenset[int] = frozenset(),
        prediction: Prediction | None = None,
    ) -> None:
        self._cache, self._draft_settings, self._sampler, self._context = cache, draft_settings, sampler, context
        self._observer, self._attach = observer, attach
        self._constraint, self._num_top, self._draft_head = constraint, num_top, draft_head
        self._stop_tokens, self._prediction = stop_tokens, prediction or Prediction(())
        self._features: Tensor | None = None
        """What the draft head, or the constraint, reads of each row of the newest forward pass."""
        self._following: tuple[Tensor, Sequence[int]] | None = None
        """What it reads of the row that predicted the newest tokens, and those tokens."""
        self._unreported = () if constraint is None else constraint.start()
        """Forced tokens that the response begins with: they are read like the end of the prompt."""
        self._bias = TokenBias(sampler.sampling)
        self._bias.commit(self._unreported)
        ids = [*ids, *self._unreported]
        self._certain = ids[len(cache.tokens) : -1]
        """Tokens before the last one that are not in the cache yet: the end of the prompt, or forced ones."""
        self._ngram_lookup, self._last_token, self._draft = NgramLookup(ids), ids[-1], NO_DRAFT
        self._reads_prompt = bool(self._certain)
        self._attached: DeviceSteps | None = None
        self._step, self._guesses_right, self._guesses = VerificationStep(self._last_token), 0, 0
        self._promised = 0.0
        """How likely one of the step's other choices than its drafts is right, by their probabilities."""
        self._copied: tuple[int, ...] = ()
        self._copied_from: Literal["constraint", "prediction", "text"] = "text"
        self._is_planned, self._is_begun = False, False
        """Whether `draft` has planned the next step, and whether there was a step before it."""
        self._first_logits: Tensor | None = None
        """The logits [1, vocabulary] of the response's first token, while the constraint's options are scored."""

    def next_input(self) -> Any:
        """The input of the next step: the rest of the prompt, the constraint's options, the device's own steps, or
        drafts and copied tokens to verify."""
        if not self._is_planned:
            self.draft(1 if self._is_begun else self._context)
        self._is_planned, self._is_begun = False, True
        if self._first_logits is not None and self._constraint is not None and self._constraint.options is not None:
            return self._with_features(self._constraint.options.forward_input(self._cache, ()))
        if self._attached is not None:
            self._features = None  # the device keeps those of its own steps
            return self._attached
        rows = _preceded_by(self._certain, self._step.forward_input(self._cache))
        if self._reads_prompt:
            rows = replace(rows, is_prefill=True)
        return self._with_features(rows)

    def draft(self, remaining: int) -> Draft:
        """Plan the next step, and return what it verifies. What costs nothing comes first: tokens that the constraint
        guesses, then predicted ones, then those copied from the text. Called once a step's tokens have been reported,
        unless nobody waits for more.

        Args:
            remaining: how many more tokens the response may have; at least one.
        """
        self._is_planned = True
        if self._first_logits is not None:
            return NO_DRAFT  # the constraint's options are scored
        if not self._reads_prompt and self._attach_if_possible() is not None:
            return self._ending(self._draft.first(remaining - 1))
        settings = self._draft_settings()
        if self._reads_prompt:
            settings = DraftSettings(max_guessed=settings.max_guessed)
        remaining = min(remaining, self._context - len(self._cache.tokens) - len(self._certain)) - 1
        guess: tuple[int, ...] = ()
        if self._constraint is not None and settings.max_guessed:
            guess = self._constraint.guess(max(0, min(settings.max_guessed, remaining)))
        predicted = () if guess else self._prediction.find(max(0, min(MAX_PREDICTED, remaining)))
        copied = guess or predicted or self._ngram_lookup.find(min(settings.max_copied, remaining))
        draft, drafted = self._draft, Drafted()
        if not copied and settings.worth_drafting is not None and self._draft_head is not None:
            drafted = self._draft_with_head(self._draft_head, settings.worth_drafting, remaining, settings.max_steps)
            draft = Draft(drafted.tokens, drafted.confidence, self._draft_head.origin)
        draft = self._ending(draft.first(remaining))
        origin: DraftOrigin = "grammar" if guess else "copied"
        found = self._ending(Draft(copied, self._chances(copied, guess), origin))
        num_drafts = max(0, min(settings.num_drafts, remaining - len(draft.tokens)))
        if settings.linear and self._draft.tokens:
            num_drafts = 0  # a step verifies what the one before it drafted, however little of it is left
        self._copied = found.tokens
        self._promised, alternatives = 0.0, tuple[Alternative, ...]()
        if found.tokens:
            alternatives = (Alternative(0, found.tokens),)
        elif settings.num_others is not None and drafted.others:
            alternatives = self._other_choices(draft, drafted.others, settings.num_others)
        self._step = VerificationStep(self._last_token, draft, alternatives, num_drafts, settings.linear)
        self._copied_from = "constraint" if guess else "prediction" if predicted else "text"
        return draft if draft.tokens else found

    def _ending(self, draft: Draft) -> Draft:
        """A draft up to the end of the response, and without what the constraint forbids."""
        count = next((n for n, token in enumerate(draft.tokens, 1) if token in self._stop_tokens), len(draft.tokens))
        if self._constraint is not None:
            count = self._constraint.allowed_length(draft.tokens[:count])
        return draft.first(count)

    def _chances(self, copied: Sequence[int], guess: Sequence[int]) -> tuple[float, ...]:
        """How likely each copied or guessed token is after the one before it."""
        if guess:  # the grammar forces what follows its first token
            return (1 + self._guesses_right) / (2 + self._guesses), *[1.0] * (len(guess) - 1)
        return (self._observer.copied_acceptance,) * len(copied)

    def step(self, result: Any) -> StepOutput:
        """Accept drafts from the logits [num_outputs, vocabulary] of the forward pass. The device's own steps have done
        so, and this is their result."""
        if self._first_logits is not None:
            accepted, scores = self._choose(self._first_logits, result)
        else:
            if self._attached is not None:
                return self._take(result)
            accepted = self._clip(self._accept(result, len(self._cache.tokens) + len(self._certain)))
            scores = self._scores(result, accepted)
            self._keep(accepted)
        return self._commit(accepted, scores)

    def _take(self, result: VerificationResult) -> StepOutput:
        """Take what the device has accepted. First come forced tokens that were reported before it had read them."""
        waiting = [*self._certain, self._last_token]
        known = len(waiting) - 1
        accepted = replace(
            result,
            committed=result.committed[known:],
            kept_rows=result.kept_rows[known:],
            log_probabilities=result.log_probabilities[known:],
        )
        accepted = self._clip(accepted)
        count = min(known, len(result.committed)) + len(accepted.committed)
        self._cache.commit([waiting[0], *result.committed[: count - 1]])
        if count < len(result.committed):
            self.close()
        if not accepted.committed:  # more forced tokens are waiting
            self._certain, self._draft = waiting[count:-1], draft_after(result.draft, waiting[count + 1 :])
            return StepOutput(())
        self._observer.record_drafts(len(self._draft.tokens), accepted_length(self._draft.tokens, accepted.committed))
        return self._commit(accepted, accepted.log_probabilities)

    def _commit(self, accepted: VerificationResult, scores: tuple[TokenLogProbability, ...]) -> StepOutput:
        """Record what was accepted, and take what the constraint forces after it."""
        self._draft, self._certain, self._reads_prompt = accepted.draft, [], False
        committed = (*self._unreported, *accepted.committed)
        self._unreported, self._following = (), None
        if accepted.committed:
            following = () if self._constraint is None else self._constraint.commit(accepted.committed)
            self._bias.commit((*accepted.committed, *following))
            if following:
                self._certain = [accepted.committed[-1], *following[:-1]]
                self._draft = draft_after(accepted.draft, following)
                committed = (*committed, *following)
            if self._features is not None and accepted.kept_rows:
                newest = self._features[accepted.kept_rows[-1]]
                self._following = newest, (accepted.committed[-1], *following)
            self._last_token = committed[-1]
            self._ngram_lookup.extend((*accepted.committed, *following))
            self._prediction.extend((*accepted.committed, *following))
            if self._num_top is not None:
                scores = (*scores, *forced(following, self._num_top))
        return StepOutput(committed, scores)

    def _choose(self, first: Tensor, scored: Tensor) -> tuple[VerificationResult, tuple[TokenLogProbability, ...]]:
        """Continue with the option that the constraint chooses, or without one. The prompt is in the cache.

        Args:
            first: logits [1, vocabulary] of the first token.
            scored: logits of the options' tokens.
        """
        assert self._constraint is not None and self._constraint.options is not None
        self._first_logits, tree = None, self._constraint.options
        with torch.inference_mode():
            logits = torch.cat([first, scored])
        chosen = self._constraint.choose(logits)
        if chosen is None:
            self._step = VerificationStep(self._last_token)
            accepted = replace(self._accept(first, len(self._cache.tokens) - 1), kept_rows=())
            rows: list[int] = [0]
        else:
            rows = [0, *tree.rows(chosen)[:-1]]
            kept = tuple(row - 1 for row in rows[1:])
            accepted = VerificationResult(tree.tokens(chosen), kept, NO_DRAFT)
            self._cache.keep(kept, accepted.committed[:-1])
        if self._num_top is None:
            return accepted, ()
        return accepted, log_probabilities(logits, rows, accepted.committed, self._num_top)

    def close(self) -> None:
        """Take no more steps on the device."""
        if self._attached is not None:
            self._attached.detach()
            self._attached = None

    def _with_features(self, rows: ForwardInput) -> ForwardInput:
        """The input of a step, which also delivers what the draft head or the constraint reads."""
        self._features = None
        observes = self._constraint is not None and self._constraint.observes
        if self._draft_head is None and not observes:
            return rows
        return replace(rows, on_features=self._receive_features)

    def _receive_features(self, features: Tensor) -> None:
        self._features = features

    def _draft_with_head(
        self,
        head: DraftHead,
        worth_drafting: Callable[[Sequence[float], int], bool],
        remaining: int,
        max_steps: int,
    ) -> Drafted:
        """The head's drafts of what follows the newest tokens, at most `remaining`."""
        if self._following is None or remaining <= 0:
            return Drafted()
        rows = 1 + len(self._certain)
        return head.draft(
            *self._following,
            lambda confidence: len(confidence) < remaining and worth_drafting(confidence, rows),
            max_steps,
        )

    def _other_choices(
        self,
        draft: Draft,
        others: Sequence[Sequence[tuple[int, float]]],
        num_others: Callable[[Sequence[float], int], int],
    ) -> tuple[Alternative, ...]:
        """Other choices than the drafts' tokens that are worth their rows, the likeliest first. An end token is none:
        nothing follows it.

        Args:
            others: likely tokens in the place of each draft, and their probabilities.
        """
        ranked, before = [], 1.0
        for after, (sure, likely) in enumerate(zip(draft.confidence, others, strict=False)):
            ranked += [(before * chance, after, token) for token, chance in likely if token not in self._stop_tokens]
            before *= sure
        ranked.sort(reverse=True)
        chances = [chance for chance, _, _ in ranked]
        count = num_others(chances, 1 + len(self._certain) + len(draft.tokens))
        self._promised = sum(chances[:count])
        return tuple(Alternative(after, (token,)) for _, after, token in ranked[:count])

    def _accept(self, logits: torch.Tensor, position: int) -> VerificationResult:
        """Accept drafts from the logits of a forward pass, under the constraint, with bias and penalties.

        Args:
            position: of the last token in the text.
        """
        if not self._step.only_drafts:
            with torch.inference_mode():  # the logits were computed in it
                if self._constraint is not None and self._restrict(logits, self._constraint):
                    return VerificationResult((), (), NO_DRAFT)
                if self._bias.active:
                    self._bias.apply(logits, self._step.paths)
        return accept(self._step, logits, self._sampler, position)

    def _restrict(self, logits: torch.Tensor, constraint: Constraint) -> bool:
        """Apply the constraint. Returns whether it has options, which are scored before anything is accepted."""
        if constraint.observes and self._features is not None:
            constraint.observe(self._features[0])
        constraint.restrict(logits, self._step.paths)
        if constraint.options is None:
            return False
        count = 1 + len(self._certain)
        self._cache.keep(range(count), [*self._certain, self._last_token])
        self._certain, self._first_logits = [], logits[:1].clone()
        return True

    def _scores(self, logits: torch.Tensor, accepted: VerificationResult) -> tuple[TokenLogProbability, ...]:
        """The log probabilities of what is committed now: forced tokens that the response begins with, and accepted
        tokens, each in the row that verified it."""
        if self._num_top is None:
            return ()
        chosen = log_probabilities(logits, accepted.kept_rows, accepted.committed, self._num_top)
        return (*forced(self._unreported, self._num_top), *chosen)

    def _clip(self, accepted: VerificationResult) -> VerificationResult:
        """Only as many tokens as the constraint commits at a time."""
        count = len(accepted.committed)
        if self._constraint is not None and accepted.committed:
            count = self._constraint.accepted_length(accepted.committed)
        if count == len(accepted.committed):
            return accepted
        return VerificationResult(accepted.committed[:count], accepted.kept_rows[:count], NO_DRAFT)

    def _attach_if_possible(self) -> DeviceSteps | None:
        """The device's own steps, after attaching or detaching as needed. None if it cannot take the next one."""
        if self._attach is None:
            return None
        possible, settings = self._token_settings()
        attached = self._attached
        if attached is not None and not (possible and attached.has_room and attached.settings == settings):
            self.close()
        if not possible:
            return None
        waiting = [*self._certain, self._last_token]
        drafts: tuple[int, ...] = (*waiting[1:], *self._draft.tokens)
        rules: Sequence[RowRule] = ()
        if settings is not None and settings.restricted:
            drafts, rules = self._rules(drafts if self._attached is None else drafts[: self._attached.num_drafts])
            if not rules:
                self.close()
                return None
        if self._attached is None:
            self._attached = self._attach(self._cache, waiting[0], Draft(drafts), settings)
        if self._attached is not None and rules:
            self._attached.restrict(drafts, rules)
        return self._attached

    def _rules(self, drafts: tuple[int, ...]) -> tuple[tuple[int, ...], Sequence[RowRule]]:
        """What the device's next step verifies, of forced tokens and drafts, and what it may choose. No rules if it
        cannot be told."""
        assert self._constraint is not None
        forced_tokens = [*self._certain, self._last_token][1:]
        if len(forced_tokens) > _MAX_FORCED or self._constraint.observes:
            return (), ()
        rules = [*map(RowRule, forced_tokens)]
        if len(rules) <= len(drafts):
            self._draft = self._ending(self._draft.first(len(drafts) - len(rules)))
            rules += self._constraint.rules(self._draft.tokens)
        return (*forced_tokens, *self._draft.tokens)[: max(0, min(len(drafts), len(rules) - 1))], rules

    def _token_settings(self) -> tuple[bool, TokenSettings | None]:
        """Whether the device could take the next step, and how it chooses tokens then."""
        constraint = self._constraint
        restricted = constraint is not None and constraint.active
        if self._bias.active or (self._num_top or 0) > MAX_TOP or (self._certain and not restricted):
            return False, None
        if restricted or self._num_top is not None or self._sampler.sampling.temperature:
            return True, TokenSettings(self._sampler, self._num_top, restricted)
        return True, None

    def _keep(self, accepted: VerificationResult) -> None:
        """Keep the keys of what is final, and record the acceptance."""
        drafts, copied = self._step.draft.tokens, self._copied
        count = len(self._certain)
        if accepted.committed:
            rows = [*range(count), *(count + row for row in accepted.kept_rows)]
            self._cache.keep(rows, [*self._certain, self._last_token, *accepted.committed[:-1]])
            if not self._reads_prompt:
                length = accepted_length(drafts, accepted.committed)
                self._observer.record_drafts(len(drafts), length)
                more = self._promised > 0 and len(accepted.committed) > 1 + length
                self._observer.record_others(self._promised, more)
        elif count:
            self._cache.keep(range(count), self._certain)
        if self._copied_from == "constraint":
            self._guesses += 1
            self._guesses_right += copied[:1] == accepted.committed[:1]
        elif self._copied_from == "text" and not self._reads_prompt:
            self._observer.record_copied(len(copied), accepted_length(copied, accepted.committed))


def _preceded_by(certain: Sequence[int], rows: ForwardInput) -> ForwardInput:
    """A step's input after rows for committed tokens that are not in the cache yet. Those have no outputs."""
    count = len(certain)
    if not count:
        return rows
    size = count + len(rows.tokens)
    mask = torch.ones(size, size, dtype=torch.bool).tril()
    mask[count:, count:] = rows.attention_mask
    past = len(rows.cache.tokens)
    return replace(
        rows,
        tokens=[*certain, *rows.tokens],
        positions=[*range(past, past + count), *(count + position for position in rows.positions)],
        attention_mask=mask,
        noise=[*[False] * count, *rows.noise],
    )

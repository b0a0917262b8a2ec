"""Decides whether a response is a tool call, and of which tool, from the model's own probabilities.

Small models call too often, and invent arguments. What they would write if nothing held them to a grammar tells more
than what they write under it: a model that is asked for something that no tool does still begins a call, but of a
function that it makes up. So the decision has two stages. The first token's distribution says whether the response may
be a call, and classifiers that were trained on the model's own states (the call gate) whether one of the tools does
what is asked for; that costs nothing. If it may, one forward pass scores the names of all tools, unmasked: the best one
is called, or none. The thresholds are calibrated for each model (docs/benchmarks/tool-calls.md).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.checkpoint.tokenizer import TextTokenizer
from model.checkpoint.tool_call_parser import CALL_START
from model.decode.grammar_compiler import GrammarMatcher
from model.decode.option_tree import OptionTree

FENCE = "```"
_CALL_STARTS = (CALL_START, "<tools>", FENCE, "{", '{"', "{\n", "{{", '{{"')
"""How models begin a call. Qwen2.5-Coder was not taught the tag (log probability -22) and writes bare JSON, at times
with two braces, as its template shows it."""

_HEAD = '{"name": "'

_MAX_ROWS = 128
"""Rows of the forward pass that scores names. With more tools than that, the first token decides alone."""


@dataclass(frozen=True)
class CallThresholds:
    """When a model's response is a call. All but the weights are natural logarithms of probabilities.

    Attributes:
        call: of a call's first tokens and, weighted, of the best tool's name, from which the response is a call.
        name_weight: how much the name counts.
        expected: what is added where a call is likely by the words or by the state of the conversation.
        another: that text follows a call, from which another call follows, where several are allowed.
        optional: how much likelier an optional argument must be than the end of the arguments.
        fit_weight: how much `GateOdds.fits` counts, where the model has a call gate; 0 for not at all.
        fit_call: what `call` is then.
        fit_call_assistant: the same for an assistant, as whoever talks to one that has functions mostly wants one.
        several_weight: how much `GateOdds.several` counts, where the model has a call gate; 0 for not at all.
        several_another: what `another` is then.
        continues: of `GateOdds.continues`, from which another call follows the outputs of calls.
        continues_name: of the best tool's name then, from which it is called.
    """

    call: float = -4.7
    name_weight: float = 8.0
    expected: float = 2.0
    another: float = -6.6
    optional: float = 3.7
    fit_weight: float = 0.0
    fit_call: float = 0.0
    fit_call_assistant: float = 0.0
    several_weight: float = 0.0
    several_another: float = 0.0
    continues: float = math.inf
    continues_name: float = -math.inf


@dataclass(frozen=True)
class GateOdds:
    """What the call gate says of a response, as log odds.

    Attributes:
        fits: that one of the tools does what is asked for.
        several: that it takes several calls at once.
        continues: after outputs, that it takes another call.
    """

    fits: float
    several: float
    continues: float


class CallDecision:
    """The decision of one response.

    Args:
        tokenizer: the checkpoint's.
        thresholds: the model's.
        names: the tools that may be called.
        calls: a matcher at the start of a call, to check the scored tokens with.
        expected: whether a call is likely: the user's words suit a tool, or answer a question.
        assistant: whether the user talks to an assistant that has the functions.
        after_output: whether the response follows the output of a tool. It is a call if the gate says so and a tool's
            name is likely, or if the tag is the most likely token: models that were not taught the tag repeat their
            call then, instead of answering.
        gate: what the call gate says, given the features [features] of the row that predicts the first token; None if
            none was trained.
    """

    several_bonus: float
    """Added to what is compared with `CallThresholds.another`."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        thresholds: CallThresholds,
        names: Sequence[str],
        calls: GrammarMatcher,
        *,
        expected: bool = False,
        assistant: bool = False,
        after_output: bool = False,
        gate: Callable[[Tensor], GateOdds] | None = None,
    ) -> None:
        self._gate, self._continues, self.several_bonus = gate, False, 0.0
        self._tokenizer, self._names, self._calls = tokenizer, names, calls
        self._thresholds, self._after_output = thresholds, after_output
        self._bonus = thresholds.expected if expected else 0.0
        self._least = thresholds.call
        self._least_gated = thresholds.fit_call_assistant if assistant else thresholds.fit_call
        self._starts = start_tokens(tokenizer)
        self._tag = tokenizer.token_id(CALL_START)
        self._start_score, self._head_length = 0.0, 0

    @property
    def observes(self) -> bool:
        """Whether it waits for the features of the first step."""
        return self._gate is not None

    @property
    def is_gated(self) -> bool:
        """Whether the gate may decline a call that the model would make."""
        return self._gate is not None and not self._after_output and self._thresholds.fit_weight > 0

    def observe(self, features: Tensor) -> None:
        """Take the features [features] of the row that predicts the first token into account."""
        if self._gate is None:
            return
        odds, thresholds, self._gate = self._gate(features), self._thresholds, None
        if self._after_output:
            self._continues = odds.continues > thresholds.continues
            return
        if thresholds.several_weight:
            weighted = thresholds.several_weight * odds.several
            self.several_bonus = weighted + thresholds.another - thresholds.several_another
        if thresholds.fit_weight:
            self._bonus += thresholds.fit_weight * odds.fits
            self._least = self._least_gated

    def score(self, logits: Tensor) -> float:
        """Log probability of a call's first tokens: [vocabulary] → nats."""
        return float(torch.logsumexp(logits[self._starts], 0) - torch.logsumexp(logits, 0))

    def may_call(self, logits: Tensor) -> bool:
        """Whether the response may be a call, from the logits [vocabulary] of its first token."""
        if self._after_output:
            return self._continues or int(logits.argmax()) == self._tag
        self._start_score = self.score(logits) + self._bonus
        return self._start_score > self._least

    def options(self, logits: Tensor) -> OptionTree | None:
        """The beginnings of a call of each tool, to be scored; None if that is not needed, or they are too many.

        Args:
            logits: as for `may_call`; they say whether calls begin with the tag.
        """
        if self._after_output and not self._continues:
            return None
        tag = []
        if self._tag is not None and float(logits[self._tag]) >= float(logits[self._starts].max()):
            tag = self._tokenizer.encode_template(f"{CALL_START}\n")
        encode = self._tokenizer.encode
        self._head_length = len(tag) + len(encode(_HEAD))
        options = [[*tag, *encode(f'{_HEAD}{json.dumps(name)[1:-1]}",')] for name in self._names]
        if any(len(self._calls.along(option)) <= len(option) for option in options):
            return None  # the grammar splits the text into other tokens
        tree = OptionTree(options, ())
        return tree if tree.num_nodes <= _MAX_ROWS else None

    def choose(self, tree: OptionTree, logits: Tensor) -> int | None:
        """The tool that is called, by its number; None if the response is text.

        Args:
            logits: [1 + num_nodes, vocabulary], unmasked.
        """
        scores = [sum(tree.token_log_probabilities(logits, n)[self._head_length :]) for n in range(len(self._names))]
        best = max(range(len(scores)), key=scores.__getitem__)
        if self._after_output:
            return best if scores[best] > self._thresholds.continues_name else None
        score = self._start_score + self._thresholds.name_weight * scores[best]
        return best if score > self._least else None


def start_tokens(tokenizer: TextTokenizer, leaving_out: Collection[str] = ()) -> list[int]:
    """The tokens that calls begin with."""
    return sorted({tokenizer.encode_template(start)[0] for start in _CALL_STARTS if start not in leaving_out})

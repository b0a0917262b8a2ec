"""The decision whether a response is a tool call, and the margins within calls."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from chat.types import Tool
from model.checkpoint.tokenizer import TextTokenizer
from model.decode.call_decision import CallDecision, CallThresholds, GateOdds
from model.decode.call_margins import CallMargins
from model.decode.constraint import Constraint
from model.decode.grammar import Choice
from model.decode.grammar_compiler import GrammarCompiler, JSONStructure
from model.decode.option_tree import OptionTree
from model.decode.token_set import TokenSet, packed
from model.decode.tool_calls import arguments_schema, call_matcher, declaration

NAMES = ("play", "stop")
THRESHOLDS = CallThresholds(call=-4.0, name_weight=2.0, expected=1.0, another=-3.0, optional=2.0)


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer: Tokenizer) -> TextTokenizer:
    return TextTokenizer(tiny_tokenizer)


@pytest.fixture(scope="module")
def compiler(tiny_tokenizer: Tokenizer) -> GrammarCompiler:
    end = tiny_tokenizer.token_to_id("<|im_end|>")
    return GrammarCompiler(TextTokenizer(tiny_tokenizer), tiny_tokenizer.get_vocab_size(), [end])


def decision(compiler: GrammarCompiler, tokenizer: TextTokenizer, *, expected: bool = False) -> CallDecision:
    matcher = call_matcher(compiler, tokenizer, [Tool(name) for name in NAMES], parallel=False)
    return CallDecision(tokenizer, THRESHOLDS, NAMES, matcher, expected=expected)


def first_logits(compiler: GrammarCompiler, tokenizer: TextTokenizer, log_probability: float) -> torch.Tensor:
    """A call begins with this log probability."""
    logits = torch.full((compiler.vocabulary,), -1e9)
    logits[tokenizer.encode("{")[0]] = log_probability
    logits[tokenizer.encode("Yes")[0]] = math.log(1 - math.exp(log_probability))
    return logits


def name_logits(tree: OptionTree, vocabulary: int, likely: int, log_probability: float) -> torch.Tensor:
    """Every token of one option is certain, but for the one before the last."""
    logits = torch.zeros(1 + tree.num_nodes, vocabulary)
    rows, tokens = tree.rows(likely), tree.tokens(likely)
    for parent, token in zip([0, *rows[:-1]], tokens, strict=True):
        logits[parent] = -1e9
        logits[parent, token] = 0.0
    other = (tokens[-2] + 1) % vocabulary
    logits[rows[-3], tokens[-2]] = log_probability
    logits[rows[-3], other] = math.log(1 - math.exp(log_probability))
    return logits


def test_the_first_token_and_the_name_decide_together(compiler: GrammarCompiler, tokenizer: TextTokenizer) -> None:
    for start, name, call in ((-1.0, -0.1, True), (-1.0, -2.0, False), (-3.5, -0.1, True), (-3.5, -0.5, False)):
        decided = decision(compiler, tokenizer)
        logits = first_logits(compiler, tokenizer, start)
        assert decided.may_call(logits)
        tree = decided.options(logits)
        assert tree is not None
        chosen = decided.choose(tree, name_logits(tree, compiler.vocabulary, 1, name))
        assert chosen == (1 if call else None)


@pytest.mark.parametrize(("fits", "alone", "talked_to"), [(0.0, True, True), (-1.0, False, True), (-3.0, False, False)])
def test_the_gate_asks_for_less_of_an_assistant(
    compiler: GrammarCompiler, tokenizer: TextTokenizer, fits: float, *, alone: bool, talked_to: bool
) -> None:
    thresholds = replace(THRESHOLDS, fit_weight=2.0, fit_call=-2.0, fit_call_assistant=-4.0)
    matcher = call_matcher(compiler, tokenizer, [Tool(name) for name in NAMES], parallel=False)
    for talks, may_call in ((False, alone), (True, talked_to)):
        odds = GateOdds(fits, 0.0, 0.0)
        decided = CallDecision(tokenizer, thresholds, NAMES, matcher, assistant=talks, gate=lambda _, odds=odds: odds)  # type: ignore[misc]
        decided.observe(torch.zeros(1))
        assert decided.may_call(first_logits(compiler, tokenizer, -1.0)) is may_call


def test_a_call_that_is_likely_by_the_conversation_needs_less(
    compiler: GrammarCompiler, tokenizer: TextTokenizer
) -> None:
    logits = first_logits(compiler, tokenizer, -4.5)
    assert not decision(compiler, tokenizer).may_call(logits)
    assert decision(compiler, tokenizer, expected=True).may_call(logits)


def structure(vocabulary: int, **sets: list[int]) -> JSONStructure:
    def tokens(name: str) -> TokenSet:
        found = np.zeros(vocabulary, np.bool_)
        found[sets.get(name, [])] = True
        return packed(found)

    return JSONStructure(
        (tokens("more_after_string"), tokens("end_after_string")),
        (tokens("more"), tokens("end")),
        tokens("newline"),
        tokens("with_newline"),
    )


def masked(margins: CallMargins, logits: list[float], allowed: list[int], written: tuple[int, ...] = ()) -> int:
    """The most likely token."""
    row, mask = torch.tensor(logits), np.zeros(len(logits), np.bool_)
    mask[allowed] = True
    margins.mask(row, packed(mask), written)
    return int(row.argmax())


def test_another_call_follows_if_the_model_would_go_on_in_any_way() -> None:
    margins = CallMargins(structure(4, newline=[1], with_newline=[3]), [0], THRESHOLDS)
    sure, unsure = math.log(0.01), math.log(0.2)
    assert masked(margins, [0.0, -20.0, sure, -20.0], [0, 1, 3]) == 0  # 0 ends the response, 2 is some other text
    assert masked(margins, [0.0, -20.0, unsure, -20.0], [0, 1, 3]) == 1
    assert masked(margins, [0.0, -20.0, -20.0, 9.0], [0, 1, 3]) == 1  # nothing is merged with the line break


def test_a_repeated_call_is_the_last_and_each_further_one_must_be_likelier() -> None:
    margins = CallMargins(structure(4, newline=[1]), [0], THRESHOLDS)
    logits = [0.0, -20.0, -2.7, -20.0]
    assert masked(margins, logits, [0, 1], (2, 3)) == 1
    assert masked(margins, logits, [0, 1], (2, 3, 1, 3, 2)) == 0
    assert masked(margins, [0.0, -20.0, 9.0, -20.0], [0, 1], (2, 3, 1, 3, 2)) == 1
    assert masked(margins, [0.0, -20.0, 9.0, -20.0], [0, 1], (2, 3, 1, 2, 3)) == 0


def test_an_optional_argument_needs_a_margin_over_the_end() -> None:
    margins = CallMargins(structure(4, more=[0], end=[1], more_after_string=[2], end_after_string=[3]), [], THRESHOLDS)
    assert masked(margins, [1.0, 0.0, 9.0, 9.0], [0, 1]) == 1
    assert masked(margins, [3.0, 0.0, 9.0, 9.0], [0, 1]) == 0
    assert masked(margins, [9.0, 9.0, 1.0, 0.0], [2, 3]) == 3
    assert masked(margins, [1.0, 0.0, -9.0, -9.0], [0, 1, 2]) == 0  # a comma within a string that cannot end the object
    assert masked(margins, [1.0, 2.0, 9.0, 9.0], [0]) == 0  # a required argument is left


def test_an_optional_argument_of_a_further_call_needs_no_margin() -> None:
    margins = CallMargins(structure(6, newline=[4], more=[0], end=[1]), [], THRESHOLDS)
    logits = [1.0, 0.0, 9.0, 9.0, 9.0, 9.0]
    assert masked(margins, logits, [0, 1], (5, 5)) == 1
    assert masked(margins, logits, [0, 1], (5, 5, 4, 5, 5)) == 0


def test_optional_parameters_come_last_and_say_so() -> None:
    tool = Tool(
        "f",
        "",
        {"properties": {"a": {"type": "string"}, "b": {"type": "string", "description": "B."}}, "required": ["b"]},
    )
    declared = declaration(tool)["function"]["parameters"]["properties"]
    assert list(declared) == ["b", "a"] == list(arguments_schema(tool)["properties"])
    assert declared["b"] == {"type": "string", "description": "B."}
    assert declared["a"]["description"].startswith("Optional")


def test_what_follows_the_end_of_a_response_is_dropped(compiler: GrammarCompiler, tokenizer: TextTokenizer) -> None:
    """Drafts may go on after it, as the prompt of the next turn does."""
    constraint = Constraint(compiler.compile(Choice(("of", "to"))))
    assert constraint.commit([*tokenizer.encode("of"), *compiler.stop_tokens, 5]) == ()

"""A part of the JSON-Schema test suite: a schema is refused with its place, or what follows its grammar is valid.
`python -m lab.benchmarks.json_schema_suite` runs the whole suite.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tokenizers import Tokenizer

from lab.benchmarks.json_schema_suite import Group, check, read_groups
from model.checkpoint.tokenizer import TextTokenizer
from model.decode.grammar import InvalidGrammar, JSONSchema
from model.decode.grammar_compiler import GrammarCompiler
from model.decode.token_set import unpacked

GROUPS = list(read_groups(Path(__file__).parent / "json_schema_suite.json"))
REFUSED = {
    "not", "uniqueItems", "refRemote", "contains", "oneOf", "vocabulary",
}  # fmt: skip
"""Keywords whose groups here must all be refused."""

_MAX_TOKENS = 150


@pytest.fixture(scope="module")
def compiler(tiny_tokenizer: Tokenizer) -> GrammarCompiler:
    rows = tiny_tokenizer.get_vocab_size()
    return GrammarCompiler(TextTokenizer(tiny_tokenizer), rows, [tiny_tokenizer.token_to_id("<|im_end|>")])


@pytest.mark.parametrize("group", GROUPS, ids=[f"{group.keyword}: {group.description}" for group in GROUPS])
def test_a_schema_of_the_suite_is_enforced_or_refused_with_its_place(compiler: GrammarCompiler, group: Group) -> None:
    verdict, faults = check(compiler, group)
    assert faults == []
    if group.keyword in REFUSED:
        assert verdict == "refused"
        return
    if verdict == "refused":
        with pytest.raises(InvalidGrammar) as error:
            compiler.compile(JSONSchema(group.schema))
        assert error.value.path
        return
    draw = random.Random(0)
    for _ in range(3):
        matcher, tokens = compiler.compile(JSONSchema(group.schema)), list[int]()
        while not matcher.finished and len(tokens) < _MAX_TOKENS:
            allowed = matcher.allowed()
            if not isinstance(allowed, int):
                allowed = draw.choice(unpacked(allowed, compiler.vocabulary).nonzero()[0].tolist())
            tokens.append(allowed)
            matcher.consume(tokens[-1])
        if matcher.finished:
            text = compiler.tables.decode_str([token for token in tokens if token not in compiler.stop_tokens])
            Draft202012Validator(group.schema).validate(json.loads(text))


def test_most_of_the_part_is_enforced(compiler: GrammarCompiler) -> None:
    verdicts = [check(compiler, group)[0] for group in GROUPS]
    assert verdicts.count("compiled") > len(GROUPS) // 2
